"""Recognising a second record of one call: two instrumentations at once, a resumed run, a gate that reads messages."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final, NamedTuple

from trajectory_guard.core.steps import INTERRUPTED, Outcome, StepRecord

_KEPT_RESULT_CHARS: Final = 4_096


class CallRecord(NamedTuple):
    """As much of a step as it takes to tell whether another record stands for the same call."""

    tool: str
    args_hash: str | None
    single: str | None
    start: float
    end: float
    dialect: str | None
    call_id: str | None
    outcome: Outcome

    @classmethod
    def of(cls, step: StepRecord) -> CallRecord:
        """The record of a step. ``single`` is the value of its only argument, if that is text."""
        args = step.args
        single = next(iter(args.values())) if isinstance(args, dict) and len(args) == 1 else None
        return cls(
            step.tool_name.casefold(),
            step.tool_args_hash,
            single if isinstance(single, str) else None,
            step.timestamp,
            step.timestamp + step.duration,
            step.dialect,
            step.call_id,
            step.outcome_type,
        )


def call_key(call_id: str) -> bytes:
    """Eight bytes that stand for a tool call id."""
    return blake2b(call_id.encode("utf-8", "replace"), digest_size=8).digest()


def same_call(first: CallRecord, second: CallRecord) -> bool:
    """Whether two records of one trajectory stand for one call.

    Equal call ids say so. Where one lacks the id: equal arguments that overlap in time and come from different
    instrumentations, or a call that was interrupted and is made again.
    """
    if first.tool != second.tool:
        return False
    if first.call_id is not None and second.call_id is not None:
        return first.call_id == second.call_id
    if not _same_arguments(first, second):
        return False
    if first.outcome == INTERRUPTED:
        return first.args_hash is not None
    overlap = second.start < first.end and first.start < second.end
    return overlap and first.dialect != second.dialect


def consume(recent: deque[CallRecord], told: CallRecord) -> bool:
    """Whether a record without a call id stands for the call a gate tells of; each answers for one call."""
    for place, seen in enumerate(recent):
        if seen.call_id is None and seen.tool == told.tool and _same_arguments(seen, told):
            del recent[place]
            return True
    return False


def _same_arguments(first: CallRecord, second: CallRecord) -> bool:
    """Equal, or one and the same value under an argument name that one instrumentation dropped."""
    if first.args_hash == second.args_hash:
        return True
    return first.single is not None and first.single == second.single


def light(step: StepRecord) -> StepRecord:
    """A record cheap enough to keep for a replay."""
    if step.result is None or len(step.result) <= _KEPT_RESULT_CHARS:
        return step
    return step._replace(result=step.result[:_KEPT_RESULT_CHARS])
