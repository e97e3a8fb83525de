"""The run that a caller asks for who names none: by the spans above the place in the program where it asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from opentelemetry.trace import SpanContext, get_current_span

from trajectory_guard.core.tracking.scope import instance_in
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.spans.identity import nearest_instance

_SPAN_ID: Final = re.compile("[0-9a-f]{16}")


def run_of_caller(
    labels: Iterable[str], views_above: Callable[[SpanContext], Sequence[SpanView]], table: DialectTable
) -> tuple[str | None, str]:
    """Label of the run that acted last and is the caller's own, or that of an agent below the caller; and the trace.

    An agent beside the caller, or above it, asks for itself. A run may be the caller's, too, if its agent has no live
    span, or one of another instrumentation, which may report the caller's own agent. If none is left, the caller has
    not acted yet, and the label is that of its agent instance.

    Parameters:
        labels: those of the runs of the trajectory, the one that acted last first.
        views_above: a live span with the live spans above it, nearest first, by its context; empty if it has ended.

    Returns:
        None as the label if the caller is below no agent; "" as the trace if it is in no span.
    """
    context = get_current_span().get_span_context()
    trace_id = f"{context.trace_id:032x}" if context.trace_id else ""
    found = nearest_instance(views_above(context), table)
    return _run(labels, *found, views_above) if found is not None else None, trace_id


def _run(
    labels: Iterable[str], agent: SpanView, own: str, views_above: Callable[[SpanContext], Sequence[SpanView]]
) -> str:
    """As ``run_of_caller``, for a caller below ``agent``, whose label is ``own``."""
    for label in labels:
        instance = instance_in(label)
        if instance == own:
            return label
        span_id = instance.partition("/")[0]
        chain = views_above(SpanContext(0, int(span_id, 16), is_remote=False)) if _SPAN_ID.fullmatch(span_id) else ()
        if not chain or chain[0].scope != agent.scope or any(one.span_id == agent.span_id for one in chain):
            return label
    return own
