"""From a call that left no tool span to a StepRecord."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Set
from typing import Final

from trajectory_guard.core.calls import text_without_id
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.content.outcome import classify
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import DENIED, ERROR, INTERRUPTED, Evidence, Outcome, StepRecord
from trajectory_guard.core.text_bounds import both_ends_and_digest
from trajectory_guard.dialects.base import json_object
from trajectory_guard.dialects.semconv import SEMCONV
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, handed_over
from trajectory_guard.spans.extract import MAX_RESULT_CHARS
from trajectory_guard.spans.identity import agent_name, instance_of, is_agent_span
from trajectory_guard.transcripts.requested_calls import RequestedCall
from trajectory_guard.transcripts.transcript import ToolResult, result_text

SUFFIX: Final = ".messages"
"""Suffix of the dialect of a step that was read from messages."""
_HANDOFF: Final = re.compile(r"^(?:transfer|hand_?off|delegate)_(?:back_)?to_", re.IGNORECASE)


def outcome_of(requested: RequestedCall, text: str | None, *, of_agent: bool = False) -> Outcome:
    """Outcome of a call without a tool span.

    Parameters:
        text: the result that the model saw, None if unknown.
        of_agent: the call has the name of an agent, which models may call without a tool of that name.
    """
    name, tools, result = requested.call.name, requested.tools or {}, requested.result or ToolResult()
    failed = True if result.failed or (tools and name not in tools and not of_agent) else None
    kind = classify(text, failed=failed, refused=result.approved is False)
    if not tools.get(name, False) or kind in (DENIED, ERROR):
        return kind
    return INTERRUPTED if text is None else DENIED  # an approved call would have a span of its own


def step_of(
    requested: RequestedCall, above: Iterable[SpanView], table: DialectTable = DIALECTS, agents: Container[str] = ()
) -> StepRecord:
    """The step of a call without a tool span. ``agents``: names of the agents of its trace.

    Its id is that of the span whose messages show it, with the place of the call in it. Its time is that of the model's
    answer, its duration 0: nothing shows how long the call took.
    """
    span, text = requested.span, result_text(requested.result)
    text = text if text is None else both_ends_and_digest(text, MAX_RESULT_CHARS)
    kind, call_id = outcome_of(requested, text, of_agent=requested.call.name in agents), _call_id(requested)
    text = text_without_id(text, call_id) if text is not None and kind == ERROR else text
    own, around = (span,) if requested.transcript else (), list(above)
    known = Evidence.FULL if text is not None or kind == ERROR else Evidence.NO_RESULT
    return StepRecord(
        step_id=f"{span.span_id}#{requested.index:03d}",
        trajectory_id=requested.place.trajectory_id,
        tool_name=bounded_name(requested.call.name),
        tool_args_hash=args_hash(requested.args),
        state_snapshot_hash=result_hash(kind, text),
        outcome_type=kind,
        agent_id=requested.agent or agent_name(span, (*own, *around), table),
        timestamp=requested.time,
        call_id=call_id,
        dialect=family_of(span, table) + SUFFIX,
        trace_id=span.trace_id,
        span_id=span.span_id,
        args=requested.args,
        result=text,
        evidence=Evidence.NAME_ONLY if requested.args is None else known,
        batch=None if requested.transcript else f"{span.trace_id}/{span.span_id}",
        thought=requested.thought,
        run=span.span_id if is_agent_span(span, table) else instance_of(span, around, table),
    )


def _call_id(requested: RequestedCall) -> str | None:
    """The id that the result refers to: outputs of the Responses API may show an item's id instead of the call's."""
    found = (requested.result.call_id if requested.result is not None else None) or requested.call.call_id
    return bounded_name(found) if found else found


def requests_handoff(requested: RequestedCall, traces_with_handoffs: Set[str]) -> bool:
    """Whether a call is the model's side of a hand-off that has a span of its own kind: control flow, no step."""
    if not _HANDOFF.match(requested.call.name):
        return False
    if requested.span.trace_id in traces_with_handoffs:
        return True
    return json_object((result_text(requested.result) or "").lstrip()).keys() == {"assistant"}


def is_handoff_span(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """A span that stands for a hand-off between agents."""
    return handed_over(span, table.handoffs) is not None


def family_of(span: SpanView, table: DialectTable = DIALECTS) -> str:
    """The dialect whose conventions a model or agent span follows."""
    for key, name in table.family_markers:
        if key in span.attributes:
            return str(name)
    return next((name for test, name in table.in_family if test(span)), SEMCONV.name)
