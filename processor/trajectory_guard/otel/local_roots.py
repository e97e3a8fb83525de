"""Spans without a live parent in this process: which of them stand for a whole request."""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from trajectory_guard import telemetry
from trajectory_guard.dialects.table import DialectTable, recognise
from trajectory_guard.otel.sdk_spans import PUBLIC, view_of
from trajectory_guard.spans.extract import model_usage

_CALLS: Final = (SpanKind.CLIENT, SpanKind.PRODUCER)


def is_tool(span: ReadableSpan, table: DialectTable) -> bool:
    """Whether a span is that of a tool call."""
    return recognise(view_of(span, *PUBLIC.ended(span)[:3]), table) is not None


def ends_request(span: ReadableSpan, table: DialectTable) -> bool:
    """Whether the request is over with a local root: it is not, after a call that it makes.

    Such calls are local roots where the parent is in another process and no span here stands for the request.

    Parameters:
        span: one that has ended, without a parent or with a remote one.
    """
    if span.parent is None:
        return True
    if span.kind in _CALLS:
        return False
    view = view_of(span, *PUBLIC.ended(span)[:3])
    return view.scope != telemetry.SCOPE and recognise(view, table) is None and model_usage(view, table) is None
