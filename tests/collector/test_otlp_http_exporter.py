"""The HTTP exporter against real HTTP servers: what is retried, what is dropped, what is on the wire."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from starlette.responses import Response, StreamingResponse

from tests.collector.backends import (
    Certificates,
    Counted,
    HttpBackend,
    delivering,
    held,
    http_backend,
    log_records,
    metric_points,
    partial,
    raw_backend,
    refuse_poison_http,
    settings,
    spans,
    status,
)
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.gateway.exporters import build_exporters, otlp_http
from trajectory_guard_collector.gateway.exporters.otlp_http import MAX_REPLY_BYTES, signal_urls
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog


def http(backend: HttpBackend, **section: Any) -> dict[str, Any]:
    return {"endpoint": backend.endpoint, **section}


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("ALL_PROXY", "socks5://me:hunter2@127.0.0.1:1080", "socksio"),
        ("http_proxy", "http://[::1", "not a valid URL"),
        ("HTTPS_PROXY", "http://me:hunter2/@host", "not a valid URL"),
        ("HTTP_PROXY", "foo://hunter2@bar", "scheme"),
        ("NO_PROXY", "http://[::1", "not a valid URL"),
    ],
)
@pytest.mark.parametrize("name", ["otlphttp/a", "langfuse"])
def test_a_proxy_variable_that_cannot_be_used_is_a_mistake_of_the_environment(
    name: str, variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(one, raising=False)
        monkeypatch.delenv(one.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    keys = {"public_key": "pk", "secret_key": "sk", "scores": {"enabled": False}} if name == "langfuse" else {}
    with pytest.raises(ValueError, match=rf"\Aexporters\.{name}: .*{variable}.*{reason}") as caught:
        build_exporters(
            settings({name: {"endpoint": "http://127.0.0.1:9", **keys}}).exporters,
            ThrottledLog(logging.getLogger(__name__)),
        )
    assert "hunter2" not in str(caught.value)


async def test_every_signal_arrives_byte_for_byte_at_its_path():
    batches = [spans(range(30)), metric_points(5), log_records(7)]
    async with http_backend("/otlp") as backend:
        config = settings({"otlphttp": {"endpoint": f"{backend.endpoint}/otlp/"}})
        async with delivering(config) as delivery:
            for batch in batches:
                await delivery.deliver(batch)
    assert backend.taken == [(batch.signal, batch.data) for batch in batches]


async def test_headers_and_encoding_are_on_the_wire():
    async with http_backend() as backend:
        for compression in ("gzip", "none"):
            section = http(backend, compression=compression, headers={"X-Scope-OrgID": "team-1"})
            async with delivering(settings({"otlphttp": section})) as delivery:
                await delivery.deliver(spans(range(100)))
    zipped, plain = (headers for _, _, headers in backend.requests)
    assert zipped["content-encoding"] == "gzip"
    assert "content-encoding" not in plain
    assert zipped["x-scope-orgid"] == plain["x-scope-orgid"] == "team-1"
    assert zipped["content-type"] == plain["content-type"] == "application/x-protobuf"
    assert int(zipped["content-length"]) < int(plain["content-length"])


@pytest.mark.parametrize("code", [429, 502, 503, 504])
async def test_statuses_that_may_pass_are_retried(code):
    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.script.extend([status(code), status(code)])
        await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 3
    assert backend.spans.total() == 3
    assert metrics.value("trajectory_guard_exporter_retries_total", "otlphttp") == 2


@pytest.mark.parametrize("code", [301, 307, 401, 403, 404, 415, 500, 501])
async def test_a_failure_that_is_not_the_datas_fault_loses_nothing(code, caplog):
    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.script.extend([status(code, "because", location="/elsewhere")] * 2)
        await delivery.deliver(spans(range(3)))
    assert backend.spans.total() == 3
    assert metrics.value("send_failed_spans", "otlphttp") == 0
    assert f"answered {code}: because" in caplog.text


REFUSAL = Status(code=14, message="data refused\ndue to \x1b[2Jhigh memory usage").SerializeToString()


@pytest.mark.parametrize(
    "body, content_type, reported",
    [
        (REFUSAL, "application/x-protobuf", "data refused due to �[2Jhigh memory usage"),
        (b"\xff not protobuf", "application/x-protobuf", "� not protobuf"),
        (b"<h1>no\r\n\x00\x9b</h1>", "text/html", "<h1>no ��</h1>"),
    ],
)
async def test_what_a_backend_says_of_its_refusal_is_one_readable_line(body, content_type, reported, caplog):
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)})) as delivery:
        backend.script.append(status(503, body, content_type=content_type))
        await delivery.deliver(spans(range(3)))
    assert f"answered 503: {reported};" in caplog.text


async def test_an_error_that_lasts_is_taken_for_the_datas_fault(monkeypatch):
    monkeypatch.setattr(otlp_http, "UNCLEAR_PATIENCE_S", 0.05)
    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.always = status(500)
        await delivery.deliver(spans(range(2)))
    assert metrics.value("send_failed_spans", "otlphttp") == 2


def in_one_second() -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=2), usegmt=True)


@pytest.mark.parametrize("retry_after", [lambda: "1", in_one_second])
async def test_retry_after_is_kept(retry_after):
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)})) as delivery:
        backend.script.append(status(429, retry_after=retry_after()))
        start = time.monotonic()
        await delivery.deliver(spans(range(3)))
    assert time.monotonic() - start >= 0.9
    assert backend.spans.total() == 3


async def test_a_pause_beyond_the_deadline_is_the_senders():
    async with (
        http_backend() as backend,
        delivering(settings({"otlphttp": http(backend)}, deadline_s=5.0)) as delivery,
    ):
        backend.always = status(503, retry_after="60")
        with pytest.raises(UnavailableError) as refusal:
            await delivery.deliver(spans(range(3)))
    assert refusal.value.retry_after_s == 60.0
    assert len(backend.requests) == 1


async def test_partial_success_is_counted_and_not_sent_again():
    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.script.append(status(200, partial(2, "old"), content_type="application/x-protobuf"))
        backend.script.append(
            status(200, '{"partialSuccess": {"rejectedSpans": "1"}}', content_type="application/json")
        )
        await delivery.deliver(spans(range(5)))
        await delivery.deliver(spans(range(5, 10)))
    assert len(backend.requests) == 2
    assert metrics.value("sent_spans", "otlphttp") == 7
    assert metrics.value("send_failed_spans", "otlphttp") == 3


@pytest.mark.parametrize(
    "body, content_type",
    [
        (b"welcome", "text/plain"),
        (b"\xff\xfe", "application/json"),
        (b"[1]", "application/json"),
        (b"\xff" * 4 * MAX_REPLY_BYTES, "application/x-protobuf"),
    ],
)
async def test_garbage_in_a_successful_reply_is_tolerated_and_logged_once(body, content_type, caplog):
    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.always = status(200, body, content_type=content_type)
        await delivery.deliver(spans(range(3)))
        await delivery.deliver(spans(range(3, 6)))
    assert backend.spans == dict.fromkeys(range(6), 1)
    assert metrics.value("sent_spans", "otlphttp") == 6
    assert caplog.text.count("is not an OTLP response") == 1


async def test_an_endless_reply_is_read_no_further_than_its_bound():
    written: list[int] = []

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        with suppress(ConnectionError):
            while sum(written) < 1 << 30:
                writer.write(bytes(1 << 16))
                await writer.drain()
                written.append(1 << 16)
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with delivering(settings({"otlphttp": {"endpoint": f"http://127.0.0.1:{port}"}})) as delivery:
            await delivery.deliver(spans(range(3)))
    assert 0 < sum(written) < 1 << 26


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"])
async def test_a_broken_connection_is_retried(answer):
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    metrics = Counted()
    async with (
        raw_backend([answer, answer, good]) as (url, connections),
        delivering(settings({"otlphttp": {"endpoint": url}}), metrics) as delivery,
    ):
        await delivery.deliver(spans(range(3)))
    assert len(connections) == 3
    assert metrics.value("sent_spans", "otlphttp") == 3


async def test_an_attempt_takes_no_longer_than_its_timeout():
    async with (
        http_backend() as backend,
        delivering(settings({"otlphttp": http(backend, timeout_s=1.0)})) as delivery,
    ):
        backend.script.append(held(asyncio.Event(), status(200)))
        await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 2
    assert backend.spans.total() == 3


async def test_a_reply_that_trickles_does_not_outlast_the_timeout():
    async def trickle(data: bytes, request: Any) -> Response:
        async def chunks() -> Any:
            for _ in range(1000):
                yield b"\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(chunks())

    async with (
        http_backend() as backend,
        delivering(settings({"otlphttp": http(backend, timeout_s=1.0)}, deadline_s=20.0)) as delivery,
    ):
        backend.script.append(trickle)
        await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 2


@pytest.mark.parametrize("code", [400, 422])
async def test_a_poison_span_is_dropped_and_its_neighbours_arrive(code):
    async def refuse(data: bytes, request: Any) -> Response:
        refused = (await refuse_poison_http(data, request)).status_code == 400
        return Response(status_code=code if refused else 200)

    metrics = Counted()
    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)}), metrics) as delivery:
        backend.always = refuse
        await delivery.deliver(spans(range(100), poison=[0, 99], per_scope=10))
    assert backend.spans == dict.fromkeys(range(1, 99), 1)
    assert metrics.value("send_failed_spans", "otlphttp") == 2


async def test_a_batch_that_is_too_large_is_sent_in_parts():
    async def limit(data: bytes, request: Any) -> Response:
        return Response(status_code=413 if len(data) > 5000 else 200)

    async with http_backend() as backend, delivering(settings({"otlphttp": http(backend)})) as delivery:
        backend.always = limit
        await delivery.deliver(spans(range(200), padding=100))
    assert backend.spans == dict.fromkeys(range(200), 1)


async def test_mutual_tls_and_an_unknown_authority(tmp_path, caplog):
    certificates = Certificates(tmp_path)
    ours = {"ca_file": str(certificates.ca), "cert_file": str(certificates.cert), "key_file": str(certificates.key)}
    async with http_backend(tls=certificates, ssl_cert_reqs=ssl.CERT_REQUIRED) as backend:
        async with delivering(settings({"otlphttp": http(backend, tls=ours)})) as delivery:
            await delivery.deliver(spans(range(2)))
        async with delivering(settings({"otlphttp": http(backend)}, deadline_s=1.5)) as delivery:
            with pytest.raises(UnavailableError):
                await delivery.deliver(spans(range(2)))
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert backend.spans == {0: 1, 1: 1}


def test_a_query_of_the_endpoint_stays_behind_the_path():
    assert signal_urls("https://host/x/?key=1")[Signal.TRACES] == "https://host/x/v1/traces?key=1"


async def test_secrets_in_the_endpoint_are_sent_and_not_logged(caplog):
    async with http_backend() as backend:
        endpoint = backend.endpoint.replace("//", "//me:secret@") + "/?key=secret"
        async with delivering(settings({"otlphttp": {"endpoint": endpoint}})) as delivery:
            backend.script.append(status(403))
            await delivery.deliver(spans(range(2)))
    assert backend.requests[0][2]["authorization"].startswith("Basic ")
    assert "answered 403" in caplog.text
    assert "secret" not in caplog.text
