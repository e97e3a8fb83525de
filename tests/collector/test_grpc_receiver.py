from __future__ import annotations

import asyncio
import logging
import socket
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import psutil
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace.export import SpanExportResult
from pydantic import SecretStr

from tests.collector.receiver_helpers import (
    Recorder,
    Running,
    eventually,
    grpc_server,
    http_server,
    request_of,
    sdk_spans,
    traces,
)
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.headers import VIA
from trajectory_guard_collector.config.models import Auth, GrpcReceiver
from trajectory_guard_collector.errors import BadDataError, OverloadedError, UnavailableError
from trajectory_guard_collector.gateway.receivers.grpc_server import GrpcServer
from trajectory_guard_collector.gateway.receivers.request_handler import handler_of
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

TRACES = f"/{Signal.TRACES.grpc_service}/Export"
MIB = 1 << 20
SPANS = traces().SerializeToString()


@asynccontextmanager
async def channel_to(running: Running) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.port}", options=options) as channel:
        yield channel


async def send(running: Running, data: bytes = SPANS, path: str = TRACES, **settings: Any) -> bytes:
    async with channel_to(running) as channel:
        return bytes(await channel.unary_unary(path)(data, timeout=20, **settings))


async def refusal(running: Running, data: bytes = SPANS, **settings: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send(running, data, **settings)
    return caught.value


def trailer(error: grpc.aio.AioRpcError, key: str) -> bytes | None:
    found = dict(error.trailing_metadata() or ()).get(key)
    return found if isinstance(found, bytes) else None


@pytest.mark.parametrize("compression", list(grpc.Compression))
@pytest.mark.parametrize("signal", list(Signal))
async def test_every_signal_arrives_as_it_was_sent(signal: Signal, compression: grpc.Compression) -> None:
    async with grpc_server() as running:
        answer = await send(running, request_of(signal), f"/{signal.grpc_service}/Export", compression=compression)
        assert answer == b""
        assert running.recorder.batches == [(signal, request_of(signal), 3)]
        assert running.total(f"otelcol_receiver_accepted_{signal.items}_total", transport="grpc") == 3
        assert running.total("otelcol_receiver_requests_total", transport="grpc", status="OK") == 1


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_exporter_of_the_sdk(compression: grpc.Compression) -> None:
    async with grpc_server() as running:
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{running.port}", compression=compression)
        assert await asyncio.to_thread(exporter.export, sdk_spans(600)) is SpanExportResult.SUCCESS
        exporter.shutdown()
        assert running.recorder.items == 600


@pytest.mark.parametrize(
    "answer", [OverloadedError("full", retry_after_s=0.1), UnavailableError("later", retry_after_s=0.1)]
)
async def test_exporter_of_the_sdk_tries_again_when_reported_to(answer: Exception) -> None:
    async with grpc_server(Recorder(answer, answer)) as running:
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{running.port}", insecure=True)
        started = asyncio.get_running_loop().time()
        assert await asyncio.to_thread(exporter.export, sdk_spans(5)) is SpanExportResult.SUCCESS
        exporter.shutdown()
        assert asyncio.get_running_loop().time() - started < 1.5, (
            "waited its own time, at least 2.4 s, not the one it was told"
        )
        assert running.recorder.items == 5
        assert running.total("otelcol_receiver_refused_spans_total", transport="grpc") == 10


@pytest.mark.parametrize(
    ("answer", "code", "delay_s"),
    [
        (OverloadedError("queue is full", retry_after_s=2.5), grpc.StatusCode.RESOURCE_EXHAUSTED, 2.5),
        (OverloadedError("queue is full"), grpc.StatusCode.RESOURCE_EXHAUSTED, 1.0),
        (UnavailableError("backend is down"), grpc.StatusCode.UNAVAILABLE, None),
        (UnavailableError("backend is down", retry_after_s=4.0), grpc.StatusCode.UNAVAILABLE, 4.0),
        (BadDataError("span without id"), grpc.StatusCode.INVALID_ARGUMENT, None),
    ],
)
async def test_refusals(answer: Any, code: grpc.StatusCode, delay_s: float | None) -> None:
    async with grpc_server(Recorder(answer)) as running:
        error = await refusal(running)
        assert (error.code(), error.details()) == (code, answer.message)
        status = Status.FromString(trailer(error, "grpc-status-details-bin") or b"")
        assert (status.code, status.message) == (code.value[0], answer.message)
        info = RetryInfo()
        assert [detail.Unpack(info) for detail in status.details] == ([] if delay_s is None else [True])
        assert info.retry_delay.ToMilliseconds() == (delay_s or 0.0) * 1000
        assert running.total("otelcol_receiver_refused_spans_total", transport="grpc") == 3
        assert running.total("otelcol_receiver_requests_total", transport="grpc", status=code.name) == 1
        assert await send(running) == b""


async def test_own_error_is_retryable_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with grpc_server(Recorder(ZeroDivisionError("secret"))) as running:
        error = await refusal(running)
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "internal error")
        assert "ZeroDivisionError" in caplog.text
        assert running.total("otelcol_receiver_failed_spans_total", transport="grpc") == 3
        assert running.errors("receiver") == 1


