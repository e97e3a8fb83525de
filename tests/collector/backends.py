"""Real OTLP backends on localhost with scripted behaviour, requests to send to them, and what was counted."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import uvicorn
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.collector.receiver_helpers import Authority
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.gateway.storage.store import Store
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

POISON = "poison"
FAST = {"initial_interval_s": 0.01, "max_interval_s": 0.05}
Answer = Callable[[bytes, Any], Awaitable[Any]]


def spans(ids: Iterable[int], *, poison: Sequence[int] = (), per_scope: int = 100, padding: int = 0) -> Batch:
    """A traces request with a span per id, ``per_scope`` to a scope, one scope to a resource."""
    request, count = ExportTraceServiceRequest(), 0
    for number in ids:
        if count % per_scope == 0:
            resource = request.resource_spans.add()
            resource.resource.attributes.add(key="service.name").value.string_value = "shop"
            scope = resource.scope_spans.add()
        span = scope.spans.add(span_id=number.to_bytes(8, "big"), trace_id=b"t" * 16, name="call")
        span.attributes.add(key="gen_ai.tool.name").value.string_value = POISON if number in poison else "search"
        span.attributes.add(key="padding").value.string_value = "x" * padding
        count += 1
    return Batch(Signal.TRACES, request.SerializeToString(), count)


def metric_points(count: int) -> Batch:
    """A metrics request with one gauge per data point."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for number in range(count):
        scope.metrics.add(name=f"m{number}").gauge.data_points.add(as_int=number)
    return Batch(Signal.METRICS, request.SerializeToString(), count)


def log_records(count: int) -> Batch:
    """A logs request."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for number in range(count):
        scope.log_records.add().body.string_value = str(number)
    return Batch(Signal.LOGS, request.SerializeToString(), count)


def span_ids(data: bytes) -> list[int]:
    """Ids of the spans in a traces request."""
    request = ExportTraceServiceRequest.FromString(data)
    groups = [scope.spans for resource in request.resource_spans for scope in resource.scope_spans]
    return [int.from_bytes(span.span_id, "big") for group in groups for span in group]


class Received:
    """Everything a backend took: spans by id, and every request with its headers, taken or not."""

    def __init__(self) -> None:
        self.spans: Counter[int] = Counter()
        self.taken: list[tuple[Signal, bytes]] = []
        self.requests: list[tuple[Signal, bytes, dict[str, str]]] = []
        self.script: deque[Answer] = deque()
        self.always: Answer | None = None
        self.changed = asyncio.Event()

    def answer(self, signal: Signal, data: bytes, headers: dict[str, str]) -> Answer | None:
        """Note the request; how it is to be answered, None for success."""
        self.requests.append((signal, data, headers))
        self.changed.set()
        return self.script.popleft() if self.script else self.always

    def take(self, signal: Signal, data: bytes) -> None:
        self.taken.append((signal, data))
        if signal is Signal.TRACES:
            self.spans.update(span_ids(data))
        self.changed.set()

    async def until(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Return once a condition on what was received holds."""

        async def wait() -> None:
            while not holds():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), timeout_s)


class GrpcBackend(Received):
    """An OTLP/gRPC backend. Answers of its script get ``(data, context)`` and return the reply's bytes or abort."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, credentials: Any = None, **options: int) -> None:
        """Listen, on the same port as before if this is not the first start."""
        self._server = grpc.aio.server(options=[(f"grpc.{key}", value) for key, value in options.items()])
        for signal in Signal:
            method = grpc.unary_unary_rpc_method_handler(self._handler(signal))
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(signal.grpc_service, {"Export": method}),)
            )
        address = f"127.0.0.1:{self.port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    def _handler(self, signal: Signal) -> Any:
        async def export(data: bytes, context: Any) -> bytes:
            headers = {key: str(value) for key, value in context.invocation_metadata()}
            answer = self.answer(signal, data, headers)
            reply = b"" if answer is None else await answer(data, context)
            self.take(signal, data)
            return reply

        return export


def refuse(code: grpc.StatusCode, details: str = "no", *, retry_after_s: float | None = None) -> Answer:
    """gRPC: a status, with RetryInfo if asked for."""

    async def answer(data: bytes, context: Any) -> bytes:
        if retry_after_s is not None:
            info, detail = (
                RetryInfo(retry_delay=Duration(seconds=int(retry_after_s), nanos=int(retry_after_s % 1 * 1e9))),
                AnyMessage(),
            )
            detail.Pack(info)
            status = Status(code=code.value[0], message=details, details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        await context.abort(code, details)
        raise AssertionError("abort returned")

    return answer


def reply(body: bytes) -> Answer:
    """gRPC: success with these bytes."""

    async def answer(data: bytes, context: Any) -> bytes:
        return body

    return answer


def partial(rejected: int, message: str) -> bytes:
    """A reply that says that some spans could not be used."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = message
    return response.SerializeToString()


