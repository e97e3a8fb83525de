"""The trajectory cursor: a bounded record of what happened at every boundary of an agent's work. Pure.

It advances on what was observed (a result, a denial), never on what a model says. Sources may show a call in any order
and several times: each boundary of a call is entered once, and the report is the same.

    >>> cursor = Cursor()
    >>> for tool in "ABC":
    ...     _ = cursor.append("proposal", tool=tool), cursor.append("result", tool=tool, outcome="success")
    >>> report = cursor.report(required=["A", "D"])
    >>> report.cursor, report.last_entry, report.path, report.missing_required_actions
    ('task.1.step.3', 'result(tool=C, outcome=success, task=1)', {'': ('A', 'B', 'C')}, ('D',))
"""

from __future__ import annotations

import copy
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trajectory_guard.core.cursor.boundary import (
    ALLOWED,
    ASKED,
    DECISION,
    DENIAL,
    EXECUTION,
    FEEDBACK,
    KINDS,
    PERSON,
    PROPOSAL,
    RESULT,
    RETRY,
    Boundary,
    Call,
    EntryKind,
    Sighting,
    Task,
    batch_digest,
    is_free,
    overlap,
    shown_by,
)
from trajectory_guard.core.cursor.plain_form import read_plain, write_plain
from trajectory_guard.core.cursor.report import CursorReport, View, are_parallel, missing_of, report_of, text_of
from trajectory_guard.core.explain.interventions import args_excerpt
from trajectory_guard.core.fingerprints import args_hash, text_digest
from trajectory_guard.core.steps import DENIED, ERROR, INTERRUPTED, OUTCOMES

DEFAULT_ENTRIES: Final = 64
LEAST_ENTRIES: Final = 8
DEFAULT_TEXT_CHARS: Final = 1_200
_MAX_TASKS: Final = 32
_MAX_GONE: Final = 256
_MAX_BATCHES: Final = 32
MAX_PARALLEL: Final = 1_024
"""Calls that are kept above the size, while a model message that requested them still waits for answers."""
_DIGEST_CHARS: Final = 16
_MAX_SINGLE_CHARS: Final = 512


def digests_of(args: Any, hashed: str | None = None) -> tuple[str, str]:
    """Digest of arguments, and of the only one if it is a text, by which calls are compared; empty if unknown.

    Parameters:
        hashed: ``args_hash`` of the arguments, if it is known already.
    """
    hashed = hashed or args_hash(args)
    only = next(iter(args.values())) if isinstance(args, dict) and len(args) == 1 else None
    single = text_digest(only) if isinstance(only, str) and len(only) <= _MAX_SINGLE_CHARS else ""
    return hashed[:_DIGEST_CHARS] if hashed else "", single