async def test_an_error_before_a_request_is_read_is_retryable_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """As over HTTP; gRPC itself would answer UNKNOWN, which tells senders to drop the batch."""
    errors = [ZeroDivisionError("secret")]

    def refuse() -> None:
        if errors:
            raise errors.pop()

    async with grpc_server(refuse=refuse) as running:
        error = await refusal(running)
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "internal error")
        assert "ZeroDivisionError" in caplog.text
        assert running.errors("receiver") == 1
        assert running.total("otelcol_receiver_requests_total", transport="grpc", status="UNAVAILABLE") == 1
        assert await send(running) == b""


async def test_a_connection_with_too_many_requests_is_refused_and_does_not_wait() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    async with grpc_server(recorder, max_concurrent_requests=1) as running, channel_to(running) as channel:
        first = channel.unary_unary(TRACES)(SPANS, timeout=20)
        await eventually(lambda: recorder.waiting == 1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(TRACES)(SPANS, timeout=20)
        recorder.gate.set()
        assert await first == b""
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailer(caught.value, "google.rpc.retryinfo-bin") is not None
    assert running.total("otelcol_receiver_requests_total", transport="grpc", status="RESOURCE_EXHAUSTED") == 1


@pytest.mark.parametrize(
    ("signal", "response", "field"),
    [
        (Signal.TRACES, ExportTraceServiceResponse, "rejected_spans"),
        (Signal.METRICS, ExportMetricsServiceResponse, "rejected_data_points"),
        (Signal.LOGS, ExportLogsServiceResponse, "rejected_log_records"),
    ],
)
async def test_own_requests_are_dropped_as_a_partial_success(
    signal: Signal, response: Any, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with grpc_server() as running:
            metadata = ((VIA, running.hops.own),)
            answer = await send(running, request_of(signal), f"/{signal.grpc_service}/Export", metadata=metadata)
    partial_success = response.FromString(answer).partial_success
    assert getattr(partial_success, field) == 3
    assert partial_success.error_message.startswith("this collector sent it")
    assert running.recorder.batches == []
    assert running.total(f"otelcol_receiver_accepted_{signal.items}_total", transport="grpc") == 0
    assert running.total(f"otelcol_receiver_refused_{signal.items}_total", transport="grpc") == 3
    assert "this collector sent it" in caplog.text


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("data", [b"\x0a\xff", b"not protobuf", SPANS[:-1]])
async def test_malformed_protobuf(signal: Signal, data: bytes) -> None:
    async with grpc_server() as running:
        error = await refusal(running, data, path=f"/{signal.grpc_service}/Export")
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a valid Export" in (error.details() or "")
        assert running.recorder.batches == []


async def test_empty_request_is_fine() -> None:
    async with grpc_server() as running:
        assert await send(running, b"") == b""
        assert running.recorder.batches == [(Signal.TRACES, b"", 0)]


async def test_call_without_a_message() -> None:
    async with grpc_server() as running, channel_to(running) as channel:
        call = channel.stream_unary(TRACES)()
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("headers", [(), (("authorization", "Bearer wrong"),), (("authorization", "Basic right"),)])
async def test_without_the_token_nobody_comes_in(headers: Any) -> None:
    async with grpc_server(auth=Auth(bearer_tokens=(SecretStr("right"),))) as running:
        error = await refusal(running, metadata=headers)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert running.total("otelcol_receiver_requests_total", transport="grpc", status="UNAUTHENTICATED") == 1
        assert await send(running, metadata=(("authorization", "Bearer right"),)) == b""


async def test_message_of_100_mb_is_refused() -> None:
    async with grpc_server() as running:
        error = await refusal(running, bytes(100 * MIB))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await send(running) == b""


async def test_message_at_the_limit_is_taken() -> None:
    data = traces(2000).SerializeToString()
    async with grpc_server(max_recv_msg_size_mib=len(data) / MIB) as running:
        assert await send(running, data) == b""
        error = await refusal(running, data + data[:100])
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_that_is_too_large_is_not_counted_as_bad_data(compression: grpc.Compression) -> None:
    """gRPC refuses it and says nothing to the handler; the alert tells what to do by this count."""
    async with grpc_server(max_recv_msg_size_mib=1.0) as running:
        error = await refusal(running, bytes(2 * MIB), compression=compression)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        name = "otelcol_receiver_requests_total"
        await eventually(lambda: running.total(name, transport="grpc", status="too_large_or_cut_off") == 1)
        assert running.total(name, transport="grpc", status="INVALID_ARGUMENT") == 0


async def test_gzip_bomb_is_not_unpacked() -> None:
    async with grpc_server(max_recv_msg_size_mib=8.0) as running:
        before = psutil.Process().memory_info().rss
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(bomb())
        while b"Decompressed message larger" not in (received := await asyncio.wait_for(reader.read(65_536), 10)):
            assert received, "connection closed without an answer"
        writer.close()
        assert psutil.Process().memory_info().rss - before < 100 * MIB
        assert await send(running) == b""


def bomb(size_mib: int = 60) -> bytes:
    """A call of HTTP/2 frames whose message is gzip-compressed zeros."""
    squeeze = zlib.compressobj(9, wbits=31)
    packed = b"".join(squeeze.compress(bytes(MIB)) for _ in range(size_mib)) + squeeze.flush()
    message = b"\x01" + struct.pack(">I", len(packed)) + packed
    assert len(message) < 65_535, "must fit HTTP/2's first window"
    fields = {
        ":method": "POST", ":scheme": "http", ":path": TRACES, ":authority": "test",
        "content-type": "application/grpc", "te": "trailers", "grpc-encoding": "gzip",
    }  # fmt: skip
    headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    pieces = [message[start : start + 16_384] for start in range(0, len(message), 16_384)]
    body = b"".join(_frame(0, int(piece is pieces[-1]), 1, piece) for piece in pieces)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, headers) + body


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def test_more_requests_than_allowed_are_told_to_come_back() -> None:
    async with grpc_server(max_concurrent_requests=1) as running:
        running.recorder.gate.clear()
        first = asyncio.create_task(send(running))
        await eventually(lambda: running.recorder.waiting == 1)
        error = await refusal(running)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert trailer(error, "google.rpc.retryinfo-bin") == b"\x0a\x02\x08\x01"
        running.recorder.gate.set()
        assert await first == b""
        assert await send(running) == b""


async def test_short_memory_refuses_before_reading() -> None:
    async with grpc_server(refuse=lambda: "memory: soft limit") as running:
        error = await refusal(running, bytes(100 * MIB))
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "memory: soft limit")


