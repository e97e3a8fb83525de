"""Spans above a span, and each call once: records that stand for one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trajectory_guard.core.calls import CallRecord, is_fuller, reported, with_failure
from trajectory_guard.core.steps import INTERRUPTED, StepRecord
from trajectory_guard.core.tracking.scope import run_label
from trajectory_guard.dialects.span import SpanView

MAX_ANCESTORS: Final = 64
WINDOW_STEPS: Final = 32


def ancestors(span: SpanView, by_id: Mapping[tuple[str, str], SpanView]) -> Iterator[SpanView]:
    """Spans above a span, nearest first, as far as they are known; at most ``MAX_ANCESTORS``."""
    for _ in range(MAX_ANCESTORS):
        parent = by_id.get((span.trace_id, span.parent_id)) if span.parent_id else None
        if parent is None:
            return
        yield parent
        span = parent


def drop_duplicates(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """One step per call. ``steps`` are ordered by start time; so is the result.

    ``core.calls.same_call`` decides whether two records are of one call; an interrupted call that is made again is
    represented by its last run. Each step is compared with the ``WINDOW_STEPS`` before it in its trajectory.
    """
    kept: list[StepRecord | None] = []
    windows: dict[str, tuple[list[CallRecord], list[int]]] = {}
    for step in steps:
        record = CallRecord.of(step, run_label(step, {}))
        recent, places = windows.setdefault(step.trajectory_id, ([], []))
        earlier = reported(recent, record)
        at = -1 if earlier is None else next(place for place, one in enumerate(recent) if one is earlier)
        before = None if earlier is None else kept[places[at]]
        if earlier is not None and before is not None and before.outcome_type != INTERRUPTED:
            if is_fuller(record, CallRecord.of(before)):
                kept[places[at]] = _completed(step, before)
            recent[at] = earlier.with_report(record)
            continue
        if earlier is not None:
            kept[places[at]] = None
        recent.append(record)
        places.append(len(kept))
        del recent[:-WINDOW_STEPS], places[:-WINDOW_STEPS]
        kept.append(step)
    return [step for step in kept if step is not None]


def _completed(step: StepRecord, before: StepRecord) -> StepRecord:
    """The fuller record of a call, with what only the one before it says: its id, the agent, and that it failed."""
    call_id, agent = step.call_id or before.call_id, step.agent_id or before.agent_id
    step = step._replace(call_id=call_id, agent_id=agent, run=step.run if step.agent_id else before.run)
    return with_failure(step, before.outcome_type, before.error_class)
