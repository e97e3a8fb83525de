"""The gRPC exporter against real gRPC servers: what is retried, what is dropped, what is on the wire."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import grpc
import pytest
from grpc import StatusCode

from tests.collector.backends import (
    Certificates,
    Counted,
    delivering,
    grpc_backend,
    held,
    log_records,
    metric_points,
    otlp,
    partial,
    refuse,
    refuse_poison,
    reply,
    settings,
    spans,
    until,
)
from trajectory_guard_collector.config.models import Exporter
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.gateway.exporters import otlp_grpc
from trajectory_guard_collector.gateway.exporters.otlp_grpc import OtlpGrpcExporter, parse_target
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog


async def test_every_signal_arrives_byte_for_byte():
    batches = [spans(range(30)), metric_points(5), log_records(7)]
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        for batch in batches:
            await delivery.deliver(batch)
    assert backend.taken == [(batch.signal, batch.data) for batch in batches]


async def test_headers_and_gzip_are_on_the_wire():
    section = {"headers": {"X-Scope-OrgID": "team-1"}}
    async with grpc_backend() as backend:
        for compression in ("gzip", "none"):
            config = settings({"otlp": otlp(backend, compression=compression, **section)})
            async with delivering(config) as delivery:
                await delivery.deliver(spans(range(100)))
    headers = [request[2] for request in backend.requests]
    assert [each["x-scope-orgid"] for each in headers] == ["team-1", "team-1"]
    assert all("trajectory-guard-collector" in each["user-agent"] for each in headers)
    assert backend.spans.total() == 200


@pytest.mark.parametrize(
    "code",
    [
        StatusCode.CANCELLED,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.ABORTED,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    ],
)
async def test_codes_that_may_pass_are_retried(code):
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.script.extend([refuse(code), refuse(code)])
        await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 3
    assert backend.spans == {0: 1, 1: 1, 2: 1}
    assert metrics.value("trajectory_guard_exporter_retries_total", "otlp") == 2
    assert metrics.value("sent_spans", "otlp") == 3


NOT_THE_DATA = [
    StatusCode.UNAUTHENTICATED,
    StatusCode.PERMISSION_DENIED,
    StatusCode.UNIMPLEMENTED,
    StatusCode.INTERNAL,
    StatusCode.RESOURCE_EXHAUSTED,
]


@pytest.mark.parametrize("code", NOT_THE_DATA)
async def test_a_failure_that_is_not_the_datas_fault_loses_nothing(code):
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.script.extend([refuse(code), refuse(code)])
        await delivery.deliver(spans(range(3)))
    assert backend.spans.total() == 3
    assert metrics.value("send_failed_spans", "otlp") == 0


async def test_an_error_that_lasts_is_taken_for_the_datas_fault(monkeypatch):
    monkeypatch.setattr(otlp_grpc, "UNCLEAR_PATIENCE_S", 0.05)
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.always = refuse(StatusCode.INTERNAL)
        await delivery.deliver(spans(range(2)))
    assert metrics.value("send_failed_spans", "otlp") == 2


@pytest.mark.parametrize("code", [StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE])
async def test_the_pause_a_backend_asks_for_is_kept(code):
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.script.append(refuse(code, retry_after_s=0.3))
        start = time.monotonic()
        await delivery.deliver(spans(range(3)))
    assert time.monotonic() - start >= 0.3
    assert backend.spans.total() == 3


async def test_partial_success_is_counted_and_not_sent_again(caplog):
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.always = reply(partial(2, "two are too old"))
        await delivery.deliver(spans(range(5)))
    assert len(backend.requests) == 1
    assert metrics.value("sent_spans", "otlp") == 3
    assert metrics.value("send_failed_spans", "otlp") == 2
    assert "2 spans were rejected: two are too old" in caplog.text


@pytest.mark.parametrize("rejected", [-3, 99])
async def test_a_lying_partial_success_does_not_make_counts_negative(rejected):
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.always = reply(partial(rejected, "?"))
        await delivery.deliver(spans(range(5)))
    assert metrics.value("sent_spans", "otlp") + metrics.value("send_failed_spans", "otlp") == 5


async def test_garbage_in_a_successful_reply_is_tolerated_and_logged_once(caplog):
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.always = reply(b"\xff\xff not protobuf")
        await delivery.deliver(spans(range(3)))
        await delivery.deliver(spans(range(3, 6)))
    assert len(backend.requests) == 2
    assert caplog.text.count("is not an OTLP response") == 1


async def test_a_poison_span_is_dropped_and_its_neighbours_arrive():
    metrics = Counted()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
        backend.always = refuse_poison
        await delivery.deliver(spans(range(512), poison=[77, 400], per_scope=50))
    assert backend.spans == dict.fromkeys(set(range(512)) - {77, 400}, 1)
    assert metrics.value("send_failed_spans", "otlp") == 2
    assert metrics.value("sent_spans", "otlp") == 510


async def test_a_batch_above_the_backends_message_limit_is_sent_in_parts():
    metrics = Counted()
    async with (
        grpc_backend(max_receive_message_length=16 * 1024) as backend,
        delivering(settings({"otlp": otlp(backend)}), metrics) as delivery,
    ):
        await delivery.deliver(spans(range(500), padding=200))
    assert backend.spans == dict.fromkeys(range(500), 1)
    assert len(backend.taken) > 4
    assert metrics.value("send_failed_spans", "otlp") == 0


async def test_a_huge_reply_does_not_make_us_send_again():
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.always = reply(bytes(5_000_000))
        await delivery.deliver(spans(range(8)))
    assert backend.spans == dict.fromkeys(range(8), 1)


async def test_an_attempt_takes_no_longer_than_its_timeout():
    never = asyncio.Event()
    async with grpc_backend() as backend:
        config = settings({"otlp": otlp(backend, timeout_s=1.0)})
        async with delivering(config) as delivery:
            backend.script.append(held(never))
            await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 2
    assert backend.spans.total() == 3


async def test_a_backend_that_comes_back_gets_what_waited():
    metrics = Counted()
    async with grpc_backend() as backend:
        await backend.stop()
        async with delivering(settings({"otlp": otlp(backend)}), metrics) as delivery:
            waiting = asyncio.create_task(delivery.deliver(spans(range(3))))
            await until(lambda: metrics.value("trajectory_guard_exporter_retries_total", "otlp") > 1)
            await backend.start()
            await waiting
    assert backend.spans.total() == 3


async def test_mutual_tls(tmp_path):
    certificates = Certificates(tmp_path)
    server = grpc.ssl_server_credentials(
        [(certificates.key.read_bytes(), certificates.cert.read_bytes())],
        certificates.ca.read_bytes(),
        require_client_auth=True,
    )
    ours = {"ca_file": str(certificates.ca), "cert_file": str(certificates.cert), "key_file": str(certificates.key)}
    async with grpc_backend(server) as backend:
        for endpoint in (backend.endpoint, f"https://{backend.endpoint}"):
            async with delivering(settings({"otlp": {"endpoint": endpoint, "tls": ours}})) as delivery:
                await delivery.deliver(spans(range(2)))
        by_address = {"endpoint": f"127.0.0.1:{backend.port}", "tls": {**ours, "server_name_override": "localhost"}}
        async with delivering(settings({"otlp": by_address})) as delivery:
            await delivery.deliver(spans(range(2)))
    assert backend.spans == {0: 3, 1: 3}


async def test_an_unknown_authority_is_not_trusted(tmp_path, caplog):
    certificates = Certificates(tmp_path)
    server = grpc.ssl_server_credentials([(certificates.key.read_bytes(), certificates.cert.read_bytes())])
    async with grpc_backend(server) as backend:
        config = settings({"otlp": {"endpoint": backend.endpoint}}, deadline_s=1.5)
        async with delivering(config) as delivery:
            with pytest.raises(UnavailableError):
                await delivery.deliver(spans(range(2)))
    assert not backend.spans
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


@pytest.mark.parametrize(
    "endpoint, insecure, target",
    [
        ("tempo:4317", True, ("tempo:4317", False)),
        ("tempo:4317", False, ("tempo:4317", True)),
        ("http://tempo:4317", False, ("tempo:4317", False)),
        ("https://tempo", True, ("tempo:4317", True)),
        ("HTTPS://[::1]:99/", False, ("[::1]:99", True)),
        ("unix:/run/otel.sock", True, ("unix:/run/otel.sock", False)),
    ],
)
def test_forms_of_the_endpoint(endpoint, insecure, target):
    assert parse_target("otlp", Exporter(endpoint=endpoint, tls={"insecure": insecure})) == target


def test_a_path_in_the_endpoint_is_an_error_that_hides_passwords():
    with pytest.raises(ValueError, match=r"exporters\.otlp/x\.endpoint: 'http://\[REDACTED\]@host:4317/v1/traces'"):
        parse_target("otlp/x", Exporter(endpoint="http://me:secret@host:4317/v1/traces"))


def test_a_missing_file_is_named(tmp_path: Path):
    config = Exporter(endpoint="host:1", tls={"ca_file": str(tmp_path / "gone.pem")})
    with pytest.raises(ValueError, match=r"exporters\.otlp\.tls\.ca_file: .*gone\.pem: cannot be read"):
        OtlpGrpcExporter("otlp", config, ThrottledLog(logging.getLogger()))


async def test_only_the_configured_signals_are_sent():
    async with (
        grpc_backend() as backend,
        delivering(settings({"otlp": otlp(backend, signals=["logs"])})) as delivery,
    ):
        for batch in (spans(range(3)), metric_points(1), log_records(1)):
            await delivery.deliver(batch)
    assert [signal for signal, _ in backend.taken] == [Signal.LOGS]