async def test_sender_that_never_sends_is_let_go() -> None:
    async with grpc_server(read_timeout_s=1.0, max_concurrent_requests=1) as running, channel_to(running) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(channel.stream_unary(TRACES)(), 20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "1.0 s" in (caught.value.details() or "")
        assert await send(running) == b""


async def test_sender_that_goes_away_does_not_interrupt_the_pipeline() -> None:
    async with grpc_server() as running:
        running.recorder.gate.clear()
        async with channel_to(running) as channel:
            call = channel.unary_unary(TRACES)(SPANS)
            await eventually(lambda: running.recorder.waiting == 1)
            call.cancel()
            with pytest.raises(
                grpc.aio.AioRpcError
            ):  # on the same connection: when it is answered, the end has arrived
                await channel.unary_unary("/no.Such/Method")(b"")
        running.recorder.gate.set()
        await eventually(lambda: running.recorder.items == 3)
        assert running.total("otelcol_receiver_accepted_spans_total", transport="grpc") == 3


async def test_stop_lets_requests_in_work_finish() -> None:
    async with grpc_server() as running:
        running.recorder.gate.clear()
        call = asyncio.create_task(send(running))
        await eventually(lambda: running.recorder.waiting == 1)
        stopping = asyncio.create_task(running.server.stop(10.0))
        await asyncio.sleep(0)
        running.recorder.gate.set()
        assert await call == b""
        await asyncio.wait_for(stopping, 20)
        assert running.recorder.items == 3


async def test_stop_does_not_wait_longer_than_its_grace() -> None:
    async with grpc_server() as running:
        running.recorder.gate.clear()
        call = asyncio.create_task(refusal(running))
        await eventually(lambda: running.recorder.waiting == 1)
        await asyncio.wait_for(running.server.stop(0.2), 20)
        assert (await call).code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_stop_without_start() -> None:
    config, metrics = GrpcReceiver(), Metrics()
    server = GrpcServer(config, Authenticator(Auth()), handler_of(config, Recorder().accept, metrics), metrics)
    for _ in range(2):
        await server.stop(0.1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_endpoint_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"grpc\.endpoint: cannot listen on '{endpoint}'"):
            async with grpc_server(endpoint=endpoint):
                pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]", ""])
