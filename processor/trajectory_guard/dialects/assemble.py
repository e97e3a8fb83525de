"""From a set of spans, in any order, to the calls they stand for: identity resolved, duplicates counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trajectory_guard.core.steps import INTERRUPTED, StepRecord
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.extract import extract_step
from trajectory_guard.dialects.identity import conversation_id
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, MARKERS, recognise

MAX_ANCESTORS = 64


def extract_steps(spans: Iterable[SpanView], *, dialects: Sequence[Dialect] = DIALECTS) -> list[StepRecord]:
    """Steps of all tool calls among ``spans``, ordered by start time; the result does not depend on their order."""
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    conversations = _trace_conversations(by_id.values())
    found = []
    for span in by_id.values():
        if MARKERS.isdisjoint(span.attributes):
            continue
        above = list(_ancestors(span, by_id))
        if is_inner_duplicate(span, above):
            continue
        step = extract_step(
            span, ancestors=above, dialects=dialects,
            trajectory_of=lambda span: conversations.get(span.trace_id, span.trace_id),
        )  # fmt: skip
        if step is not None:
            found.append(step)
    found.sort(key=lambda step: (step.timestamp, step.step_id))
    return drop_duplicates(found)


def _ancestors(span: SpanView, by_id: Mapping[tuple[str, str], SpanView]) -> Iterator[SpanView]:
    for _ in range(MAX_ANCESTORS):
        parent = by_id.get((span.trace_id, span.parent_id)) if span.parent_id else None
        if parent is None:
            return
        yield parent
        span = parent


def _trace_conversations(spans: Iterable[SpanView]) -> dict[str, str]:
    """Conversation id per trace: that of the earliest span that names one."""
    found: dict[str, tuple[float, str, str]] = {}
    for span in spans:
        named = conversation_id(span.attributes)
        if named is not None:
            candidate = (span.start, span.span_id, named)
            found[span.trace_id] = min(found.get(span.trace_id, candidate), candidate)
    return {trace: named for trace, (_, _, named) in found.items()}


def is_inner_duplicate(span: SpanView, above: Iterable[SpanView]) -> bool:
    """Whether a span repeats a tool span around it: transport inside framework, wrapper inside wrapper."""
    dialect = recognise(span)
    if dialect is None:
        return False
    name = dialect.tool_name(span)
    for ancestor in above:
        outer = None if MARKERS.isdisjoint(ancestor.attributes) else recognise(ancestor)
        if outer is not None and outer.tool_name(ancestor) == name:
            return True
    return False


def drop_duplicates(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """One step per call. ``steps`` are ordered by start time; so is the result.

    The same call id within a trajectory is one call; an interrupted call that is made again is represented by its
    last run. Without ids, equal calls that overlap in time and come from different instrumentations are one call.
    """
    kept: list[StepRecord] = []
    for step in steps:
        place = next(
            (at for at in range(len(kept) - 1, max(-1, len(kept) - 33), -1) if same_call(kept[at], step)), None
        )
        if place is None:
            kept.append(step)
        elif kept[place].outcome_type == INTERRUPTED:
            del kept[place]
            kept.append(step)
    return kept


def same_call(first: StepRecord, second: StepRecord) -> bool:
    """Whether two records stand for one call."""
    if first.trajectory_id != second.trajectory_id or first.tool_name.casefold() != second.tool_name.casefold():
        return False
    if first.call_id is not None and second.call_id is not None:
        return first.call_id == second.call_id
    if first.tool_args_hash != second.tool_args_hash and not _single_of(first, second):
        return False
    if first.outcome_type == INTERRUPTED:
        return first.tool_args_hash is not None
    overlap = (
        second.timestamp < first.timestamp + first.duration and first.timestamp < second.timestamp + second.duration
    )
    return overlap and first.dialect != second.dialect


def _single_of(first: StepRecord, second: StepRecord) -> bool:
    """``{"path": "x"}`` in one dialect and a bare ``x`` in another are the same arguments."""
    values = [
        next(iter(step.args.values())) if isinstance(step.args, dict) and len(step.args) == 1 else step
        for step in (first, second)
    ]
    return values[0] == values[1]