def held(gate: asyncio.Event, then: Answer | None = None) -> Answer:
    """Answer only once the gate is open."""

    async def answer(data: bytes, context: Any) -> Any:
        await gate.wait()
        return await then(data, context) if then else b""

    return answer


async def refuse_poison(data: bytes, context: Any) -> bytes:
    """gRPC: INVALID_ARGUMENT for a request with a poison span in it."""
    if POISON.encode() in data:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad span")
    return b""


class HttpBackend(Received):
    """An OTLP/HTTP backend on any path that ends in ``/v1/<signal>``.

    Answers of its script get ``(data, request)`` and return a Starlette response; the batch counts as taken if its
    status is 2xx.
    """

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix
        self.scheme = "http"
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def app(self) -> Starlette:
        routes = [Route(self._prefix + signal.path, self._handler(signal), methods=["POST"]) for signal in Signal]
        return Starlette(routes=routes)

    def _handler(self, signal: Signal) -> Any:
        async def export(request: Request) -> Response:
            body = await request.body()
            data = gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body
            answer = self.answer(signal, data, dict(request.headers))
            response = Response(media_type="application/x-protobuf") if answer is None else await answer(data, request)
            if 200 <= response.status_code < 300:
                self.take(signal, data)
            return response

        return export


def status(code: int, body: bytes | str = b"", **headers: str) -> Answer:
    """HTTP: a status; header names with underscores for hyphens."""

    async def answer(data: bytes, request: Any) -> Response:
        return Response(body, code, {key.replace("_", "-"): value for key, value in headers.items()})

    return answer


async def refuse_poison_http(data: bytes, request: Any) -> Response:
    """HTTP: 400 for a request with a poison span in it, as Langfuse does."""
    return Response(status_code=400 if POISON.encode() in data else 200)


@asynccontextmanager
async def grpc_backend(credentials: Any = None, **options: int) -> AsyncIterator[GrpcBackend]:
    backend = GrpcBackend()
    await backend.start(credentials, **options)
    try:
        yield backend
    finally:
        await backend.stop()


@asynccontextmanager
async def http_backend(prefix: str = "", tls: Certificates | None = None, **options: Any) -> AsyncIterator[HttpBackend]:
    backend = HttpBackend(prefix)
    if tls is not None:
        backend.scheme = "https"
        options |= {"ssl_certfile": str(tls.cert), "ssl_keyfile": str(tls.key), "ssl_ca_certs": str(tls.ca)}
    config = uvicorn.Config(backend.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off", **options)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    backend.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield backend
    finally:
        server.should_exit = server.force_exit = True
        await serving


@asynccontextmanager
async def raw_backend(answers: Sequence[bytes]) -> AsyncIterator[tuple[str, list[int]]]:
    """A TCP server that answers its n-th connection with the n-th bytes, without reading well, and closes it hard.

    Yields its URL and a list with the number of each connection.
    """
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = answers[min(len(seen), len(answers) - 1)]
        seen.append(len(seen))
        await reader.read(65536)
        writer.write(answer)
        if answer:
            await writer.drain()
            writer.close()
        else:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()
        await server.wait_closed()


async def until(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Return once a condition holds that nothing announces."""
    end = asyncio.get_running_loop().time() + timeout_s
    while not holds():
        assert asyncio.get_running_loop().time() < end, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class Certificates:
    """An authority, and a certificate for localhost signed by it that serves servers and clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        self.ca = authority.file
        self.cert, self.key = map(Path, authority.issue("localhost"))


def settings(exporters: dict[str, Any], **queue: Any) -> CollectorConfig:
    """A configuration with these exporters; retries are fast unless one says otherwise."""
    sections = {name: {"retry_on_failure": FAST, **section} for name, section in exporters.items()}
    return CollectorConfig.model_validate({"exporters": sections, "queue": queue})


def otlp(backend: GrpcBackend, **section: Any) -> dict[str, Any]:
    """Section of an ``otlp`` exporter."""
    return {"endpoint": f"http://{backend.endpoint}", **section}


class Counted(Metrics):
    """The collector's metrics, with a look at one number."""

    def value(self, name: str, exporter: str) -> float:
        """Of a series of an exporter; ``sent_spans`` stands for ``otelcol_exporter_sent_spans_total``."""
        self.refresh()
        full = name if "exporter" in name else f"otelcol_exporter_{name}_total"
        return self.registry.get_sample_value(full, {"exporter": exporter}) or 0.0


@asynccontextmanager
async def delivering(
    config: CollectorConfig, metrics: Counted | None = None, store: Store | None = None
) -> AsyncIterator[Delivery]:
    """A running delivery; what waits at the end is not waited for."""
    delivery = Delivery(config, metrics or Counted(), store)
    await delivery.start()
    try:
        yield delivery
    finally:
        await delivery.stop(0.0)