async def test_a_port_that_is_taken_is_reported_in_our_words_only(host: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"{host}:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as caught:
            async with grpc_server(endpoint=endpoint):
                pass
        key = "receivers.otlp.protocols.grpc.endpoint"
        assert str(caught.value) == f"{key}: cannot listen on '{endpoint}': Address already in use"
    assert capfd.readouterr() == ("", "")


async def answers(port: int) -> set[str]:
    """Addresses of this machine at which a port is open."""
    found = set()
    for address in ("127.0.0.1", "::1"):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            continue
        writer.close()
        found.add(address)
    return found


BOTH = {"127.0.0.1", "::1"}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
@pytest.mark.parametrize("server", [grpc_server, http_server])
@pytest.mark.parametrize(
    ("host", "open_at"),
    [("127.0.0.1", {"127.0.0.1"}), ("0.0.0.0", {"127.0.0.1"}), ("[::1]", {"::1"}), ("[::]", BOTH), ("", BOTH)],
)
async def test_an_endpoint_is_open_where_it_says(
    server: Any, host: str, open_at: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    async with server(endpoint=f"{host}:0") as running:
        assert await answers(running.port) == open_at
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
async def test_what_listens_on_ipv6_only_is_not_in_the_way_of_ipv4() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as other:
        async with grpc_server(endpoint=f"0.0.0.0:{other.getsockname()[1]}") as running:
            assert await send(running) == b""


async def test_two_receivers_do_not_share_a_port() -> None:
    async with grpc_server() as running:
        with pytest.raises(ConfigError, match="cannot listen"):
            async with grpc_server(endpoint=f"127.0.0.1:{running.port}"):
                pass
