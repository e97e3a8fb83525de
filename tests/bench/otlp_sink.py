"""A backend that counts spans: ``python -m tests.bench.otlp_sink`` prints its port, and says the count on ``/sink/Count``."""

from __future__ import annotations

import asyncio
import os
import sys

import grpc

from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.otlp.signals import Signal

COUNT = "/sink/Count"


async def serve() -> None:
    """Count until killed, or until the parent is gone."""
    spans = 0

    async def export(data: bytes, context: object) -> bytes:
        nonlocal spans
        request = Request.FromString(data)
        spans += sum(len(scoped.spans) for group in request.resource_spans for scoped in group.scope_spans)
        return b""

    async def count(data: bytes, context: object) -> bytes:
        return str(spans).encode()

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    services = {Signal.TRACES.grpc_service: {"Export": export}, "sink": {"Count": count}}
    for name, methods in services.items():
        handlers = {method: grpc.unary_unary_rpc_method_handler(handler) for method, handler in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
