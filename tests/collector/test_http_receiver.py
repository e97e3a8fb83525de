from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import psutil
import pytest
import zstandard
from google.protobuf.json_format import MessageToDict, Parse
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export import SpanExportResult
from pydantic import SecretStr

from tests.collector.receiver_helpers import (
    Recorder,
    Running,
    eventually,
    http_server,
    parsed,
    request_of,
    sdk_spans,
    to_json,
    traces,
)
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.headers import VIA
from trajectory_guard_collector.config.models import Auth, HttpReceiver
from trajectory_guard_collector.errors import BadDataError, OverloadedError, UnavailableError
from trajectory_guard_collector.gateway.receivers.http_server import HttpServer
from trajectory_guard_collector.gateway.receivers.request_handler import handler_of
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

MIB = 1 << 20
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
SPANS = traces().SerializeToString()
TOKEN = Auth(bearer_tokens=(SecretStr("right"),))
RESPONSES: Any = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.METRICS: ExportMetricsServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
}


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as opened:
        yield opened


async def post(
    running: Running, body: bytes = SPANS, path: str = "/v1/traces", kind: str = PROTOBUF, **headers: str
) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client() as opened:
        return await opened.post(running.url(path), content=body, headers={"content-type": kind, **names})


@pytest.mark.parametrize("kind", [PROTOBUF, f"{PROTOBUF}; charset=utf-8", PROTOBUF.upper()])
@pytest.mark.parametrize("signal", list(Signal))
async def test_every_signal_arrives_as_it_was_sent(signal: Signal, kind: str) -> None:
    async with http_server() as running:
        response = await post(running, request_of(signal), signal.path, kind)
        assert (response.status_code, response.content, response.headers["content-type"]) == (200, b"", PROTOBUF)
        assert running.recorder.batches == [(signal, request_of(signal), 3)]
        assert running.total(f"otelcol_receiver_accepted_{signal.items}_total", transport="http") == 3
        assert running.total("otelcol_receiver_requests_total", transport="http", status="200") == 1
        assert "server" not in response.headers


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
async def test_exporter_of_the_sdk(compression: Compression) -> None:
    async with http_server() as running:
        exporter = OTLPSpanExporter(running.url(), compression=compression)
        assert await asyncio.to_thread(exporter.export, sdk_spans(600)) is SpanExportResult.SUCCESS
        exporter.shutdown()  # type: ignore[no-untyped-call]
        assert running.recorder.items == 600


@pytest.mark.slow
@pytest.mark.newest
async def test_exporter_of_the_sdk_tries_again_when_reported_to() -> None:
    async with http_server(Recorder(OverloadedError("full", retry_after_s=1.5))) as running:
        exporter = OTLPSpanExporter(running.url())
        started = asyncio.get_running_loop().time()
        assert await asyncio.to_thread(exporter.export, sdk_spans(5)) is SpanExportResult.SUCCESS
        assert asyncio.get_running_loop().time() - started >= 2.0, "waited its own time, at most 1.2 s"
        exporter.shutdown()  # type: ignore[no-untyped-call]
        assert running.recorder.items == 5
        assert running.total("otelcol_receiver_refused_spans_total", transport="http") == 5


PACKED = {
    "gzip": gzip.compress(SPANS[:50]) + gzip.compress(SPANS[50:]),
    "GZIP": gzip.compress(SPANS),
    "deflate": zlib.compress(SPANS),
    "zlib": zlib.compress(SPANS),
    "zstd": zstandard.compress(SPANS[:50]) + zstandard.compress(SPANS[50:]),
    "identity": SPANS,
}


async def test_compressed_bodies() -> None:
    async with http_server() as running:
        for encoding, packed in PACKED.items():
            assert (await post(running, packed, content_encoding=encoding)).status_code == 200
        assert running.recorder.batches == [(Signal.TRACES, SPANS, 3)] * len(PACKED)


async def test_large_compressed_body() -> None:
    large = traces(5000).SerializeToString()
    streamed = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(large)
    async with http_server() as running:
        assert (await post(running, gzip.compress(large, 0), content_encoding="gzip")).status_code == 200
        assert (await post(running, streamed, content_encoding="zstd")).status_code == 200
        assert [batch.data for batch in running.recorder.batches] == [large, large]


async def test_body_that_is_not_what_it_says() -> None:
    async with http_server() as running:
        for encoding, why in (("gzip", "not valid gzip"), ("br", "'br'"), ("gzip, gzip", "'gzip, gzip'")):
            response = await post(running, content_encoding=encoding)
            assert response.status_code == 400
            assert why in Status.FromString(response.content).message
        assert running.recorder.batches == []


