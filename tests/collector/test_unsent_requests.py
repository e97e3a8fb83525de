"""A stop does not wait for requests that are not there yet: its time belongs to those that were accepted."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from tests.collector.receiver_helpers import Recorder, grpc_server, http_server
from trajectory_guard_collector.gateway.receivers import grpc_server as grpc_module
from trajectory_guard_collector.gateway.receivers import http_limits
from trajectory_guard_collector.otlp.signals import Signal

SENT = {
    "nothing of the body": b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 9\r\n\r\n",
    "half a body": b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 9\r\n\r\nabc",
    "half a chunk": b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
}  # fmt: skip


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "RECEIVING_S", 0.3)
    monkeypatch.setattr(grpc_module, "RECEIVING_S", 0.3)


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
async def test_http(sent: bytes) -> None:
    async with http_server() as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(sent)
        await writer.drain()
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await running.server.stop(60.0)
        assert time.monotonic() - began < 20.0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_grpc() -> None:
    async with grpc_server() as running, grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        call = channel.stream_unary(f"/{Signal.TRACES.grpc_service}/Export")()
        await call.wait_for_connection()
        began = time.monotonic()
        await running.server.stop(60.0)
        assert time.monotonic() - began < 20.0
        # senders try again in both cases; a request that the handler has not taken up yet is cancelled
        assert await call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_a_request_that_was_accepted_is_still_waited_for() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    async with http_server(recorder) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
        )
        await writer.drain()
        while not recorder.waiting:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(running.server.stop(60.0))
        await asyncio.sleep(1.0)
        assert not stopping.done()
        recorder.gate.set()
        await asyncio.wait_for(stopping, 20.0)
        assert len(recorder.batches) == 1
        writer.close()
