"""Recognising a second record of one call: two instrumentations at once, a resumed run, a gate that reads messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.steps import INTERRUPTED, Outcome, StepRecord
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.text_bounds import chars_of
from trajectory_guard.core.tracking.scope import are_siblings

RECENT_CALLS: Final = 16
"""Records that are kept of a trajectory. A tuple of them takes a fifth of the memory of a deque."""
_HASH_CHARS: Final = 16
_MIN_ID_CHARS: Final = 6
"""A shorter id, such as a number, may be another word of the text by chance."""
_KEPT_RESULT_CHARS: Final = 1_024
_KEPT_SINGLE_CHARS: Final = 512
_KEPT_ARGS_CHARS: Final = 2_048
_CHARS_OF_BYTE: Final = 4
"""No byte of JSON is longer as a Python literal: a control character takes ``\\x7f``, a comma gets a blank."""


def text_without_id(text: str, call_id: str | None) -> str:
    """The text of a failed call without the call's own id, which makes equal failures look different.

    >>> text_without_id("Tool call lookup with id call_7 could not be executed.", "call_7")
    'Tool call lookup with id … could not be executed.'
    >>> text_without_id("row 7 is missing", "7"), text_without_id("call_71 is missing", "call_7")
    ('row 7 is missing', 'call_71 is missing')
    """
    if not call_id or len(call_id) < _MIN_ID_CHARS or call_id not in text:
        return text
    return re.sub(rf"(?<!\w){re.escape(call_id)}(?!\w)", "…", text)


@lru_cache(maxsize=1_024)
def _folded(tool_name: str) -> str:
    """The name of a tool, case-folded: one string for all its records."""
    return tool_name.casefold()


class CallRecord(NamedTuple):
    """The fields of a step by which a second record of the same call is recognised.

    Of the hash of the arguments the first 16 hex digits are enough: few calls are compared.
    """

    tool: str
    args_hash: str | None
    single: str | None
    start: float
    end: float
    dialect: str | None
    call_id: str | None
    outcome: Outcome
    trace_id: str | None
    run: str = ""

    @classmethod
    def of(cls, step: StepRecord, run: str = "") -> CallRecord:
        """The record of a step of a run. ``single`` is the value of its only argument, if that is text."""
        args, single = step.args, None
        if isinstance(args, dict) and len(args) == 1:
            value = next(iter(args.values()))
            single = value if isinstance(value, str) and len(value) <= _KEPT_SINGLE_CHARS else None
        return cls(
            _folded(step.tool_name),
            step.tool_args_hash[:_HASH_CHARS] if step.tool_args_hash is not None else None,
            single,
            step.timestamp,
            step.timestamp + step.duration,
            step.dialect,
            step.call_id,
            step.outcome_type,
            step.trace_id,
            run,
        )


def call_key(call_id: str) -> bytes:
    """Eight-byte key of a tool call id."""
    if call_id[MAX_NAME_CHARS:]:
        call_id = bounded_name(call_id)  # a step has it so, a message has it whole
    return digest64(call_id.encode("utf-8", "replace"))


def same_call(first: CallRecord, second: CallRecord) -> bool:
    """Whether two records of one trajectory describe one call.

    Equal call ids at the same time say so, or with equal arguments in a later trace, as when a run is resumed. Ids
    alone do not: some models restart the numbering of calls in every turn, and in every agent that works beside others.
    Where one lacks the id: equal arguments that overlap in time and come from different instrumentations. And a call
    that was interrupted and is made again is one call.
    """
    if first.tool != second.tool:
        return False
    if first.call_id is not None and second.call_id is not None:
        if first.call_id != second.call_id or (first.dialect == second.dialect and are_siblings(first.run, second.run)):
            return False
        return first.outcome == INTERRUPTED or _overlap(first, second) or _resumed(first, second)
    if not _same_arguments(first, second):
        return False
    if first.outcome == INTERRUPTED:
        return first.args_hash is not None
    return first.dialect != second.dialect and _overlap(first, second)


def reported(recent: Iterable[CallRecord], seen: CallRecord) -> CallRecord | None:
    """The record of ``recent`` that stands for the same call. Runs on every step: the usual cases come first."""
    call_id = seen.call_id
    for other in recent:
        other_id = other.call_id
        if call_id is not None and other_id is not None and other_id != call_id:
            continue
        if other.tool == seen.tool and same_call(other, seen):
            return other
    return None


def is_fuller(second: CallRecord, first: CallRecord) -> bool:
    """Whether the second record shows arguments that the first one hid."""
    return first.args_hash is None and second.args_hash is not None


def _overlap(first: CallRecord, second: CallRecord) -> bool:
    return second.start <= first.end and first.start <= second.end


def _resumed(first: CallRecord, second: CallRecord) -> bool:
    """A run that was interrupted goes on in a new trace, and makes calls again that it had made before."""
    if first.trace_id is None or second.trace_id is None or first.trace_id == second.trace_id:
        return False
    return _same_arguments(first, second)


def without_id(recent: Iterable[CallRecord], call: CallRecord) -> CallRecord | None:
    """The oldest record without a call id that stands for the call a gate has read; None if there is none."""
    for seen in recent:
        if seen.call_id is None and seen.tool == call.tool and _same_arguments(seen, call):
            return seen
    return None


def _same_arguments(first: CallRecord, second: CallRecord) -> bool:
    """Equal, or one and the same value under an argument name that one instrumentation dropped."""
    if first.args_hash == second.args_hash:
        return True
    return first.single is not None and first.single == second.single


def truncate_for_replay(step: StepRecord) -> StepRecord:
    """A record cheap enough to keep for a replay: hashes in full, texts cut, long arguments left out."""
    result, thought, args = step.result, step.thought, step.args
    if args is not None and not _is_short(args):
        step = step._replace(args={})
    if result is not None and len(result) > _KEPT_RESULT_CHARS:
        step = step._replace(result=both_ends(result, _KEPT_RESULT_CHARS))
    if thought is not None and len(thought) > _KEPT_RESULT_CHARS:
        step = step._replace(thought=thought[:_KEPT_RESULT_CHARS])
    return step


def _is_short(args: Any) -> bool:
    """Whether arguments have few characters when written out; counted first: writing takes milliseconds a megabyte."""
    try:
        if len(orjson.dumps(args)) <= _KEPT_ARGS_CHARS // _CHARS_OF_BYTE:
            return True  # as most
    except TypeError:
        pass
    return chars_of(args, _KEPT_ARGS_CHARS) <= _KEPT_ARGS_CHARS and len(str(args)) <= _KEPT_ARGS_CHARS