REFUSALS: list[tuple[Any, int, int, str | None]] = [
    (OverloadedError("queue is full", retry_after_s=2.1), 429, 8, "3"),
    (OverloadedError("queue is full"), 429, 8, "1"),
    (UnavailableError("backend is down"), 503, 14, None),
    (UnavailableError("backend is down", retry_after_s=0.01), 503, 14, "1"),
    (BadDataError("span without id"), 400, 3, None),
]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_refusals(kind: str) -> None:
    async with http_server(Recorder(*(answer for answer, *_ in REFUSALS))) as running:
        for answer, status, code, retry_after in REFUSALS:
            response = await post(running, SPANS if kind == PROTOBUF else to_json(traces()), kind=kind)
            assert (response.status_code, response.headers["content-type"]) == (status, kind)
            assert response.headers.get("retry-after") == retry_after
            reported = Parse(response.content, Status()) if kind == JSON else Status.FromString(response.content)
            assert (reported.code, reported.message) == (code, answer.message)
            assert [detail.Is(RetryInfo.DESCRIPTOR) for detail in reported.details] == [True] * (
                retry_after is not None
            )
        assert running.total("otelcol_receiver_refused_spans_total", transport="http") == 15
        assert running.total("otelcol_receiver_requests_total", transport="http", status="429") == 2


async def test_own_error_is_retryable_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with http_server(Recorder(ZeroDivisionError("secret"))) as running:
        response = await post(running)
        assert (response.status_code, Status.FromString(response.content).message) == (503, "internal error")
        assert "ZeroDivisionError" in caplog.text
        assert running.total("otelcol_receiver_failed_spans_total", transport="http") == 3
        assert running.errors("receiver") == 1


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_own_requests_are_dropped_as_a_partial_success(signal: Signal, kind: str) -> None:
    async with http_server() as running:
        body = request_of(signal) if kind == PROTOBUF else to_json(parsed(signal))
        response = await post(running, body, signal.path, kind, **{VIA: running.hops.own})
    assert response.status_code == 200
    rejected = {Signal.TRACES: "rejectedSpans", Signal.METRICS: "rejectedDataPoints", Signal.LOGS: "rejectedLogRecords"}
    found = response.json() if kind == JSON else MessageToDict(RESPONSES[signal].FromString(response.content))
    reason = found["partialSuccess"].pop("errorMessage")
    assert reason.startswith("this collector sent it")
    assert found == {"partialSuccess": {rejected[signal]: "3"}}
    assert running.recorder.batches == []


@pytest.mark.parametrize("signal", list(Signal))
async def test_malformed_protobuf(signal: Signal) -> None:
    async with http_server() as running:
        response = await post(running, b"\x0a\xff", signal.path)
        assert response.status_code == 400
        assert "not a valid Export" in Status.FromString(response.content).message
        assert running.recorder.batches == []


@pytest.mark.parametrize("kind", ["", "text/plain", "application/grpc", "application/x-protobuf2"])
async def test_other_media_types(kind: str) -> None:
    async with http_server() as running:
        response = await post(running, kind=kind)
        assert response.status_code == 415
        assert response.headers["accept"] == f"{PROTOBUF}, {JSON}"
        assert repr(kind) in response.json()["message"]


async def test_other_methods_and_paths() -> None:
    async with http_server() as running, client() as opened:
        response = await opened.get(running.url())
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert response.json() == {"code": 12, "message": "'/v1/traces' takes POST, not GET"}
        for path in ("/v1/profiles", "/v1/traces/", "/v1/logs/"):
            assert (await post(running, path=path)).status_code == 404


@pytest.mark.parametrize("kind", [PROTOBUF, JSON, "text/plain"])
async def test_paths_that_are_not_there_are_reported_in_the_encoding_of_the_request(kind: str) -> None:
    async with http_server() as running:
        response = await post(running, path="/v1/profiles", kind=kind)
        assert response.headers["content-type"] == (PROTOBUF if kind == PROTOBUF else JSON)
        reported = Status.FromString(response.content) if kind == PROTOBUF else Parse(response.content, Status())
        known = "/v1/traces, /v1/metrics, /v1/logs"
        assert (reported.code, reported.message) == (5, f"nothing at '/v1/profiles'; data is taken at {known}")
        assert len((await post(running, path="/" + "x" * 9_000)).content) < 300


