"""Cutting a request in two, so that a backend can take the good part."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from trajectory_guard_collector.otlp import lazy as wire
from trajectory_guard_collector.otlp.signals import Batch, Signal


def halves(batch: Batch) -> tuple[Batch, Batch] | None:
    """Split a request in two; None if it holds a single span, metric or log record, or is no protobuf.

    The cut is made between resources; with one resource between its scopes; with one scope between its spans, metrics
    or log records. Resource, scope, schema URLs and fields this version does not know are in both parts. Repeated
    halving gets from a request to one of its spans in at most ``log2(resources) + log2(scopes) + log2(spans) + 3``
    steps.
    """
    # Only the structure is decoded: the content of items costs no time, and stays unchanged.
    first, second = wire.Request(), wire.Request()
    try:
        first.ParseFromString(batch.data)
    except DecodeError:
        return None
    second.CopyFrom(first)
    for left, right in zip(_levels(first), _levels(second), strict=True):
        if len(left) > 1:
            middle = len(left) // 2
            del left[middle:]
            del right[:middle]
            return _batch(batch.signal, first), _batch(batch.signal, second)
    return None


def _levels(request: Any) -> list[Any]:
    """Repeated fields from the request down, as long as each is the only one of its parent."""
    levels = [request.resource_spans]
    if len(levels[-1]) == 1:
        levels.append(levels[-1][0].scope_spans)
        if len(levels[-1]) == 1:
            levels.append(levels[-1][0].spans)
    return levels


def _batch(signal: Signal, request: Any) -> Batch:
    scopes = (scope for resource in request.resource_spans for scope in resource.scope_spans)
    if signal is Signal.METRICS:
        items = sum(_points(metric) for scope in scopes for metric in scope.spans)
    else:
        items = sum(len(scope.spans) for scope in scopes)
    return Batch(signal, request.SerializeToString(), items)


def _points(metric: bytes) -> int:
    try:
        fields = wire.Metric.FromString(metric).ListFields()
    except DecodeError:
        return 0
    return sum(len(kind.data_points) for _, kind in fields)
