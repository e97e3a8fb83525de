"""Halving requests: nothing is lost, nothing is added, and only the poison is dropped."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from tests.collector.backends import FAST, POISON, Counted, log_records, metric_points, span_ids, spans
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.gateway.exporters.base import ExportResult, PermanentExportError
from trajectory_guard_collector.gateway.exporters.sender import MAX_REFUSED_PARTS, Sender
from trajectory_guard_collector.gateway.exporters.splitting import halves
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

UNKNOWN = b"\xf2\x3f\x03new"
"""Field 1022 with three bytes: a field of a later OTLP version."""


def with_unknown(message: Any) -> Any:
    """The message with a field that this version does not know."""
    return type(message).FromString(message.SerializeToString() + UNKNOWN)


@st.composite
def requests(draw: Any) -> Batch:
    """Traces requests of any shape, empty scopes and resources too, with unknown fields at every level."""
    request, number = ExportTraceServiceRequest(), 0
    for at in range(draw(st.integers(0, 4))):
        resource = ResourceSpans(schema_url=f"resource {at}")
        resource.resource.attributes.add(key="at").value.int_value = at
        for deeper in range(draw(st.integers(0, 3))):
            scope = ScopeSpans(schema_url=f"scope {deeper}")
            scope.scope.name = f"{at}/{deeper}"
            for _ in range(draw(st.integers(0, 5))):
                scope.spans.append(with_unknown(Span(span_id=number.to_bytes(8, "big"))))
                number += 1
            resource.scope_spans.append(with_unknown(scope))
        request.resource_spans.append(with_unknown(resource))
    return Batch(Signal.TRACES, with_unknown(request).SerializeToString(), number)


def in_context(data: bytes) -> Counter[tuple[bytes, ...]]:
    """Every span with what it stands under, each as bytes without its siblings, so that unknown fields count."""
    request = ExportTraceServiceRequest.FromString(data)
    seen: Counter[tuple[bytes, ...]] = Counter()
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                seen[without(request, "resource_spans"), without(resource, "scope_spans"), without(scope, "spans"),
                     span.SerializeToString()] += 1  # fmt: skip
    return seen


def without(message: Any, field: str) -> bytes:
    copy = type(message)()
    copy.CopyFrom(message)
    copy.ClearField(field)
    return copy.SerializeToString()


def parts_of(batch: Batch) -> list[Batch]:
    pair = halves(batch)
    return [batch] if pair is None else [part for half in pair for part in parts_of(half)]


@given(requests())
def test_the_halves_hold_what_the_request_held(batch):
    pair = halves(batch)
    if pair is not None:
        assert in_context(pair[0].data) + in_context(pair[1].data) == in_context(batch.data)
        assert pair[0].items + pair[1].items == batch.items
        assert all(UNKNOWN in half.data for half in pair)


@given(requests())
def test_halving_ends_at_single_spans(batch):
    parts = parts_of(batch)
    assert sum((in_context(part.data) for part in parts), Counter()) == in_context(batch.data)
    assert all(part.items == len(span_ids(part.data)) <= 1 for part in parts)


def test_the_way_to_a_span_is_short():
    part, steps = spans(range(4096), per_scope=64), 0
    while (pair := halves(part)) is not None:
        part, steps = pair[1], steps + 1
    assert span_ids(part.data) == [4095]
    assert steps <= math.log2(64) + math.log2(64) + 3


@pytest.mark.parametrize("batch", [metric_points(9), log_records(9)])
def test_metrics_and_logs_are_halved_too(batch):
    parts = parts_of(batch)
    assert [part.items for part in parts] == [1] * 9


def test_a_metric_is_not_taken_apart_and_counts_its_points():
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for points in (3, 0, 2):
        metric = scope.metrics.add()
        for _ in range(points):
            metric.sum.data_points.add()
    parts = parts_of(Batch(Signal.METRICS, request.SerializeToString(), 5))
    assert [part.items for part in parts] == [3, 0, 2]


@pytest.mark.parametrize("data", [b"", b"\xff\xff garbage"])
def test_what_holds_nothing_cannot_be_halved(data):
    assert halves(Batch(Signal.TRACES, data, 0)) is None


class Picky:
    """An exporter in the test process that refuses poison; for counting attempts over many shapes."""

    name = "picky"
    signals = frozenset(Signal)

    def __init__(self) -> None:
        self.attempts = 0
        self.taken: Counter[int] = Counter()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def export(self, batch: Batch) -> ExportResult:
        self.attempts += 1
        if POISON.encode() in batch.data:
            raise PermanentExportError("poison", divisible=True)
        self.taken.update(span_ids(batch.data))
        return ExportResult()


async def sent(batch: Batch) -> tuple[Picky, Counted]:
    exporter, metrics = Picky(), Counted()
    await Sender(exporter, Retry(**FAST), metrics, ThrottledLog(logging.getLogger())).send(batch)
    return exporter, metrics


@given(st.sets(st.integers(0, 199), max_size=MAX_REFUSED_PARTS), st.integers(1, 80))
def test_exactly_the_poison_is_dropped(poison, per_scope):
    exporter, metrics = asyncio.run(sent(spans(range(200), poison=sorted(poison), per_scope=per_scope)))
    assert exporter.taken == dict.fromkeys(set(range(200)) - poison, 1)
    assert metrics.value("send_failed_spans", "picky") == len(poison)
    assert exporter.attempts <= 1 + 2 * 12 * len(poison)


async def test_a_backend_that_refuses_everything_costs_a_bounded_number_of_attempts():
    exporter, metrics = await sent(spans(range(10_000), poison=range(10_000), per_scope=10_000))
    assert exporter.attempts < 200
    assert metrics.value("send_failed_spans", "picky") == 10_000


async def test_beyond_the_bound_parts_without_poison_still_arrive():
    exporter, metrics = await sent(spans(range(1024), poison=range(64), per_scope=1024))
    assert set(range(512, 1024)) <= set(exporter.taken)
    assert exporter.taken.total() + metrics.value("send_failed_spans", "picky") == 1024
