"""Cutting a request in two, so that a backend can take the good part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from trajectory_guard_collector.signals import Batch, Signal


def _points(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return len(getattr(metric, kind).data_points) if kind else 0


class _Shape(NamedTuple):
    request: type[Message]
    resources: str
    scopes: str
    leaves: str
    weight: Callable[[Any], int]


_SHAPES: Final = {
    Signal.TRACES: _Shape(ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans", lambda _: 1),
    Signal.METRICS: _Shape(ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics", _points),
    Signal.LOGS: _Shape(ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records", lambda _: 1),
}


def halves(batch: Batch) -> tuple[Batch, Batch] | None:
    """Two requests that hold what one held, or None if it holds a single span, metric or log record, or no protobuf.

    The cut is made between resources; with one resource between its scopes; with one scope between its spans, metrics
    or log records. Resource, scope, schema URLs and fields this version does not know are in both parts. Repeated
    halving gets from a request to one of its spans in at most ``log2(resources) + log2(scopes) + log2(spans) + 3``
    steps.
    """
    shape = _SHAPES[batch.signal]
    first, second = shape.request(), shape.request()
    try:
        first.ParseFromString(batch.data)
    except DecodeError:
        return None
    second.CopyFrom(first)
    for left, right in zip(_levels(first, shape), _levels(second, shape), strict=True):
        if len(left) > 1:
            middle = len(left) // 2
            del left[middle:]
            del right[:middle]
            return _batch(batch.signal, first, shape), _batch(batch.signal, second, shape)
    return None


def _levels(request: Any, shape: _Shape) -> list[Any]:
    """Repeated fields from the request down, as long as each is the only one of its parent."""
    levels = [getattr(request, shape.resources)]
    for field in (shape.scopes, shape.leaves):
        if len(levels[-1]) != 1:
            break
        levels.append(getattr(levels[-1][0], field))
    return levels


def _batch(signal: Signal, request: Message, shape: _Shape) -> Batch:
    items = sum(map(shape.weight, _leaves(request, shape)))
    return Batch(signal, request.SerializeToString(), items)


def _leaves(request: Any, shape: _Shape) -> Iterable[Any]:
    for resource in getattr(request, shape.resources):
        for scope in getattr(resource, shape.scopes):
            yield from getattr(scope, shape.leaves)