class Cursor:
    """The record of one trajectory. Not thread-safe: the board hands out copies.

    Parameters:
        size: entries, and calls, that are kept; the oldest are dropped and counted. Calls of a model message that waits
            for answers stay until they are in, ``MAX_PARALLEL`` of them.

    Attributes:
        entries: the newest entries, oldest first; dropped: the number of those before.
        index: ordinal of the next entry.
        calls: the newest calls by number; tasks: the newest tasks by label.
        gone_batches: digests of the newest model messages of which a call has been dropped.
        last: the entry that advanced the cursor last, None before the first outcome.

    Raises:
        ValueError: ``size`` is too small.
    """

    def __init__(self, size: int = DEFAULT_ENTRIES) -> None:
        if size < LEAST_ENTRIES:
            raise ValueError(f"size: {size!r} is below {LEAST_ENTRIES}")
        self.size = size
        self.entries: deque[Boundary] = deque(maxlen=size)
        self.index = self.call_count = self.task_count = 0
        self.calls: dict[int, Call] = {}
        self.gone_batches: list[str] = []
        self._blocking: Call | None = None  # the first open call of the message because of which no call can be dropped
        self._numbers: dict[str, list[int]] = {}  # of calls by their id, ascending; those without one under ""
        self.tasks: dict[str, Task] = {}
        self.last: Boundary | None = None

    @property
    def dropped(self) -> int:
        """Entries that are no longer kept."""
        return self.index - len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cursor) and self.to_plain() == other.to_plain()

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Cursor:
        """An independent copy."""
        return copy.deepcopy(self)

    # --- by hand -----------------------------------------------------------------------------------------------

    def append(
        self, kind: EntryKind, *, tool: str = "", call: str = "", args: Any = None, task: str = "",
        agent: str | None = None, outcome: str = "", by: str = "", note: str = "",
    ) -> Boundary | None:  # fmt: skip
        """Enter a boundary of an application's own loop; None if it is known of this call.

        A call without an id is the oldest open one of that tool; a proposal without an id begins a call.

        Parameters:
            kind, outcome, by, note: as in ``Boundary``. A result implies the execution, a denial the decision.
            args: arguments, to recognise a retry.

        Raises:
            ValueError: the kind or the outcome of a result is unknown.
        """
        if kind not in KINDS:
            raise ValueError(f"kind: {kind!r} is none of {', '.join(KINDS)}")
        if kind == RESULT and outcome not in OUTCOMES:
            raise ValueError(f"outcome: {outcome!r} is none of {', '.join(OUTCOMES)}")
        if kind == FEEDBACK:
            return self.feedback(outcome, by=by, note=note, task=task)
        shown = args_excerpt(args) if args is not None else ""
        seen = Sighting(tool, "", call, call, *digests_of(args), shown, task, agent=agent)
        one = self._begin(seen) if kind == PROPOSAL and not call else self.find(seen) or self._begin(seen)
        if kind == PROPOSAL:
            return self.propose(one)
        if kind == DECISION:
            return self.decide(one, outcome, by=by, note=note)
        if kind == EXECUTION:
            return self._execute(one)
        if kind == RETRY:
            return self._enter(RETRY, one, outcome=outcome, by=by, note=note)
        return self.finish(one, DENIED if kind == DENIAL else outcome, by=by, note=note)

    # --- calls -------------------------------------------------------------------------------------------------

    def sight(self, seen: Sighting) -> Call:
        """The call that a source shows, created if it is new; a message knows its task best."""
        call = self.find(seen)
        if call is None:
            return self._begin(seen)
        is_known = call.seen.get(seen.source) == seen.key
        if seen.source:
            call.seen[seen.source] = seen.key
        if seen.call_id and not call.call_id:
            self._unlist(call)
            call.call_id = seen.call_id
            self._list(call)
        call.single = call.single or seen.single
        if seen.source == "messages" and not call.proposed:
            call.digest = seen.digest or call.digest
        call.digest = call.digest or seen.digest
        call.args = call.args or seen.args
        if seen.batch and (seen.source == "messages" or "messages" not in call.seen):
            call.batch = seen.batch
        call.agent, call.live = call.agent or seen.agent, call.live or seen.live
        if seen.source == "messages" and not is_known:  # a parent may repeat the messages of the agents below it
            self._move(call, seen)
        if seen.source == "messages":
            self.tasks[call.task].requested_by(seen.batch)
        return call

    def find(self, seen: Sighting) -> Call | None:
        """The call that a source shows; None if it is new."""
        if seen.call_id:
            known = shown_by((self.calls[number] for number in reversed(self._numbers.get(seen.call_id, ()))), seen)
            if known is not None:
                return known
        numbers = self._numbers.get("", ()) if seen.call_id else self.calls
        tool, others = seen.tool.casefold(), (self.calls[number] for number in numbers)
        return next((call for call in others if is_free(call, seen) and call.tool.casefold() == tool), None)

    def _list(self, call: Call) -> None:
        insort(self._numbers.setdefault(call.call_id, []), call.number)

    def _unlist(self, call: Call) -> None:
        numbers = self._numbers[call.call_id]
        numbers.remove(call.number)
        if not numbers:
            del self._numbers[call.call_id]

    def _begin(self, seen: Sighting) -> Call:
        self.call_count += 1
        call = Call(
            self.call_count, seen.tool, seen.call_id, seen.digest, seen.single, seen.args, seen.task, seen.agent,
            seen.batch, {seen.source: seen.key} if seen.source else {}, self.index, live=seen.live,
        )  # fmt: skip
        self._task(seen.task, seen.instance).requested_by(seen.batch)
        before = self._last_equal(call)
        self.calls[call.number] = call
        self._list(call)
        if before is not None and before.outcome in (ERROR, DENIED) and not overlap(before, seen):
            call.retries = [before.outcome, before.by]
        self._shrink(call)
        return call

    def _shrink(self, changed: Call) -> None:
        """Drop the calls above the size. Not looked for again while the call that blocked the others is still open."""
        blocking, most = self._blocking, self.size + MAX_PARALLEL
        is_blocked = blocking is not None and not blocking.outcome and blocking.batch == changed.batch
        while len(self.calls) > (most if is_blocked else self.size) and (number := self._over()) is not None:
            call = self.calls.pop(number)
            self._unlist(call)
            self._forget(call)
            batch = batch_digest(call.batch)
            if batch and batch not in self.gone_batches:
                self.gone_batches = [*self.gone_batches, batch][-_MAX_BATCHES:]

    def _over(self) -> int | None:
        """The call to drop next: the oldest with an outcome; of one message none before an open one that precedes it.

        Open calls of the newest messages of their task are about to be answered, and stay above the size.
        """
        waiting: dict[str, Call] = {}
        left: int | None = None
        for number, call in self.calls.items():
            if call.outcome:
                if call.batch not in waiting:
                    return number
            elif call.batch in self.tasks[call.task].batches:
                waiting.setdefault(call.batch, call)
            elif left is None:
                left = number
        self._blocking = next(iter(waiting.values()), None)
        if left is None and len(self.calls) > self.size + MAX_PARALLEL:
            return next(iter(self.calls))
        return left

    def _last_equal(self, call: Call) -> Call | None:
        digest = call.digest
        for other in reversed(self.calls.values()) if digest else ():
            if (
                other.digest == digest
                and other.signature == call.signature
                and other.task == call.task
                and not are_parallel(other, call.batch)
            ):
                return other
        return None

    def _forget(self, call: Call) -> None:
        """Keep the tool of an executed call: a required action does not become missing because it was long ago."""
        task = self.tasks.get(call.task)
        if task is None or not call.executed:
            return
        signature = list(call.signature) if call.signature is not None else []
        task.gone_repeats += bool(signature) and signature == task.gone_last
        task.gone_last = signature
        task.gone.append([call.tool, call.succeeded])
        if len(task.gone) > _MAX_GONE:
            later = [tuple(one) for one in task.gone[1:]]
            double = (at for at, one in enumerate(task.gone) if tuple(one) in later[at:])
            del task.gone[next(double, 0)]

    # --- boundaries --------------------------------------------------------------------------------------------

    def propose(self, call: Call) -> Boundary | None:
        """Enter that the model requested the call."""
        if call.proposed:
            return None
        call.proposed = True
        entry = self._enter(PROPOSAL, call, note=call.args)
        self._enter_retry(call)
        return entry

    def decide(self, call: Call, outcome: str, *, by: str = "", note: str = "") -> Boundary | None:
        """Enter that somebody allowed or denied the call, or that a person is asked."""
        if call.decision == outcome or (call.outcome and outcome != DENIED):
            return None
        call.decision = outcome
        return self._enter(DECISION, call, outcome=outcome, by=by, note=note)

    def edit(self, call: Call, seen: Sighting, *, by: str) -> None:
        """Enter that another call was allowed in place of the one that the model requested."""
        if (call.tool, call.digest) == (seen.tool, seen.digest):
            return
        call.tool, call.digest, call.single, call.args = seen.tool, seen.digest, seen.single, seen.args
        call.decision = ALLOWED
        self._enter(DECISION, call, outcome=ALLOWED, by=by, note=f"edited: {seen.args}" if seen.args else "edited")

    def repeat(self, call: Call, *, by: str) -> None:
        """Enter that a call which has failed is made again, without the model."""
        if call.outcome != ERROR:
            return
        self._enter(RETRY, call, outcome=call.outcome, by=by)
        call.outcome, call.note, call.executed = "", "", False
        self.tasks[call.task].position -= 1

    def finish(
        self, call: Call, outcome: str, *, by: str = "", note: str = "", executed: bool = True, end: float = 0.0
    ) -> Boundary | None:
        """Enter the outcome of the call, with the boundaries that this implies; None if it is known.

        Parameters:
            executed: the tool ran; otherwise somebody answered in its place.
            end: end of the call in seconds.
        """
        if call.outcome:
            return None
        if outcome == INTERRUPTED:
            if call.interrupted:
                return None
            call.interrupted = True
            return self._enter(EXECUTION, call, outcome=INTERRUPTED)
        task, call.end = self.tasks[call.task], end
        self._enter_retry(call)
        if outcome == DENIED:
            self.decide(call, DENIED, by=by)
            call.executed = False
        elif executed:
            if call.decision == ASKED:
                self.decide(call, ALLOWED, by=PERSON)
            self._execute(call)
        call.outcome, call.by, call.note = outcome, by, note
        task.position += 1
        kind = DENIAL if outcome == DENIED else RESULT
        self.last = entry = self._enter(kind, call, outcome="" if outcome == DENIED else outcome, by=by, note=note)
        if call.number not in self.calls:  # dropped on its way
            self._forget(call)
        self._shrink(call)
        return entry

    def _execute(self, call: Call) -> Boundary | None:
        if call.executed:
            return None
        call.executed = True
        self._enter_retry(call)
        return self._enter(EXECUTION, call)

    def _enter_retry(self, call: Call) -> None:
        if call.retries:
            outcome, by = call.retries
            call.retries = []
            self._enter(RETRY, call, outcome=outcome, by=by)

    def feedback(self, outcome: str, *, by: str, note: str = "", task: str = "", instance: str = "") -> Boundary:
        """Enter what was said to the agent: a nudge, a stop, a person's words."""
        self._task(task, instance)
        entry = Boundary(FEEDBACK, self.index, task, outcome=outcome, by=by, note=note)
        self._add(entry)
        return entry

    def _enter(self, kind: str, call: Call, *, outcome: str = "", by: str = "", note: str = "") -> Boundary:
        entry = Boundary(kind, self.index, call.task, call.name, call.tool, call.agent, outcome, by, note)
        self._add(entry)
        return entry

    def _add(self, entry: Boundary) -> None:
        self.entries.append(entry)
        self.index += 1

    # --- tasks -------------------------------------------------------------------------------------------------

    def _task(self, label: str, instance: str) -> Task:
        task = self.tasks.get(label)
        if task is None:
            self.task_count += 1
            task = self.tasks[label] = Task(label, instance, self.task_count, self.index)
            if len(self.tasks) > _MAX_TASKS:
                self._drop_task(label)
        else:
            self.tasks[label] = self.tasks.pop(label)  # the one used last
        return task

    def _drop_task(self, new: str) -> None:
        """Drop the task used longest ago: one of an agent below, if there is one, for the agent at the top may wait."""
        below = (label for label, task in self.tasks.items() if task.instance and label != new)
        oldest = next(below, next(iter(self.tasks)))
        del self.tasks[oldest]
        for call in [call for call in self.calls.values() if call.task == oldest]:
            del self.calls[call.number]
            self._unlist(call)

    def _move(self, call: Call, seen: Sighting) -> None:
        """Move a call to the task that the messages name, and behind the calls that were requested before it."""
        before = self.tasks.get(call.task)
        if call.task != seen.task and before is not None:
            old, call.task = call.task, seen.task
            after = self._task(seen.task, seen.instance)
            after.began = min(after.began, call.first)
            after.position += bool(call.outcome)
            before.position -= bool(call.outcome)
            self.entries = deque(
                (one._replace(task=call.task) if (one.task, one.call) == (old, call.name) and one.index >= call.first
                 else one for one in self.entries), maxlen=self.size,
            )  # fmt: skip
            if self.last is not None and (self.last.task, self.last.call) == (old, call.name):
                self.last = self.last._replace(task=call.task)
            if not any(one.task == old for one in self.calls.values()) and not before.gone:
                self.task_count -= max(after.number, before.number) == self.task_count  # it was this task all the time
                after.number, after.began = min(after.number, before.number), min(after.began, before.began)
                self.tasks.pop(old, None)
        if not call.proposed:  # requested before it ran: the order of requests is that of the messages
            del self.calls[call.number]
            self._unlist(call)
            self.call_count += 1
            call.number = self.call_count
            self.calls[call.number] = call
            self._list(call)

    def begin_task(self, label: str, instance: str) -> Task:
        """The task of an agent instance in a user turn, created if it is new."""
        return self._task(label, instance)

    def merge(self, other: Cursor) -> None:
        """Take over the calls of another cursor, which turned out to be of the same trajectory."""
        for call in other.calls.values():
            task = other.tasks[call.task]
            source, key = next(iter(call.seen.items()), ("", ""))
            own = self.sight(
                Sighting(call.tool, source, key, call.call_id, call.digest, call.single, call.args, task.label,
                         task.instance, call.agent, call.batch, live=call.live)
            )  # fmt: skip
            own.seen.update(call.seen)
            if call.proposed:
                self.propose(own)
            if call.outcome:
                self.finish(own, call.outcome, by=call.by, note=call.note, executed=call.executed, end=call.end)

    # --- reading -----------------------------------------------------------------------------------------------

    def report(self, required: Sequence[str] = (), *, ordered: bool = False, task: str | None = None) -> CursorReport:
        """Where the trajectory stands.

        Parameters:
            required: tools that have to succeed, in the newest task at the top or below it; ordered: in this order.
            task: label of the only task to report on, required actions included; None: all of them.
        """
        view = self._view()
        if task is not None:
            view = view.of([task])
        return report_of(view, required, ordered=ordered, current=view if task is not None else view.current())

    def missing(self, required: Sequence[str]) -> tuple[str, ...]:
        """The required tools that have not succeeded in the newest task at the top or below it."""
        return missing_of(self._view().current(), required, ordered=False)

    def text(
        self, limit_chars: int = DEFAULT_TEXT_CHARS, *, required: Sequence[str] = (), redact: bool = False,
        task: str | None = None,
    ) -> str:  # fmt: skip
        """A compact text for a model: what was refused, failed, is open, was done, and which actions are missing.

        Parameters:
            limit_chars: characters at most, 200 at least.
            required, task: as for ``report``; by default the newest task at the top, and those below it.
            redact: names only, no arguments and no reasons.
        """
        view = self._view()
        view = view.current() if task is None else view.of([task])
        missing = missing_of(self._view().current(), required, ordered=False)
        return text_of(view, missing, limit_chars, redact=redact)

    def _view(self) -> View:
        tasks = sorted(self.tasks.values(), key=lambda task: task.number)
        return View(list(self.calls.values()), {task.label: task for task in tasks}, self.last, self.dropped)

    # --- saving ------------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Versioned, JSON-able snapshot; ``from_plain`` restores it, in any process."""
        return write_plain(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Cursor:
        """Restore ``to_plain``.

        Raises:
            StateFormatError: it is no snapshot, or of another version; the key is named.
        """
        fields = read_plain(plain, least=LEAST_ENTRIES, above=MAX_PARALLEL)
        cursor = cls(fields.pop("size"))
        cursor.entries.extend(fields.pop("entries"))
        vars(cursor).update(fields)
        for call in cursor.calls.values():
            cursor._list(call)
        return cursor
