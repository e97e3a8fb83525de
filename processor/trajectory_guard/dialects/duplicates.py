"""Counting a call once: spans that repeat the tool span around them, records that stand for one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trajectory_guard.core.steps import INTERRUPTED, StepRecord
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, MARKERS, markers_of, recognise

MAX_ANCESTORS: Final = 64


def ancestors(span: SpanView, by_id: Mapping[tuple[str, str], SpanView]) -> Iterator[SpanView]:
    """Spans above a span, nearest first, as far as they are known; at most ``MAX_ANCESTORS``."""
    for _ in range(MAX_ANCESTORS):
        parent = by_id.get((span.trace_id, span.parent_id)) if span.parent_id else None
        if parent is None:
            return
        yield parent
        span = parent


def is_inner_duplicate(span: SpanView, above: Iterable[SpanView], dialects: tuple[Dialect, ...] = DIALECTS) -> bool:
    """Whether a span repeats a tool span around it: transport inside framework, wrapper inside wrapper."""
    dialect = recognise(span, dialects)
    if dialect is None:
        return False
    name, markers = dialect.tool_name(span), MARKERS if dialects is DIALECTS else markers_of(dialects)
    for ancestor in above:
        outer = None if markers.isdisjoint(ancestor.attributes) else recognise(ancestor, dialects)
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
