"""Replies of 200 that do not come from an OTLP backend."""

from __future__ import annotations

import logging

import pytest

from tests.collector.backends import (
    Counted,
    delivering,
    http_backend,
    settings,
    span_ids,
    spans,
    status,
)
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.gateway.exporters.base import ExportResult, PermanentExportError
from trajectory_guard_collector.gateway.exporters.sender import Sender
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
RETRY = {"initial_interval_s": 0.01, "max_interval_s": 0.01}


def noted(metrics: Counted) -> float:
    return (
        metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "export.reply"}
        )
        or 0.0
    )


@pytest.mark.parametrize(
    "content_type", ["text/html", "Text/HTML; charset=utf-8", "application/x-protobuf", "text/plain"]
)
async def test_a_web_page_is_no_success(content_type: str) -> None:
    metrics = Counted()
    async with http_backend() as backend:
        backend.script.append(status(200, PAGE, content_type=content_type))
        section = {"endpoint": backend.endpoint, "retry_on_failure": RETRY}
        async with delivering(settings({"otlphttp": section}), metrics=metrics) as delivery:
            await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 2
    assert metrics.value("trajectory_guard_exporter_retries_total", "otlphttp") == 1
    assert noted(metrics) == 1


@pytest.mark.parametrize(
    ("body", "content_type", "odd"),
    [
        (b"", "application/x-protobuf", 0),
        (b"", "text/plain", 0),
        (b"{}", "application/json", 0),
        (b'{"partialSuccess": {}}', "application/json; charset=utf-8", 0),
        (b"\xff\xfe random bytes", "application/x-protobuf", 1),
        (b"not JSON", "application/json", 1),
        (b"OK", "text/plain", 1),
    ],
)
async def test_other_replies_are_success_and_odd_ones_are_counted(body: bytes, content_type: str, odd: int) -> None:
    metrics = Counted()
    async with http_backend() as backend:
        backend.script.append(status(200, body, content_type=content_type))
        async with delivering(settings({"otlphttp": {"endpoint": backend.endpoint}}), metrics=metrics) as delivery:
            await delivery.deliver(spans(range(3)))
    assert len(backend.requests) == 1
    assert metrics.value("otelcol_exporter_sent_spans_total", "otlphttp") == 3
    assert noted(metrics) == odd


class Strict:
    """An exporter that refuses what is no protobuf, as a backend does."""

    name = "strict"
    signals = frozenset(Signal)

    def __init__(self) -> None:
        self.taken: list[int] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def export(self, batch: Batch) -> ExportResult:
        try:
            self.taken += span_ids(batch.data)
        except Exception:
            raise PermanentExportError("bad", divisible=True) from None
        return ExportResult()


async def test_of_joined_requests_one_that_is_damaged_does_not_cost_the_others() -> None:
    joined = [spans([0, 1]), Batch(Signal.TRACES, b"\x0a\xff\xff\xff\xff\x07damaged", 2), spans([2, 3])]
    whole = Batch(Signal.TRACES, b"".join(one.data for one in joined), 6)
    exporter, metrics = Strict(), Counted()
    sender = Sender(exporter, Retry(), metrics, ThrottledLog(logging.getLogger(__name__)))
    await sender.send(whole, joined=joined)
    assert exporter.taken == [0, 1, 2, 3]
    assert metrics.value("otelcol_exporter_send_failed_spans_total", "strict") == 2
