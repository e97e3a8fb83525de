"""Recognising a second record of one call: two instrumentations at once, a resumed run, a gate that reads messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.fingerprints import digest64, text_digest
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.steps import ERROR, INTERRUPTED, SUCCESS, Outcome, StepRecord, Usage
from trajectory_guard.core.text import both_ends, text_of
from trajectory_guard.core.text_bounds import chars_of

RECENT_CALLS: Final = 16
"""Records that are kept of a trajectory. A tuple of them takes a fifth of the memory of a deque."""
_HASH_CHARS: Final = 16
_MIN_ID_CHARS: Final = 6
"""A shorter id, such as a number, may be another word of the text by chance."""
_KEPT_RESULT_CHARS: Final = 1_024
_KEPT_SINGLE_CHARS: Final = 512
_KEPT_ARGS_CHARS: Final = 2_048
_MAX_SOURCES: Final = 15
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

    Of each hash the first 16 hex digits are enough: few calls are compared.

    Fields:
        run: label of the run, as far as it is known.
        result: hash of what came back, None if it is unknown.
        again: dialect and trace of the further records of the same call.
        usage: of the model calls before it, where another record is awaited that will be evaluated with it.
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
    result: str | None = None
    again: tuple[tuple[str | None, str | None], ...] = ()
    usage: Usage | None = None

    @classmethod
    def of(cls, step: StepRecord, run: str = "") -> CallRecord:
        """The record of a step of a run. ``single`` is a digest of its only argument, if that is text."""
        args, single = step.args, None
        if isinstance(args, dict) and len(args) == 1:
            value = next(iter(args.values()))
            if isinstance(value, str) and len(value) <= _KEPT_SINGLE_CHARS:
                single = text_digest(value)  # a saved state holds no argument in clear
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
            step.state_snapshot_hash[:_HASH_CHARS] if step.state_snapshot_hash is not None else None,
        )

    def with_report(self, second: CallRecord) -> CallRecord:
        """This record, after ``second`` was found to be another one of the same call."""
        source = (second.dialect, second.trace_id)
        if source == (self.dialect, self.trace_id) or source in self.again:
            return self
        return self._replace(again=(*self.again[-_MAX_SOURCES:], source))


def call_key(call_id: str) -> bytes:
    """Eight-byte key of a tool call id."""
    if call_id[MAX_NAME_CHARS:]:
        call_id = bounded_name(call_id)  # a step has it so, a message has it whole
    return digest64(call_id.encode("utf-8", "replace"))


def same_call(first: CallRecord, second: CallRecord, *, newest: bool = True, unread: bool = False) -> bool:
    """Whether two records of one trajectory describe one call.

    Equal call ids at the same time say so, or with equal arguments and results in a later trace, as when a run is
    resumed. Ids alone do not: some models restart the numbering of calls in every answer, so that user turns share ids,
    and agents that work beside others. An instrumentation reports a call once in a trace, so a second record of it is
    of another call, unless nothing distinguishes the two: then the instrumentation was installed twice.
    Where one lacks the id: equal arguments that overlap in time and come from different instrumentations; or one has
    the id and hides the arguments, and the other, within its time, shows them. And a call that was interrupted and is
    made again is one call.

    Parameters:
        newest: ``first`` is the newest call with its id: only such a call is made again when a run is resumed.
        unread: a gate has seen the call of ``second`` requested, and not yet an answer to it: the model has not asked
            for it again, but its node is executed again, after an error or a question to a person.
    """
    if first.tool != second.tool:
        return False
    if unread and newest and _executed_before(first, second):
        return True
    if first.call_id is not None and second.call_id is not None:
        if first.call_id != second.call_id:
            return False
        if first.outcome == INTERRUPTED:
            return True
        if _has_reported(first, second):
            return _overlap(first, second) and _are_alike(first, second)
        return _overlap(first, second) or (newest and _resumed(first, second))
    if not _same_arguments(first, second):
        return _completes(first, second)
    if first.outcome == INTERRUPTED:
        return first.args_hash is not None
    return first.dialect != second.dialect and _overlap(first, second)


def reported(recent: Sequence[CallRecord], seen: CallRecord, *, unread: bool = False) -> CallRecord | None:
    """The record of ``recent`` that stands for the same call, the newest one that does; ``unread`` as in ``same_call``.

    Runs on every step: the usual cases come first.
    """
    call_id, newest = seen.call_id, True
    for other in reversed(recent):
        other_id = other.call_id
        if call_id is not None and other_id is not None and other_id != call_id:
            continue
        if other.tool == seen.tool:
            if same_call(other, seen, newest=newest, unread=unread):
                return other
            newest = newest and other_id is None
    return None


def with_report(recent: tuple[CallRecord, ...], call: CallRecord, second: CallRecord) -> tuple[CallRecord, ...]:
    """The records of ``recent``, after ``second`` was found to be another record of ``call``, which is one of them."""
    noted = call.with_report(second)
    return recent if noted is call else tuple([noted if one is call else one for one in recent])


def is_fuller(second: CallRecord, first: CallRecord) -> bool:
    """Whether the second record shows arguments that the first one hid."""
    return first.args_hash is None and second.args_hash is not None


def report_on(
    recent: tuple[CallRecord, ...],
    seen: CallRecord,
    earlier: CallRecord | None,
    usage: Usage | None = None,
    *,
    twice: bool,
) -> tuple[tuple[CallRecord, ...], bool, bool]:
    """Whether a record is evaluated. Of two instrumentations one may hide what the other one shows.

    The first time both records are evaluated. From then on the first one of a call waits for the second one, as long as
    the newest calls of the tool had both.

    Parameters:
        recent: records of the newest calls; earlier: the one among them of the same call, if there is one.
        usage: charged to the step already.
        twice: a first record in this trajectory has hidden what the second one showed.

    Returns:
        The records to compare later ones with; whether this one is dropped, since it says nothing more than an earlier
        one, or another one will say more; and whether the call was evaluated before, with what an earlier one showed.
    """
    if earlier is None:
        if not twice or seen.args_hash is not None or not _awaits_another(recent, seen):
            return recent, False, False
        return (*recent[1 - RECENT_CALLS :], seen._replace(usage=usage)), True, False
    if is_fuller(seen, earlier):
        return recent, False, not (twice and _awaits_another(recent, earlier))
    return with_report(recent, earlier, seen), True, True


def completed(step: StepRecord, earlier: CallRecord) -> StepRecord:
    """The fuller record of a call, with what only the one before it says: that it failed, the usage charged to it."""
    if earlier.usage is not None and step.usage is None:
        step = step._replace(usage=earlier.usage)
    return with_failure(step, earlier.outcome, step.error_class)


def with_failure(step: StepRecord, earlier: Outcome, error_class: str | None) -> StepRecord:
    """A step that failed with this class if an earlier record of its call says so."""
    if earlier != ERROR or step.outcome_type != SUCCESS:
        return step
    snapshot = step.state_snapshot_hash if step.stated else result_hash(ERROR, step.result)
    return step._replace(outcome_type=ERROR, error_class=error_class, state_snapshot_hash=snapshot)


def _awaits_another(recent: Sequence[CallRecord], seen: CallRecord) -> bool:
    """Whether a record that hides the arguments is followed by one that shows them, as of other calls of its tool."""
    return any(one.tool == seen.tool and one.args_hash is not None for one in recent)


def has_recovered(second: CallRecord, first: CallRecord) -> bool:
    """Whether the first record is of an execution that failed, and the second of a later one that did not."""
    return first.outcome == ERROR and second.outcome != ERROR and first.end <= second.start


def _executed_before(first: CallRecord, second: CallRecord) -> bool:
    """Whether the first record is of an earlier execution of the request of the second one.

    Some instrumentations read the id from the result: a call that failed has none.
    """
    if first.call_id != second.call_id and (first.call_id is not None or first.outcome != ERROR):
        return False
    one, other = first.run.partition("/")[0], second.run.partition("/")[0]
    if one != other and ":" in one and ":" in other:  # agents beside each other may number their calls alike
        return False
    return first.end <= second.start and _same_arguments(first, second)


def _overlap(first: CallRecord, second: CallRecord) -> bool:
    return second.start <= first.end and first.start <= second.end


def _completes(first: CallRecord, second: CallRecord) -> bool:
    """Whether the second record shows what the first one hides, which has the id that the second one lacks.

    A framework's own span stays around the tool, whose code another instrumentation wraps.
    """
    if first.call_id is None or second.call_id is not None or first.args_hash is not None or second.args_hash is None:
        return False
    within = first.start <= second.start and second.end <= first.end
    return within and first.dialect != second.dialect and not _has_reported(first, second)


def _has_reported(first: CallRecord, second: CallRecord) -> bool:
    """Whether the instrumentation of ``second`` has reported the call of ``first`` before, in the same trace."""
    source = (second.dialect, second.trace_id)
    return source == (first.dialect, first.trace_id) or source in first.again


def _are_alike(first: CallRecord, second: CallRecord) -> bool:
    """Whether nothing distinguishes two records: neither arguments nor result, nor the agent instance."""
    if first.result != second.result and None not in (first.result, second.result):
        return False
    if not _same_arguments(first, second) and None not in (first.args_hash, second.args_hash):
        return False
    one, other = first.run.partition("/")[0], second.run.partition("/")[0]
    return one == other or not one or not other


def _resumed(first: CallRecord, second: CallRecord) -> bool:
    """A run that was interrupted goes on in a new trace, and makes calls again that it had made before."""
    if first.trace_id is None or second.trace_id is None or first.trace_id == second.trace_id:
        return False
    return (first.result == second.result or first.result is None) and _same_arguments(first, second)


def without_id(recent: Iterable[CallRecord], call: CallRecord) -> CallRecord | None:
    """The oldest record without a call id that stands for the call a gate has read; None if there is none."""
    for seen in recent:
        if seen.call_id is None and seen.tool == call.tool and _same_arguments(seen, call):
            return seen
    return None


def reporting(steps: Iterable[StepRecord], call: StepRecord) -> StepRecord | None:
    """The step that a span has reported for the call a gate has read; None if there is none.

    Parallel calls may share an id: of several the first with these arguments, if there is one.
    """
    found: StepRecord | None = None
    for step in steps:
        by_id = step.call_id is not None and call.call_id is not None
        is_equal = step.tool_args_hash == call.tool_args_hash
        if step.call_id == call.call_id if by_id else is_equal and step.tool_name == call.tool_name:
            if is_equal:
                return step
            found = found or step
    return found


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
    return chars_of(args, _KEPT_ARGS_CHARS) <= _KEPT_ARGS_CHARS and len(text_of(args)) <= _KEPT_ARGS_CHARS