async def test_what_is_posted_to_unknown_paths_is_counted_once_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exporter whose URL lacks /v1/traces loses every batch, and only its own log would say so."""
    async with http_server() as running, client() as opened:
        assert (await opened.get(running.url("/"))).status_code == 404, "a probe"
        paths = ["/", *(f"/{n}" for n in range(20)), "/v1/traces/", "/v1/traces/v1/traces"]
        for path in paths:
            assert (await post(running, path=path)).status_code == 404
        found = [
            one for family in running.metrics.registry.collect() for one in family.samples if "_requests" in one.name
        ]
        counted = {(one.labels["transport"], one.labels["status"]): one.value for one in found if one.value}
        assert counted == {("http", "404"): len(paths)}
        [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "POST '/' is answered 404" in line
        assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT with /v1/traces" in line


@pytest.mark.parametrize("path", ["/%1b[2J%0a%e2%80%ae", "/" + "x" * 9_000])
async def test_a_path_in_the_log_is_short_and_can_be_printed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with http_server() as running:
        assert (await post(running, path=path)).status_code == 404
        [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "POST '/" in line
        assert line.isprintable()
        assert len(line) < 400


@pytest.mark.parametrize("path", ["/", "/v1/traces"])
async def test_a_sender_without_the_token_is_counted_at_any_path(path: str) -> None:
    async with http_server(auth=TOKEN) as running:
        assert (await post(running, path=path)).status_code == 401
        assert running.total("otelcol_receiver_requests_total", transport="http", status="401") == 1


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", list(Signal))
async def test_json_means_the_same_as_protobuf(signal: Signal) -> None:
    async with http_server() as running:
        response = await post(running, to_json(parsed(signal)), signal.path, f"{JSON}; charset=utf-8")
        assert (response.status_code, response.json(), response.headers["content-type"]) == (200, {}, JSON)
        assert running.recorder.batches == [(signal, request_of(signal), 3)]


async def test_malformed_json() -> None:
    async with http_server() as running:
        response = await post(running, b"{", kind=JSON)
        assert (response.status_code, response.json()["code"]) == (400, 3)
        assert "not valid JSON" in response.json()["message"]
        assert running.recorder.batches == []


# --- authentication, CORS --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic right"])
async def test_without_the_token_nobody_comes_in(header: str) -> None:
    async with http_server(auth=TOKEN) as running:
        for path, kind in itertools.product(("/v1/traces", "/nowhere"), (PROTOBUF, JSON)):
            response = await post(running, path=path, kind=kind, authorization=header)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
            code = response.json()["code"] if kind == JSON else Status.FromString(response.content).code
            assert code == 16
        assert running.recorder.batches == []
        assert (await post(running, authorization="bearer right")).status_code == 200


async def test_web_pages_may_send_from_allowed_origins_only() -> None:
    cors = {"allowed_origins": ["https://app.example"], "allowed_headers": ["authorization"], "max_age_s": 60}
    async with http_server(auth=TOKEN, cors=cors) as running, client() as opened:
        asked = {
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        response = await opened.options(running.url(), headers=asked)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert response.headers["access-control-max-age"] == "60"
        response = await opened.options(running.url(), headers={**asked, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in response.headers
        refused = await post(running, origin="https://app.example")
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        ("https://app.example.com", True), ("https://a.b.example.com", True), ("https://example.com", False),
        ("https://app-example.com", False), ("https://app.example.com.evil.org", False),
        ("http://app.example.com", False), ("https://appxexample.com", False), ("null", False),
        ("http://localhost:8080", True), ("http://localhost:3000", True), ("http://localhost", False),
        ("https://exact.org", True), ("https://exactXorg", False),
    ],
)  # fmt: skip
async def test_a_star_in_an_origin_stands_for_anything(origin: str, may: bool) -> None:
    cors = {"allowed_origins": ["https://*.example.com", "http://localhost:*", "https://Exact.org"]}
    async with http_server(cors=cors) as running:
        response = await post(running, origin=origin)
        assert response.headers.get("access-control-allow-origin") == (origin if may else None)


async def test_every_web_page_may_send_if_that_is_wanted() -> None:
    async with http_server(cors={"allowed_origins": ["*", "https://*.example.com"]}) as running:
        response = await post(running, origin="https://anything.org")
        assert response.headers["access-control-allow-origin"] == "*"


async def test_no_web_page_may_send_by_default() -> None:
    async with http_server() as running:
        response = await post(running, origin="https://app.example")
        assert "access-control-allow-origin" not in response.headers


# --- sizes -----------------------------------------------------------------------------------------------------------


async def pieces(total: int) -> AsyncIterator[bytes]:
    for _ in range(total // MIB):
        yield bytes(MIB)


@pytest.mark.parametrize("body", [lambda: bytes(100 * MIB), lambda: pieces(100 * MIB)], ids=["declared", "chunked"])
async def test_body_of_100_mb_is_refused(body: Any) -> None:
    async with http_server() as running, client() as opened:
        before = psutil.Process().memory_info().rss
        for _ in range(2):  # the connection is still of use
            response = await opened.post(running.url(), content=body(), headers={"content-type": PROTOBUF})
            assert response.status_code == 413
            assert "max_request_body_size_mib, 64" in Status.FromString(response.content).message
        response = await opened.post(running.url(), content=SPANS, headers={"content-type": PROTOBUF})
        assert response.status_code == 200
        assert psutil.Process().memory_info().rss - before < 400 * MIB


async def test_body_at_the_limit_is_taken() -> None:
    data = traces(2000).SerializeToString()
    async with http_server(max_request_body_size_mib=len(data) / MIB) as running:
        assert (await post(running, data)).status_code == 200
        assert (await post(running, gzip.compress(data), content_encoding="gzip")).status_code == 200
        assert (await post(running, data + data[:100])).status_code == 413
        assert (await post(running, gzip.compress(data + data[:100]), content_encoding="gzip")).status_code == 413


@cache
def bomb(encoding: str) -> bytes:
    data = bytes(200 * MIB)
    return {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}[encoding](data, 1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_bomb_is_not_unpacked(encoding: str, kind: str) -> None:
    async with http_server(max_request_body_size_mib=4.0) as running:
        packed = bomb(encoding)
        before = psutil.Process().memory_info().rss
        response = await post(running, packed, kind=kind, content_encoding=encoding)
        assert response.status_code == 413
        assert psutil.Process().memory_info().rss - before < 100 * MIB


async def test_short_memory_refuses_before_reading() -> None:
    async with http_server(refuse=lambda: "memory: soft limit") as running:
        response = await post(running)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert Status.FromString(response.content).message == "memory: soft limit"


async def test_room_is_asked_for_what_a_request_declares() -> None:
    async with http_server() as running:
        await post(running, bytes(6 * MIB))
        assert running.memory.asked[0] == 6 * MIB


async def test_memory_that_becomes_short_within_a_body() -> None:
    answers = iter([None, None, "memory: soft limit"])
    async with http_server(refuse=lambda: next(answers, None)) as running, client() as opened:
        response = await opened.post(running.url(), content=pieces(8 * MIB), headers={"content-type": PROTOBUF})
        assert response.status_code == 429
        assert running.recorder.batches == []


# --- start and stop --------------------------------------------------------------------------------------------------


async def test_stop_lets_requests_in_work_finish() -> None:
    async with http_server() as running:
        running.recorder.gate.clear()
        call = asyncio.create_task(post(running))
        await eventually(lambda: running.recorder.waiting == 1)
        stopping = asyncio.create_task(running.server.stop(10.0))
        await asyncio.sleep(0)
        running.recorder.gate.set()
        assert (await call).status_code == 200
        await asyncio.wait_for(stopping, 20)
        assert running.recorder.items == 3


async def test_stop_does_not_wait_longer_than_its_grace() -> None:
    async with http_server() as running:
        running.recorder.gate.clear()
        call = asyncio.create_task(post(running))
        await eventually(lambda: running.recorder.waiting == 1)
        _, idle = await asyncio.open_connection("127.0.0.1", running.port)
        await asyncio.wait_for(running.server.stop(0.2), 20)
        response = await call
        assert (response.status_code, Status.FromString(response.content).message) == (503, "shutting down")
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection("127.0.0.1", running.port)
        idle.close()


async def test_stop_without_start() -> None:
    config, metrics = HttpReceiver(), Metrics()
    server = HttpServer(config, Authenticator(Auth()), handler_of(config, Recorder().accept, metrics), metrics)
    for _ in range(2):
        await server.stop(0.1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_endpoint_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=rf"receivers\.otlp\.protocols\.http\.endpoint: cannot listen on '{endpoint}'"
        ):
            async with http_server(endpoint=endpoint):
                pass


async def test_every_address_of_a_name_listens() -> None:
    async with http_server(endpoint="127.0.0.1:0") as running:
        found = {(family, address[0]) for family, _, _, _, address in socket.getaddrinfo("localhost", running.port)}
        assert found
        for _, address in found:
            _, writer = await asyncio.open_connection(str(address), running.port)
            assert writer.get_extra_info("peername")[:2] == (address, running.port)
            writer.close()
