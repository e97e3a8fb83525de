"""The run whose flag a caller gets that names no run: found by the spans around the caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from opentelemetry.trace import SpanContext, get_current_span

from trajectory_guard.board.entry_table import CallerSite
from trajectory_guard.core.tracking.scope import instance_in
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.spans.identity import agent_name, nearest_instance

_SPAN_ID: Final = re.compile("[0-9a-f]{16}")
Views = Callable[[SpanContext], Sequence[SpanView]]
"""A live span with the live spans above it, nearest first, by its context; empty if it has ended."""


def views_in(sites: Iterable[CallerSite]) -> Views:
    """The live spans of several processors: each provider has its own, and a conversation may use several."""
    known = list(sites)

    def views_above(context: SpanContext) -> Sequence[SpanView]:
        return next((above for one in known if (above := one.views_above(context))), ())

    return views_above


def run_of_caller(labels: Sequence[str], views_above: Views, table: DialectTable) -> tuple[str | None, str]:
    """Label of the run that acted last and is the caller's own, or that of an agent below the caller; and the trace.

    An agent beside the caller, or above it, asks for itself. A run may be the caller's, too, if its agent has no live
    span, or one of another instrumentation, which may report the caller's own agent: it is around the caller, or no
    name says that it is another. The run of an agent whose span has ended is not, once the caller has acted itself. If
    none is left, the caller has not acted yet, and the label is that of its agent instance.

    Parameters:
        labels: those of the runs of the trajectory, the one that acted last first.

    Returns:
        None as the label if the caller is below no agent; "" as the trace if it is in no span.
    """
    context = get_current_span().get_span_context()
    trace_id = f"{context.trace_id:032x}" if context.trace_id else ""
    around = views_above(context)
    found = nearest_instance(around, table)
    if found is None:
        return None, trace_id
    agent, own = found
    names = {agent_name(agent, (), table), None}
    has_acted = any(instance_in(label) == own for label in labels)
    for label in labels:
        instance = instance_in(label)
        if instance == own:
            return label, trace_id
        span_id = instance.partition("/")[0]
        chain = views_above(SpanContext(0, int(span_id, 16), is_remote=False)) if _SPAN_ID.fullmatch(span_id) else ()
        if not chain:
            if has_acted and _SPAN_ID.fullmatch(span_id):
                continue
            return label, trace_id
        if any(one.span_id == agent.span_id for one in chain):
            return label, trace_id
        acting = chain[0]
        may_be_own = len(names) == 1 or acting in around or agent_name(acting, (), table) in names
        if acting.scope != agent.scope and may_be_own:
            return label, trace_id
    return own, trace_id
