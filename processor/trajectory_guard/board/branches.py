"""Branches of a thread: checkpoints that are resumed more than once, as in time travel and "regenerate".

And graph runs side by side in one trace, whose spans do not tell which run they belong to.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from trajectory_guard.board.entries import MAX_READ, BegunAnew, Entry, ReadCall
from trajectory_guard.board.entry_table import EntryTable
from trajectory_guard.board.flags import GateRun
from trajectory_guard.board.quality import clear_flags
from trajectory_guard.core.calls import call_key
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.core.tracking.scope import ASKED, label_of
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import looks_again

_MAX_REQUESTS: Final = 4_096
_MAX_TRACES: Final = 1_024
_MAX_NESTED: Final = 4_096
_MAX_TURNS: Final = 4_096


_DECIDING: Final = 64
"""Locks, each for the trajectories whose names have one remainder."""
_DECIDING_S: Final = 0.5
"""A decision takes a few milliseconds. Where one takes longer, as in a function of the application that waits for
another thread, the next goes on without its turn rather than wait for ever."""


class _OneAtATime:
    """A context in which no other thread decides on a trajectory; it waits for ``_DECIDING_S`` at most."""

    __slots__ = ("_lock", "_taken")

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._taken = self._lock.acquire(timeout=_DECIDING_S)

    def __exit__(self, *_: object) -> None:
        if self._taken:
            self._lock.release()


class Branches:
    """What a board knows of user turns, and takes trajectories back to a checkpoint. Thread-safe.

    Attributes:
        requests: label of the model turn by trajectory (or trace) and call id, as gates have seen the calls requested.
        read_below: newest calls that a gate has read, by trajectory and instance, of agents in sub-graphs.
        entered_below: place and task in which a gate has first seen them, likewise; see ``starts_below``.
        newest: label of the user turn at the top that began last, by trajectory: a first one begins before its entry.
        begun: traces in which a gate has seen a graph run begin; crowded: those in which several have begun.
    """

    def __init__(self, table: EntryTable) -> None:
        self._table = table
        self.begun: BoundedTable[str, bool] = BoundedTable(_MAX_TRACES)
        self.crowded: BoundedTable[str, bool] = BoundedTable(_MAX_TRACES)
        self.requests: BoundedTable[tuple[str, bytes], str] = BoundedTable(_MAX_REQUESTS)
        self.read_below: BoundedTable[tuple[str, str], deque[ReadCall]] = BoundedTable(_MAX_NESTED)
        self.entered_below: BoundedTable[tuple[str, str], tuple[str, str]] = BoundedTable(_MAX_NESTED)
        self.newest: BoundedTable[str, str] = BoundedTable(_MAX_TURNS)
        now_and_after_fork(self._renew_locks)

    def _renew_locks(self) -> None:
        self._deciding = [threading.RLock() for _ in range(_DECIDING)]

    def deciding(self, trajectory_id: str) -> AbstractContextManager[None]:
        """A context for a gate that goes back to its checkpoint and decides there: other threads wait for their turn.

        Graph runs of one thread id that keep nothing between them take the board back and forth. A decision has to see
        the past of its own run.
        """
        return _OneAtATime(self._deciding[hash(trajectory_id) % _DECIDING])

    def last_read(self, trajectory_id: str) -> ReadCall | None:
        """The newest call that a gate has read from the messages of the agent at the top; None before the first."""
        entry = self._table.find(trajectory_id)
        return entry.read_calls[-1] if entry is not None and entry.read_calls else None

    @looks_again
    def stop_again(self, trajectory_id: str, newest: str) -> None:
        """Raise the flag of the last stop once more: the run is resumed right before it.

        Parameters:
            newest: step id of the newest call of that run; nothing is raised if the stop was at another one.
        """
        entry = self._table.find(trajectory_id)
        if entry is None or entry.stopped_at is None or entry.stopped_at[0] != newest:
            return
        with entry.lock:
            flag = entry.flag_to_raise(entry.stopped_at[1].run)
            flag.pending = flag.last = entry.stopped_at[1]

    def turn_in(self, trajectory_id: str, instance: str) -> str | None:
        """Label of the current user turn of an agent instance, as last reported by a gate."""
        entry = self._table.find(trajectory_id)
        if entry is None:
            return None
        return entry.turns_read[-1] if not instance and entry.turns_read else entry.state.turns.get(instance)

    @looks_again
    def note_turn(
        self, trajectory_id: str, turn: str, trace_id: str | None = None, *, given_up: bool = False
    ) -> None:  # fmt: skip
        """Remember the user turn that begins at the top, before anything happens in it.

        The turn before it may have been given up before a gate decided anything: spans do not go on with that one. In a
        new trace they begin a run, which the gate takes over; in a trace around several turns they belong to this one.

        Parameters:
            trace_id: of the trace in which it begins, None if unknown.
            given_up: the turn before has no answer, or is unknown.
        """
        entry = self._table.find(trajectory_id)
        with self._table.lock:
            goes_on = self.newest.get(trajectory_id) == turn  # the model is only asked once more
            self.newest[trajectory_id] = turn
        if entry is not None:
            with entry.lock:
                entry.note_turn(turn)
                if not goes_on and (given_up or trace_id in entry.gates):
                    entry.follow("", GateRun("", turn))
                    if trace_id is not None and trace_id in self.begun:
                        entry.follow(trace_id, GateRun("", turn))

    def run_of(self, trajectory_id: str, instance: str) -> str:
        """Label of the current run of an agent instance, as last reported by a gate."""
        return label_of(instance, self.turn_in(trajectory_id, instance))

    @looks_again
    def known_turns(self, trajectory_id: str, turn: str) -> tuple[Collection[str], Collection[str]]:
        """Labels of the user turns that gates have begun, and step ids of the known calls of ``turn`` at the top."""
        entry = self._table.find(trajectory_id)
        if entry is None:
            return (), ()
        with entry.lock:
            requested = entry.requested[1] if entry.requested[0] == turn else ()
            read = (one.step_id for one in entry.read_calls if one.turn == turn)
            return entry.turns_read, {*read, *requested}

    def note_requested(self, trajectory_id: str, run: str, step_ids: Collection[str]) -> None:
        """Remember the calls that the agent at the top has requested last; those of other runs are left out."""
        entry = self._table.find(trajectory_id)
        if entry is not None and run == self.run_of(trajectory_id, ""):
            entry.requested = (self.turn_in(trajectory_id, "") or "", tuple(step_ids))

    def note_batch(self, names: Iterable[str | None], call_ids: Sequence[str], label: str) -> None:
        """Remember the calls of one model turn before they run: their spans do not tell which turn they belong to.

        Parameters:
            names: ids of the trajectory and of the trace in which the model asked; None if unknown.
            label: of the turn, as steps have it that are read from the messages.
        """
        for name in names:
            if name is None:
                continue
            with self._table.lock:
                for call_id in call_ids:
                    self.requests[name, call_key(call_id)] = label
            self._make_room(name, len(call_ids))

    @looks_again
    def _make_room(self, name: str, calls: int) -> None:
        entry = self._table.find(name)
        if entry is not None:
            with entry.lock:
                entry.make_room(calls)

    def in_batch(self, step: StepRecord) -> StepRecord:
        """The step with the label of its model turn if a gate has seen the call requested, else the very same one."""
        if step.call_id is None:
            return step
        key = call_key(step.call_id)
        label = self.requests.get((step.trajectory_id, key))
        if label is None:
            label = self.requests.get((self._table.resolve_alias(step.trajectory_id), key))
        if label is None and step.trace_id is not None:
            label = self.requests.get((step.trace_id, key))
        return step if label is None else step._replace(batch=label)

    @looks_again
    def begin_anew(
        self, trajectory_id: str, turn: str, part: str, newest: str, *, only_first: bool = False
    ) -> None:  # fmt: skip
        """Record that the user turn at the top starts over: its message was kept or edited, its steps were removed.

        Parameters:
            turn: label of the turn; part: what makes the label of its new run another one.
            newest: step id of the newest of its calls that are gone; empty if unknown.
            only_first: change nothing if the turn was begun anew before.
        """
        entry = self._table.entry(trajectory_id)
        with entry.lock:
            before = entry.begun if entry.begun is not None and entry.begun.turn == turn else None
            if before is not None and only_first:
                return
            gone = (*(before.gone if before is not None else ()), *((newest,) if newest else ()))
            entry.begun = BegunAnew(turn, part, gone[-MAX_READ:])

    def begun_anew(self, trajectory_id: str) -> BegunAnew | None:
        """The user turn at the top that started over last, None if none did."""
        entry = self._table.find(trajectory_id)
        return entry.begun if entry is not None else None

    @looks_again
    def go_back(self, trajectory_id: str, data: bytes | None, kept: Collection[str]) -> None:
        """Take a trajectory back to a checkpoint.

        Spans may have reported calls of the new branch already: the gate reads them from its messages.

        Parameters:
            data: the state saved in that checkpoint; None if nothing had been evaluated there.
            kept: step ids of the calls that this state covers.

        Raises:
            StateFormatError: the bytes cannot be read; nothing changes.
        """
        entry = self._table.find(trajectory_id)
        if entry is None:
            return
        engine = self._table.engine
        saved = engine.load_state(data) if data is not None else engine.new_state(entry.trajectory_id)
        with entry.lock:
            if data is None:
                saved.noise = entry.state.noise  # learned about the tools, whatever the branch
            entry.turns_read, entry.begun = (), None
            entry.note_turn(saved.turns.get("", ASKED))
            entry.state, entry.saved_index, entry.replay = saved, saved.index, []
            entry.reported = min(entry.reported, saved.index)
            left = [one for one in entry.read_calls if one.step_id not in kept]
            entry.read_calls = tuple([one for one in entry.read_calls if one not in left])
            for one in left:
                entry.forget_read(one)
            entry.calls.clear()
            entry.call_runs.clear()
            entry.recent = ()
            entry.gates.clear()
            if (turn := saved.turns.get("")) is not None:
                entry.follow("", GateRun("", turn))  # over for the gate: spans in a new trace do not go on with it
            entry.awaiting_state.clear()
            clear_flags(entry)

    def note_read_below(self, trajectory_id: str, instance: str, read: Sequence[ReadCall]) -> None:
        """Remember the newest calls that a gate has read of a nested agent."""
        known = self.read_below.get((trajectory_id, instance))
        if known is None:
            known = self.read_below[trajectory_id, instance] = deque(maxlen=MAX_READ)
        known.extend(read)

    def starts_below(self, trajectory_id: str, instance: str, place: str, task: str) -> bool:
        """Note the task that a gate decides on; whether the sub-graph has started from scratch since the one before.

        Parameters:
            place: of the task in its sub-graph. In one execution no other task has it, and none keeps its name in the
                next, unless that goes on from a checkpoint.
        """
        first = self.entered_below.get((trajectory_id, instance))
        if first is not None and (first[0] != place or first[1] == task):
            return False
        self.entered_below[trajectory_id, instance] = (place, task)
        return first is not None

    def go_back_below(self, trajectory_id: str, instance: str) -> None:
        """Forget the runs of an agent in a sub-graph: it starts from scratch, or from a checkpoint before them."""
        self._end_below(trajectory_id, instance, self.read_below.pop((trajectory_id, instance), ()))

    @looks_again
    def _end_below(self, trajectory_id: str, instance: str, left: Iterable[ReadCall]) -> None:
        entry = self._table.find(trajectory_id)
        if entry is None:
            return
        with entry.lock:
            for run in {*entry.state.runs, *entry.state.model_calls, *entry.flags}:
                if run == instance or run.startswith(f"{instance}/"):
                    self._table.engine.end_run(entry.state, run)
                    entry.state.runs.pop(run, None)
                    entry.flags.pop(run, None)
                    for step in entry.awaiting_of(run):
                        entry.awaiting_state.remove(step)
            for one in left:  # models that number their calls anew give them the same ids
                entry.forget_read(one)

    # --- graph runs side by side ----------------------------------------------------------------------------------

    def note_begin(self, trace_id: str) -> None:
        """Record that a graph run, or a user turn of one, begins in a trace."""
        with self._table.lock:
            (self.crowded if trace_id in self.begun else self.begun)[trace_id] = True

    def leaves(self, entry: Entry, step: StepRecord) -> bool:
        """Whether a call is left to a gate, which reads it from its messages and knows more of it than its span shows.

        In a trace with several graph runs it may be that of any of them.
        """
        if step.evidence is not Evidence.FULL and step.tool_name.casefold() in entry.message_tools:
            return True
        if step.run or step.trace_id not in self.crowded:
            return False
        return entry.left_to_gates or step.trajectory_id == step.trace_id

    def set_apart(
        self, trajectory_id: str, instance: str, trace_id: str, answered: Iterable[str], *, begins: bool
    ) -> None:  # fmt: skip
        """Leave the tool calls of a trace to the gates if it holds several graph runs at the same time.

        Spans name the run of a call only where they name the agent instance. Without it, healthy runs side by side
        look like one run that repeats itself, and the gate that decides first would act on it. The sign of it is a run
        of calls from spans of which the gate's messages contain only some. These calls are removed, and from then on
        each gate reads its own from its messages.

        Parameters:
            instance: the agent instance of the gate; trace_id: in which it decides.
            answered: ids of the calls whose results are in the messages of the gate's graph.
            begins: the run has begun without a gate; calls of others show that it is not alone.
        """
        if begins:
            self.note_begin(trace_id)
        elif trace_id not in self.crowded:
            return
        if self._table.is_shared(trace_id):  # by threads: the steps that stayed with the trace are anybody's
            self._leave_to_gates(trace_id)
        if self._remove_mixed(trajectory_id, instance, tuple(answered)):
            with self._table.lock:
                self.crowded[trace_id] = True

    @looks_again
    def _leave_to_gates(self, trace_id: str) -> None:
        with (entry := self._table.entry(trace_id)).lock:
            entry.left_to_gates = True

    @looks_again
    def _remove_mixed(self, trajectory_id: str, instance: str, answered: Collection[str]) -> bool:
        """Remove the calls of a run of which only some were answered; whether there is such a run."""
        entry = self._table.find(trajectory_id)
        if entry is None or entry.left_to_gates:
            return False
        with entry.lock:
            unread = [key for key in (entry.calls[entry.calls.start + at] for at in range(len(entry.calls))) if key]
            if not unread:
                return False
            own = Counter(call_key(str(one)) for one in answered)
            runs = {run for key in unread if key in own for run in entry.runs_of(key)}
            runs.add(label_of(instance, entry.state.turns.get(instance)))
            mixed = [key for key in unread if not runs.isdisjoint(entry.runs_of(key))]
            if Counter(mixed) <= own:  # counted, for the models of several runs may number their calls alike
                return False
            entry.left_to_gates, entry.replay = True, []
            entry.discarded += len(own.keys() & mixed)
            entry.recent = tuple([seen for seen in entry.recent if seen.run not in runs])
            for key in mixed:
                entry.calls.forget(key)
                entry.call_runs.pop(key, None)
            for run in runs:
                self._table.engine.end_run(entry.state, run)
                entry.state.runs.pop(run, None)
                entry.flags.pop(run, None)
        return True
