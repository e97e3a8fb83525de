"""From a call that left no tool span to a StepRecord."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.masking import result_hash
from trajectory_guard.core.outcome import classify
from trajectory_guard.core.steps import DENIED, ERROR, INTERRUPTED, Evidence, Outcome, StepRecord
from trajectory_guard.dialects.base import json_object
from trajectory_guard.dialects.semconv import SEMCONV
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.extract import MAX_RESULT_CHARS
from trajectory_guard.spans.identity import agent_name, instance_of, is_agent_span
from trajectory_guard.transcripts.told import Told
from trajectory_guard.transcripts.transcript import ToolAnswer, answer_text

SUFFIX: Final = ".messages"
"""Ends the dialect of a step that was read from messages."""
_HANDOFF: Final = re.compile(r"^(?:transfer|hand_?off|delegate)_(?:back_)?to_", re.IGNORECASE)


def told_outcome(told: Told, text: str | None) -> Outcome:
    """Outcome of a call without a tool span. ``text`` is what the model was told, None if unknown."""
    name, tools, answer = told.call.name, told.tools or {}, told.answer or ToolAnswer()
    failed = True if answer.failed or (tools and name not in tools) else None
    kind = classify(text, failed=failed, refused=answer.approved is False)
    if not tools.get(name, False) or kind in (DENIED, ERROR):
        return kind
    return INTERRUPTED if text is None else DENIED  # an approved call would have a span of its own


def step_of(told: Told, above: Iterable[SpanView], table: DialectTable = DIALECTS) -> StepRecord:
    """The step of a call without a tool span. ``step_id`` is the span that told of it and the call's place in it.

    Its time is that of the model's answer, its duration 0: nothing shows how long the call took.
    """
    span, text = told.span, answer_text(told.answer)
    text = text if text is None else text[:MAX_RESULT_CHARS]
    kind = told_outcome(told, text)
    own, around = (span,) if told.transcript else (), list(above)
    known = Evidence.FULL if text is not None or kind == ERROR else Evidence.NO_RESULT
    return StepRecord(
        step_id=f"{span.span_id}#{told.index:03d}",
        trajectory_id=told.place.trajectory_id,
        tool_name=told.call.name,
        tool_args_hash=args_hash(told.args),
        state_snapshot_hash=result_hash(kind, text),
        outcome_type=kind,
        agent_id=told.agent or agent_name(span, (*own, *around), table),
        timestamp=told.time,
        call_id=_call_id(told),
        dialect=family_of(span, table) + SUFFIX,
        trace_id=span.trace_id,
        span_id=span.span_id,
        args=told.args,
        result=text,
        evidence=Evidence.NAME_ONLY if told.args is None else known,
        batch=None if told.transcript else f"{span.trace_id}/{span.span_id}",
        thought=told.thought,
        run=span.span_id if is_agent_span(span, table) else instance_of(span, around, table),
    )


def _call_id(told: Told) -> str | None:
    """The id the answer goes by: outputs of the Responses API may show an item's id instead of the call's."""
    return (told.answer.call_id if told.answer is not None else None) or told.call.call_id


def is_handoff(told: Told, traces_with_handoffs: Set[str]) -> bool:
    """Whether a call is the model's side of a hand-off that has a span of its own kind: control flow, no step."""
    if not _HANDOFF.match(told.call.name):
        return False
    if told.span.trace_id in traces_with_handoffs:
        return True
    return json_object((answer_text(told.answer) or "").lstrip()).keys() == {"assistant"}


def is_handoff_span(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """A span that stands for a hand-off between agents."""
    return any(test(span) for test in table.handoff_tests)


def family_of(span: SpanView, table: DialectTable = DIALECTS) -> str:
    """The dialect whose conventions a model or agent span follows."""
    for key, name in table.family_markers:
        if key in span.attributes:
            return name
    return next((name for test, name in table.in_family if test(span)), SEMCONV.name)
