"""The record of each trajectory of a board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trajectory_guard.board.flags import GateRun
from trajectory_guard.board.given import Given
from trajectory_guard.board.resting import RestingState
from trajectory_guard.core.calls import RECENT_CALLS, CallRecord, call_key, has_recovered, reporting, without_id
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.history import WIDTH, Ring
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import INTERRUPTED, StepRecord
from trajectory_guard.core.tracking.scope import ASKED, are_siblings, instance_in, run_label
from trajectory_guard.core.tracking.tables import BoundedTable

if TYPE_CHECKING:
    from trajectory_guard.core.cursor.cursor import Cursor
    from trajectory_guard.core.quality import TrajectoryQuality

_CALL_IDS: Final = 32
_SPAN_CALL_IDS: Final = 128
_CALL_RUNS: Final = 64
_MAX_ROOM: Final = 1_024
"""Calls whose ids are remembered per trajectory, however many a model turn has."""
_MAX_AWAITING: Final = 32
_MAX_TOOLS: Final = 64
MAX_INSTANCES: Final = 32
_NO_LABEL: Final = ("",)
MAX_READ: Final = 32


class RunFlag:
    """The flag of one run.

    Attributes:
        pending: the strongest verdict since the flag was taken last.
        nudge: the nudge that became due since then.
        last: the newest verdict with a finding.
        expired: the trace of a pending stop has ended: the stop concerns no later request.
    """

    __slots__ = ("expired", "last", "nudge", "pending")

    def __init__(self) -> None:
        self.pending: Verdict | None = None
        self.nudge: Verdict | None = None
        self.last: Verdict | None = None
        self.expired = False

    def raise_for(self, verdict: Verdict) -> None:
        """Raise the flag for a verdict with a finding."""
        self.last = verdict
        self.clear_expired()
        self.nudge = verdict if verdict.nudge is not None else self.nudge
        verdict = verdict.with_certificate_of(self.pending)
        if self.pending is None or verdict.level.rank >= self.pending.level.rank:
            self.pending = verdict

    def clear_expired(self) -> None:
        """Clear a stop that nobody has taken before its trace ended, and the nudge before it."""
        if self.expired:
            self.pending, self.nudge, self.expired = None, None, False

    def put_back(self, verdict: Verdict) -> None:
        """Raise the flag again for a verdict that it was taken with, unless it has been raised since."""
        if self.pending is None:
            self.pending = verdict
            self.nudge = verdict if verdict.nudge is not None else None


def stronger(own: RunFlag, between: RunFlag) -> RunFlag:
    """The flag of a run, unless that of the loop between agents is of a higher level."""
    one, other = own.pending, between.pending
    return own if other is None or (one is not None and one.level.rank >= other.level.rank) else between


class ReadCall(NamedTuple):
    """A call that a gate has read from the messages, in a user turn."""

    turn: str | None
    step_id: str
    call_id: str | None


class BegunAnew(NamedTuple):
    """A user turn that started over: its label, the part that was added to it, and the newest calls that are gone."""

    turn: str
    part: str
    gone: tuple[str, ...]


class Entry(RestingState):
    """One trajectory: its state, the flags of its runs, and the ids and records by which its calls are recognised.

    Attributes:
        flags: by label of the run, for the runs used last.
        recent: the calls observed last; calls: ids of calls that spans reported; call_runs: labels of
            their runs, unless empty; numbered_alike: agents beside each other have used one id.
        replay: steps since state was saved; None: too many to evaluate again.
        lossy: no step so far was fully visible.
        message_steps: ids of steps that a gate has read from the graph's messages; message_calls: their tool call ids,
            which some models use again in every turn; message_tools: their tools.
        read_calls: the calls of the agent at the top that a gate has read last (``branches``).
        room: calls of the largest model turn so far, if it was larger than usual.
        requested: the calls that the agent at the top has requested last, with the label of its user turn.
        stopped_at: step id of the call at which a gate stopped the agent at the top last, and why.
        in_turn: label of the newest model turn that spans name, and how many calls they have reported of it.
        turns_read: labels of the user turns that gates have begun; begun: the newest one that was begun anew.
        gates: the gate's run by the agent instance (or trace) that spans name; empty while no gate follows anything.
        saved_index: steps covered by the state saved last.
        stating: agent instances whose gate supplies a state; awaiting_state: their steps that spans have reported, and
            that are evaluated once the gate has read the state.
        by_hand: the flag that a person raised, until a gate has acted on it; hand_taken: the stop that a loop without a
            gate has taken, and the trace in which it asked; hands: number of those raised here; remote_hands: ordinal
            of the newest one that was raised on a collector.
        ended: id of the trace whose root span ended last.
        interrupted: the newest call that was interrupted, until the run has gone on.
        quality: scores of its answers, None before the first; not saved.
        reported: how many of its steps were reported from outside the engine, and are no calls.
        left_to_gates: calls of several graph runs of one trace were in it: their spans count for none of them.
        discarded: steps that were counted and then removed, to be read again from the messages.
        talks: a gate compares the answers of an agent that is called again and again; spans of these calls add nothing.
        given: what agents were given to read.
        cursor: the trajectory's cursor, None if none is kept; cursors_saved: digest of the snapshot saved last by agent
            instance.
    """

    __slots__ = (
        "awaiting_state", "begun", "by_hand", "call_runs", "calls", "cursor", "cursors_saved", "discarded", "ended",
        "flags", "gates", "given", "hand_taken", "hands", "in_turn", "interrupted", "left_to_gates", "lossy",
        "message_calls", "message_steps", "message_tools", "numbered_alike", "quality", "read_calls", "recent",
        "remote_hands", "replay", "reported", "requested", "room", "saved_index", "stating", "stopped_at", "talks",
        "trajectory_id", "turns_read",
    )  # fmt: skip

    def __init__(self, state: TrajectoryState) -> None:
        self.trajectory_id = state.trajectory_id
        super().__init__(state)
        self.flags: BoundedTable[str, RunFlag] = BoundedTable(MAX_INSTANCES)
        self.calls = Ring(_SPAN_CALL_IDS)  # the first turn may be large, and nobody has said so
        self.call_runs: BoundedTable[bytes, tuple[str, ...]] = BoundedTable(_CALL_RUNS)
        self.recent: tuple[CallRecord, ...] = ()
        self.replay: list[StepRecord] | None = []
        self.lossy = True
        self.message_steps = Ring(_CALL_IDS)
        self.message_calls = Ring(_CALL_IDS)
        self.message_tools: frozenset[str] = frozenset()
        self.requested: tuple[str, tuple[str, ...]] = ("", ())
        self.in_turn: tuple[str, int] = ("", 0)
        self.turns_read: tuple[str, ...] = ()
        self.given = Given()
        self.begun: BegunAnew | None = None
        self.stopped_at: tuple[str, Verdict] | None = None
        self.read_calls: tuple[ReadCall, ...] = ()
        self.room = 0
        self.gates: BoundedTable[str, GateRun] = BoundedTable(MAX_INSTANCES)
        self.saved_index = 0
        self.stating: BoundedTable[str, bool] = BoundedTable(MAX_INSTANCES)
        self.awaiting_state: list[StepRecord] = []
        self.by_hand: HandFlag | None = None
        self.hand_taken: tuple[HandFlag, str] | None = None
        self.ended = ""
        self.interrupted: CallRecord | None = None
        self.quality: TrajectoryQuality | None = None
        self.hands = self.remote_hands = self.reported = self.discarded = 0
        self.talks = self.left_to_gates = self.numbered_alike = False
        self.cursor: Cursor | None = None
        self.cursors_saved: BoundedTable[str, str] = BoundedTable(MAX_INSTANCES)

    def flag(self, run: str) -> RunFlag:
        """The flag of a run, to be read; one that is not kept if none was raised."""
        return self.flags.get(run) or RunFlag()

    def flag_to_raise(self, run: str) -> RunFlag:
        """The flag of a run, created if it is missing: those that were raised last are kept."""
        flag = self.flags[run] = self.flag(run)
        return flag

    def flag_due(self, run: str, asked_in: str, *, take: bool) -> RunFlag:
        """The flag of a run, or that of the loop between agents if it says more: for callers that name no run.

        Parameters:
            asked_in: id of the trace in which the caller asks, empty if no span is around it.
            take: clear what would end the next request first: a stop that nobody has taken before its trace ended, and
                a stop by hand that was taken in another trace.
        """
        if take and self.hand_taken is not None:
            here = asked_in or self._open_trace()
            if not here or here != self.hand_taken[1]:  # outside of any trace a stop is given once
                self._end_hand_taken()
        own, relay = self.flag(run), self.state.relay
        between = self.flag(relay.label) if relay is not None else own
        if take:
            own.clear_expired()
            between.clear_expired()
        return stronger(own, between)

    def note_hand_taken(self, asked_in: str | None) -> None:
        """Record that the flag raised by a person was taken. A nudge is given once; a gate says when it has stopped.

        Parameters:
            asked_in: as for ``flag_due``; None: by a gate.
        """
        if self.by_hand is not None and self.by_hand.level is Level.NUDGE:
            self.by_hand = None
        elif asked_in is not None and self.by_hand is not None:
            self.hand_taken = (self.by_hand, asked_in or self._open_trace())

    def _open_trace(self) -> str:
        """Id of the trace of the run that acted last, empty if it is over: for a caller without a span around it."""
        run = self.state.runs.get(self.state.current)
        newest = run.trace_id if run is not None else None
        return "" if newest is None or newest == self.ended else newest

    def _end_hand_taken(self) -> None:
        """Clear a stop by hand that was taken, unless another flag has been raised since."""
        if self.hand_taken is not None and self.by_hand is self.hand_taken[0]:
            self.by_hand = None
        self.hand_taken = None

    def end_trace(self, trace_id: str) -> None:
        """Let pending stops of a trace expire, and a stop by hand that was taken in it: its root span has ended.

        A run that a gate follows may go on in another trace, and its gate decides.
        """
        self.ended = trace_id
        if self.hand_taken is not None and self.hand_taken[1] == trace_id:
            self._end_hand_taken()
        relay = self.state.relay
        for run in (*self.state.runs.values(), *([relay] if relay is not None else ())):
            flag = self.flags.get(run.label) if run.trace_id == trace_id and not run.gated else None
            if flag is not None and flag.pending is not None and flag.pending.level is Level.STOP:
                flag.expired = True

    def recount(self, steps: int) -> int:
        """How many of so many steps count for the first time: those that were discarded are evaluated again."""
        again = min(self.discarded, steps)
        self.discarded -= again
        return steps - again

    def note_turn(self, turn: str) -> None:
        """Remember the current user turn at the top, unless spans have named it."""
        if not turn.startswith(ASKED) and (not self.turns_read or self.turns_read[-1] != turn):
            self.turns_read = (*self.turns_read[1 - MAX_READ :], turn)

    def note_stop(self, verdict: Verdict | None) -> None:
        """Record that a gate has stopped the agent at the top: a stop by hand has taken effect."""
        self.by_hand = None
        if verdict is not None and verdict.level is Level.STOP and self.read_calls:
            self.stopped_at = (self.read_calls[-1].step_id, verdict)

    def follow(self, instance: str, run: GateRun) -> None:
        """Assign the spans of this agent instance (or trace) to a gate's run from now on."""
        self.gates[instance] = run

    def placed(self, step: StepRecord) -> StepRecord:
        """The step with the labels of the gate's run that follows its agent instance, if one does.

        Where a gate follows a part of the trajectory, the trace stands in for an instance that spans do not name: a new
        trace is a new run until the gate says which.
        """
        if not self.gates:
            return step
        instance = step.run or step.trace_id or ""
        known = self.gates.get(instance)
        if known is not None:
            return step._replace(run=known.instance or None, turn=known.turn)
        return step._replace(run=instance or None, asked=None)

    def mark_gated(self, label: str, stoppable: bool) -> None:
        """Record that a gate delivers the nudges of a run, and of the loop between agents."""
        for run in filter(None, (self.state.runs.get(label), self.state.relay)):
            run.gated, run.stoppable = True, stoppable

    def adopt_run(self, spans_run: str, label: str, run: GateRun) -> bool:
        """Move the run that spans began under another label to the gate's run; returns whether it was moved.

        The run is not moved if the gate's run has steps of its own, or the spans went to the gate's run of an earlier
        turn, or may have gone on with a turn that no gate has seen: the caller has to evaluate the call again there.
        """
        state = self.state
        earlier = [name for name, gate in self.gates.items() if gate.label == spans_run]
        began = state.runs.get(spans_run)
        for name in earlier or (instance_in(spans_run) or (began.trace_id if began is not None else None) or "",):
            self.follow(name, run)
        if earlier or began is None or began.boundary or label in state.runs:
            return False
        state.rename_run(spans_run, label, run.instance, run.turn)
        self.relabel_calls(spans_run, label)
        flag = self.flags.pop(spans_run, None)
        if flag is not None:
            self.flags[label] = flag
        return True

    def relabel_calls(self, before: str, label: str) -> None:
        """Move the reported calls of a run to another label: the rest of a model turn is in the moved run already."""
        if before == label:
            return
        for at in range(self.calls.start, self.calls.start + len(self.calls)):
            key = self.calls[at]
            if key and before in (runs := self.runs_of(key)):
                self.call_runs[key] = tuple([label if one == before else one for one in runs])
        self.recent = tuple([seen._replace(run=label) if seen.run == before else seen for seen in self.recent])

    def waits_in(self, trace_id: str) -> bool:
        """Whether a call was interrupted in a trace: its run does not end with it, but goes on in another one."""
        return self.interrupted is not None and self.interrupted.trace_id == trace_id

    def make_room(self, calls: int) -> None:
        """Make room for the ids of all calls of a model turn, until they are read, if it is larger than others."""
        wanted = min(2 * calls, _MAX_ROOM)
        if wanted * WIDTH <= self.message_calls.size:
            return
        for ring in (self.calls, self.message_steps, self.message_calls):
            ring.size = max(ring.size, wanted * WIDTH)
        self.call_runs.limit = max(_CALL_RUNS, wanted)
        self.room = wanted

    def awaits_state(self, step: StepRecord) -> bool:
        """Whether a gate follows the agent instance of a step, as spans name it, and will supply the state after it."""
        if not self.stating or step.stated or step.outcome_type == INTERRUPTED:
            return False
        if step.call_id is None and step.tool_args_hash is None:
            return False  # the gate could not recognise the call
        known = self.gates.get(step.run or step.trace_id or "")
        return known is not None and known.instance in self.stating

    def take_awaiting(self, step: StepRecord) -> StepRecord | None:
        """The step that spans have reported for a call that the gate has read; None if none awaits a state."""
        found = reporting(self.awaiting_state, step) if self.awaiting_state else None
        if found is not None:
            self.awaiting_state.remove(found)
        return found

    @property
    def awaits_too_many(self) -> bool:
        """Whether more steps await a state than one model turn may have."""
        return len(self.awaiting_state) > _MAX_AWAITING

    def awaiting_of(self, run: str | None) -> list[StepRecord]:
        """The steps of a run, or of all runs, that await a state."""
        turns = self.state.turns
        return [step for step in self.awaiting_state if run is None or run_label(step, turns) == run]

    def loop_without_tools(self, run: GateRun, trace_id: str | None) -> str | None:
        """Label of the run that repeats model calls, follows no gate, and may be that of this gate's agent.

        None if the runs of several agent instances may be; of one instance it is the run in its newest user turn.

        Parameters:
            trace_id: the trace in which the gate decides, if known.
        """
        followed = {run.label, *(gate.label for gate in self.gates.values())}
        found = [
            label
            for label, newest in self.state.model_calls.items()
            if label not in followed and any(one.times > 1 and trace_id in (None, one.trace_id) for one in newest)
        ]
        own = [label for label in found if instance_in(label) == run.instance]
        if not own and not run.instance:  # an agent span names an instance where the graph does not
            own = [label for label in found if ":" not in instance_in(label)]
        return own[-1] if len({instance_in(label) for label in own}) == 1 else None

    def is_in_messages(self, step: StepRecord) -> bool:
        """Whether a gate has read the call before its span ended."""
        return step.call_id is not None and call_key(step.call_id) in self.message_calls

    def note(self, seen: CallRecord, key: bytes | None, batch: str | None = None, *, twice: bool = False) -> None:
        """Remember a call, to recognise a second report; interrupted calls, which are made again, are left out.

        Parameters:
            key: the key of its id, if it has one.
            batch: label of its model turn, if the source names it.
            twice: it was reported before, and less of it was shown.
        """
        self.state.twice = self.state.twice or twice
        if batch is not None:
            self.in_turn = (batch, self.in_turn[1] + 1 if batch == self.in_turn[0] else 1)
            self.make_room(self.in_turn[1])
        if seen.outcome == INTERRUPTED:
            return
        if self.interrupted is not None and self.interrupted.end <= seen.start:
            self.interrupted = None
        if key is not None:
            self.calls.append(key)
            if seen.run:  # most trajectories have one run, without a label
                self.call_runs[key] = self._also_in(key, seen.run) if key in self.call_runs else (seen.run,)
        self.recent = (*self.recent[1 - max(RECENT_CALLS, self.room) :], seen)

    def take_failed(self, failed: CallRecord, record: CallRecord, key: bytes | None) -> bool:
        """Whether a call had failed, and did not when it was executed again: the model reads what came back then."""
        if not has_recovered(record, failed):
            return False
        self.recent = tuple([seen for seen in self.recent if seen is not failed])
        if failed.call_id is not None and key is not None:
            self.calls.forget(key)
        return True

    def note_message(self, step: StepRecord, key: bytes) -> None:
        """Record a call that a gate has read from the messages. ``key``: that of its call id, or of its step id."""
        self.message_steps.append(call_key(step.step_id))
        self.message_calls.append(key)
        if not step.run:
            call = ReadCall(step.turn, step.step_id, step.call_id)
            self.read_calls = (*self.read_calls[1 - max(MAX_READ, self.room) :], call)
        if len(self.message_tools) < _MAX_TOOLS:
            self.message_tools |= {step.tool_name.casefold()}

    def forget_read(self, call: ReadCall) -> None:
        """Forget that a gate has read a call: it lies in a branch, or an execution, that was left."""
        self.message_steps.forget(call_key(call.step_id))
        if call.call_id is not None:
            self.message_calls.forget(call_key(call.call_id))

    def runs_of(self, key: bytes) -> tuple[str, ...]:
        """Labels of the runs in which spans have reported a call with this id; several agents may use it."""
        return self.call_runs.get(key, _NO_LABEL)

    def _also_in(self, key: bytes, label: str) -> tuple[str, ...]:
        known = self.call_runs[key][-MAX_INSTANCES:]
        self.numbered_alike = self.numbered_alike or any(are_siblings(one, label) for one in known)
        return (*known, label)

    def take_reported(self, step: StepRecord, key: bytes, label: str) -> str | None:
        """Label of the run in which a span has reported a call that a gate has read; None if no span has.

        Parameters:
            key: of the id of the call; label: of the gate's run.
        """
        if self.numbered_alike:
            if (run := self._take_own(key, label)) is not None:
                return run
        elif self.calls.forget(key):
            *others, run = self.call_runs.pop(key, _NO_LABEL)
            if others and key in self.calls:  # parallel calls may share an id
                self.call_runs[key] = tuple(others)
            return run
        return record.run if (record := self.take_without_id(CallRecord.of(step))) is not None else None

    def _take_own(self, key: bytes, label: str) -> str | None:
        """As ``take_reported``, where agents beside each other number their calls alike."""
        runs = self.runs_of(key)
        own = label if label in runs else next((one for one in reversed(runs) if not are_siblings(one, label)), None)
        if own is None or not self.calls.forget(key):
            return None
        left = list(runs)
        left.remove(own)
        self.call_runs.pop(key, None)
        if left:
            self.call_runs[key] = tuple(left)
        return own

    def take_hidden(self, step: StepRecord) -> bool:
        """Whether spans have reported a call of this tool, and neither its id nor its arguments; it answers for one."""
        tool = step.tool_name.casefold()
        hidden = [seen for seen in self.recent if seen.call_id is None and seen.args_hash is None and seen.tool == tool]
        self.recent = tuple([seen for seen in self.recent if seen not in hidden[:1]])
        return bool(hidden)

    def take_without_id(self, call: CallRecord) -> CallRecord | None:
        """The record without a call id that stands for the call a gate has read; each answers for one call."""
        found = without_id(self.recent, call)
        if found is not None:
            self.recent = tuple([seen for seen in self.recent if seen is not found])
        return found
