"""The board: the trajectories under evaluation, and the flags that gates read.

Each class is a subclass of the one above it::

    EntryTable      entry_table.py    entries by id, bounds, locks, aliases; the pending flag of a run
    HandFlags       by_hand.py        flags that a person raises and clears
    QualityScores   quality.py        scores of answers, and their findings
    FlagBoard       this module       evaluates steps, counts, ends runs, saves
    SharedBoard     ../runtime.py     that of the process, whose configuration may change

Beside it stand ``branches``, the user turns and the checkpoints to go back to, and ``cursors``, the record of what was
asked, done and returned.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard.board.between import flag_for_gate
from trajectory_guard.board.branches import Branches
from trajectory_guard.board.configured_spending import spending_of
from trajectory_guard.board.cursors import Cursors
from trajectory_guard.board.entries import Entry
from trajectory_guard.board.flags import Flag, GateRun
from trajectory_guard.board.joining import absorb, apart, as_reported, begin_again, take_place
from trajectory_guard.board.quality import QualityScores, clear_flags
from trajectory_guard.board.recoveries import MAX_WAITING, publish
from trajectory_guard.config import GuardConfig, check_config
from trajectory_guard.core.calls import CallRecord, call_key, report_on, reported, truncate_for_replay
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import INTERRUPTED, Evidence, StepRecord
from trajectory_guard.core.tracking.model_calls import IN_MESSAGES
from trajectory_guard.core.tracking.scope import ASKED, instance_in, label_of, may_go_on, run_label
from trajectory_guard.process.locks import RetiredError, looks_again
from trajectory_guard.spending.prices import PriceTable

if TYPE_CHECKING:
    from trajectory_guard.core.cursor.cursor import Cursor
    from trajectory_guard.integrations.langfuse.reporter import LangfuseReporter

_MAX_REPLAY: Final = 16


class FlagBoard(QualityScores):
    """Thread-safe store of all trajectories of a process, bounded by count and idle time.

    Parameters:
        config: thresholds and limits; TypeError for anything but a GuardConfig.
        clock: monotonic seconds; for tests.
    """

    def __init__(self, config: GuardConfig | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        check_config(config)
        config = config or GuardConfig()
        self.reporter: LangfuseReporter | None = None
        self.recovered: deque[Verdict] = deque(maxlen=MAX_WAITING)
        self.prices = PriceTable()
        engine = Engine(config.engine_settings(), price=self.prices.cost)
        super().__init__(config, engine, counts=Counter(), clock=clock)
        self.branches, self.cursors = Branches(self), Cursors(self)
        self.spending = spending_of(config, self.prices, self.counts)
        self.measure_quality(config)
        self.resource: Mapping[str, Any] = {}  # attributes of the resource of the spans seen last
        self.shows_content: bool | None = None  # whether a tool span held all content; None before the first

    # --- writing ---------------------------------------------------------------------------------------------

    def observe(self, step: StepRecord) -> Verdict | None:
        """Evaluate a step; None if it does not count (duplicate, ignored tool, interrupted call, new model call)."""
        given, step = step, self.branches.in_batch(step) if self.branches.requests else step
        entry = self.entry(step.trajectory_id)
        try:
            with entry.lock:
                if step.model_scope is not None:
                    is_known = entry.talks and step.model_scope != IN_MESSAGES
                    return None if is_known else self._evaluate(entry, entry.placed(step))
                if step.outcome_type == INTERRUPTED:
                    entry.interrupted = CallRecord.of(step)  # before its span is left to a gate
                if (step.evidence is not Evidence.FULL or self.branches.crowded) and self.branches.leaves(entry, step):
                    self.counts["superseded"] += 1
                    return None
                awaits_state = bool(entry.stating) and entry.awaits_state(step)
                unread = step is not given and not entry.is_in_messages(step)
                if entry.gates:
                    step = entry.placed(step)
                label = run_label(step, entry.state.turns)
                record = CallRecord.of(step, label)
                earlier = reported(entry.recent, record, unread=unread)
                key = call_key(step.call_id) if step.call_id is not None else None
                if recovered := earlier is not None and entry.take_failed(earlier, record, key):
                    earlier = None
                twice = entry.state.twice and not recovered
                entry.recent, drops, known = report_on(entry.recent, record, earlier, step.usage, twice=twice)
                if drops or (key is not None and key in entry.message_calls):
                    self.counts["duplicates"] += 1
                    return None
                step = step if earlier is None else entry.state.take_over(step, earlier, evaluated=known)
                entry.note(record, key, step.batch, twice=earlier is not None)
                if self.config.cursor and not known:
                    self.cursors.record_step(entry, step, label)
                if awaits_state and not known and not (recovered and entry.take_awaiting(step) is None):
                    entry.awaiting_state.append(step)
                    return self._evaluate(entry, entry.awaiting_state.pop(0)) if entry.awaits_too_many else None
                return self._evaluate_again(entry, step) if recovered else self._evaluate(entry, step, again=known)
        except RetiredError:  # as ``looks_again`` does, without a further call for each step
            return self.observe(given)
        finally:
            if self.recovered:
                publish(self)

    @looks_again
    def observe_from_messages(
        self, step: StepRecord, *, stoppable: bool = True, state: str | None = None
    ) -> Verdict | None:
        """Evaluate a call that a gate read from the messages, unless a span has reported it already.

        A span that reported the call identifies the agent instance, as spans name it, that the gate follows.

        Parameters:
            stoppable: the gate may stop the run; otherwise further nudges take the place of a stop, ever more rarely.
            state: fingerprint of the state that the application supplies after the call; see ``await_states``.
        """
        if state is not None:
            step = step._replace(state_snapshot_hash=state, stated=True)
        entry = self.entry(step.trajectory_id)
        key = call_key(step.call_id or step.step_id)
        run = GateRun(step.run or "", step.turn)
        with entry.lock:
            entry.note_message(step, key)
            label = run_label(step, entry.state.turns)
            reported_by = entry.take_reported(step, key, label)
            entry.mark_gated(label, stoppable)
            verdict = None
            if reported_by is None and entry.take_hidden(step):
                verdict = self._evaluate_again(entry, step)
            elif reported_by is None:
                verdict = self._evaluate(entry, step)
            elif (awaiting := entry.take_awaiting(step)) is not None:
                stated = awaiting if state is None else awaiting._replace(state_snapshot_hash=state, stated=True)
                verdict = self._evaluate(entry, stated)
            elif reported_by != label and not entry.adopt_run(reported_by, label, run):
                verdict = self._evaluate_again(entry, as_reported(entry, step))
            entry.mark_gated(label, stoppable)  # a run that begins with this step, or has got this label
        if self.recovered:
            publish(self)
        return verdict

    def _evaluate_again(self, entry: Entry, step: StepRecord) -> Verdict | None:
        """Evaluate a step in place of the newest one, which was in another run, hid its content, or failed."""
        state = entry.state
        index, ids = state.index, (state.step_ids.data, state.step_ids.start)
        state.uncount(1)
        verdict = None
        try:
            verdict = self._evaluate(entry, step, again=True)
        finally:
            if verdict is None:
                state.index, (state.step_ids.data, state.step_ids.start) = index, ids
        return verdict

    @looks_again
    def await_states(self, trajectory_id: str, instance: str) -> None:
        """Record that the gate of an agent instance supplies a state after its tool calls.

        Their spans end before that state is read: from now on the steps that they report wait for the gate.
        """
        entry = self.entry(trajectory_id)
        with entry.lock:
            entry.stating[instance] = True

    @looks_again
    def release_awaiting(self, trajectory_id: str, run: str | None = None) -> list[Verdict]:
        """Evaluate steps whose state no gate has read, as their spans reported them.

        Parameters:
            run: label of the only run whose steps are evaluated; None: all of them.
        """
        if (entry := self.find(trajectory_id)) is None or not entry.awaiting_state:
            return []
        with entry.lock:
            released = self._release(entry, run)
        publish(self)
        return released

    def _release(self, entry: Entry, run: str | None = None) -> list[Verdict]:
        released = []
        for step in entry.awaiting_of(run):
            entry.awaiting_state.remove(step)  # one by one: if this one raises, the next ones still wait
            verdict = self._evaluate(entry, step)
            if verdict is not None:
                released.append(verdict)
        return released

    @looks_again
    def follow_model_calls(
        self, trajectory_id: str, run: GateRun, trace_id: str | None, *, began: bool = False, stoppable: bool = True
    ) -> None:
        """Let a gate follow the run in which spans report repeated model calls: no message shows whose they are.

        Parameters:
            run: the run that the gate decides on; trace_id: the trace in which it does so, if known.
            began: the run is new to the gate. Without a trace, the calls may be those of the turn before.
            stoppable: as for ``observe_from_messages``.
        """
        entry = self.find(trajectory_id)
        if entry is None:
            return
        with entry.lock:
            label = entry.loop_without_tools(run, trace_id)
            if label is not None and began and trace_id is None:
                entry.state.note_model_calls(label, ())
            elif label is not None:
                for call in () if instance_in(label) else entry.state.model_calls[label]:
                    entry.follow(call.trace_id or "", run)  # two instrumentations may write a trace each
                entry.adopt_run(label, run.label, run)
            entry.mark_gated(run.label, stoppable)

    def _evaluate(self, entry: Entry, step: StepRecord, *, again: bool = False) -> Verdict | None:
        """``again``: the step was evaluated and counted before, with less history."""
        state, instance = entry.state, step.run or ""
        turn_before, index, restarts = state.turns.get(instance), state.index, state.restarts
        if (verdict := self.engine.observe(state, step)) is None:
            return None
        new = 0 if again else state.index - index
        new = entry.recount(new) if entry.discarded else new
        self.counts["steps"] += new  # other threads count, too: nothing may be computed between reading and writing
        if verdict.evidence is Evidence.FINGERPRINT:
            self.counts["fingerprinted"] += not again
        entry.lossy = entry.lossy and step.evidence is not Evidence.FULL
        if entry.replay is not None:
            entry.replay.append(truncate_for_replay(step))
            if len(entry.replay) > _MAX_REPLAY:
                entry.replay = None
        changed = turn_before is not None and state.turns.get(instance) != turn_before
        if changed and not may_go_on(state.runs.get(label := label_of(instance, turn_before)), step):
            self._end_run(entry, label)
        if state.restarts != restarts:
            entry.flags.pop(state.current, None)  # it was that of the run before
        return self._booked(entry, verdict) if verdict.recovered or verdict.detections else verdict

    @looks_again
    def report(self, step: StepRecord, finding: DetectionResult | None, measured: Mapping[str, Any]) -> Verdict:
        """Evaluate an output that a gate has measured itself, as ``Engine.report`` does."""
        with (entry := self.entry(step.trajectory_id)).lock:
            entry.reported += 1
            return self._booked(entry, self.engine.report(entry.state, step, finding, measured))

    def _booked(self, entry: Entry, verdict: Verdict) -> Verdict:
        if verdict.recovered:
            self.counts["recoveries"] += 1
        if verdict.detections:
            flag = entry.flag_to_raise(verdict.run)
            self._count(flag.last, verdict)
            flag.raise_for(verdict)
        return verdict

    def _end_run(self, entry: Entry, label: str) -> None:
        """End a run and clear its flag."""
        self._recovered(self.engine.end_run(entry.state, label))
        entry.flags.pop(label, None)

    def _recovered(self, verdict: Verdict | None) -> None:
        if verdict is not None:
            self.counts["recoveries"] += 1
            self.recovered.append(verdict)

    @looks_again
    def end_instance(self, trajectory_id: str, instance: str) -> None:
        """End the runs of an agent instance whose span has ended. ``instance``: as in ``StepRecord.run``."""
        if (entry := self.find(trajectory_id)) is None:
            return
        with entry.lock:
            gate = entry.gates.get(instance)
            for label in (instance, gate.label if gate is not None else None):
                if label is not None and entry.awaiting_state:
                    self._release(entry, label)
                if label is not None and label in entry.state.runs:
                    self._end_run(entry, label)
        publish(self)

    @looks_again
    def finish_recovery(self, trajectory_id: str, run: str) -> None:
        """Count the recovery of a run whose agent has answered, if the run recovered from a loop."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                self._recovered(self.engine.finish_recovery(entry.state, run))
            publish(self)

    @looks_again
    def finish_recoveries(self, trajectory_id: str, trace_id: str, *, ended: bool) -> None:
        """Count the recoveries in a trace whose local root has ended; if ``ended``, let its pending stops expire."""
        if (entry := self.find(trajectory_id)) is None:
            return
        with entry.lock:
            if entry.awaiting_state:
                self._release(entry)
            for label, run in entry.state.runs.items():
                if run.trace_id == trace_id and not entry.waits_in(trace_id):
                    self._recovered(self.engine.finish_recovery(entry.state, label))
            if ended:
                entry.end_trace(trace_id)
        publish(self)

    @looks_again
    def new_turn(self, trajectory_id: str, instance: str, turn: str) -> str:
        """Record the user turn of an agent instance, which a gate has read; returns the label of the run.

        The run of the turn before ends. A turn that spans have read from the input of model calls may be this very
        turn: the gate takes over that run when it reads its calls.
        """
        label = label_of(instance, turn)
        entry = self.find(trajectory_id)
        if entry is not None:
            with entry.lock:
                if not instance:
                    entry.note_turn(turn)
                before = entry.state.turns.get(instance)
                if before is not None and before != turn and not before.startswith(ASKED):
                    self._end_run(entry, label_of(instance, before))
                if before != turn:
                    entry.state.begin_turn(instance, turn)
            publish(self)
        return label

    @looks_again
    def reset_episode(self, trajectory_id: str, run: str | None = None) -> None:
        """End the episode because a person dismissed the finding: the score becomes 0 and has to build up again.

        Parameters:
            run: label of the run; by default the one that acted last.
        """
        entry = self.find(trajectory_id)
        if entry is None:
            return
        with entry.lock:
            label = run if run is not None else entry.state.current
            entry.flags.pop(label, None)
            self.engine.reset_episode(entry.state, label)
            entry.by_hand = entry.state.relay = None

    @looks_again
    def stopped(self, trajectory_id: str, run: str) -> None:
        """End a run that a gate stopped: the next run of the trajectory begins without an episode."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                self.engine.end_run(entry.state, run)
                flag = entry.flags.pop(run, None)
                if not run or run.startswith("/"):  # the agent at the top
                    entry.note_stop(flag.last if flag is not None else None)

    @looks_again
    def delivered(self, trajectory_id: str, run: str) -> None:
        """Record that a gate delivered the nudge to the agent of a run; escalation counts from this step."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                self.engine.delivered(entry.state, run)

    def join(self, trace_id: str, trajectory_id: str) -> None:
        """Merge the steps evaluated under a trace id into the trajectory that it turned out to belong to.

        The trace's recent steps are evaluated again with the trajectory's own history. Steps of a trace that several
        trajectories share are left out: their owner is unknown, and gates read their own steps from the messages.
        """
        if self.is_shared(trace_id):
            return
        part = self.detach(trace_id, trajectory_id)
        if part is not None:
            self._merge(part, trajectory_id)

    @looks_again
    def _merge(self, part: Entry, trajectory_id: str) -> None:
        target = self.entry(trajectory_id)
        # nobody else holds two of these locks, and a part left the table before its thread looked for the target:
        # of two threads that join, one at most may wait for the other
        with part.lock, target.lock:
            if target.state.index:
                part.lock.retired = True
                for step, recovered in absorb(target, part, self.branches, self.cursors):
                    self._evaluate_again(target, step) if recovered else self._evaluate(target, step, again=True)
                return
            take_place(target, part, self.cursors)
            if not self.replace(target, part):
                raise RetiredError("the trajectory has left the table since it was looked up")

    @looks_again
    def discard_lossy(self, trajectory_id: str) -> bool:
        """Remove a trajectory whose steps hid arguments or results, so that the messages can rebuild it."""
        entry = self.find(trajectory_id)
        if entry is None or not entry.lossy or entry.state.index <= entry.reported:
            return False
        with entry.lock:
            rebuilt = Entry(self.engine.new_state(entry.trajectory_id))
            begin_again(rebuilt, entry)
            return self.replace(entry, rebuilt)

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, trajectory_id: str, run: str | None = None) -> Flag:
        """Return the flag of a run without clearing it; by default that which ``caller_of`` finds, within ``mode``."""
        flag = self._flag(trajectory_id, run, take=False)
        return flag if run is not None else self.with_advice(trajectory_id, flag, take=False).within(self.config.mode)

    def take(self, trajectory_id: str, run: str | None = None, path: str = "") -> Flag:
        """As ``read``, and clear it: the caller acts on it. An undelivered nudge takes precedence over a stop.

        ``path``: as for ``between.flag_for_gate``.
        """
        flag = self._flag(trajectory_id, run, path, take=True)
        return flag if run is not None else self.with_advice(trajectory_id, flag, take=True).within(self.config.mode)

    @looks_again
    def _flag(self, trajectory_id: str, run: str | None, path: str = "", *, take: bool) -> Flag:
        entry = self.find(trajectory_id)
        budget = self.spending.level(self.resolve_alias(trajectory_id)) if self.spending is not None else None
        if entry is None:
            return Flag(Level.OBSERVE, None, 0.0, 0, 0, budget=budget)
        with entry.lock:
            state = entry.state
            label, trace = (run, None) if run is not None else self.caller_of(state)
            flag = flag_for_gate(entry, label, path) if trace is None else entry.flag_due(label, trace, take=take)
            verdict = (flag.nudge or flag.pending) if take else flag.pending
            level = verdict.level if verdict is not None else Level.OBSERVE
            hand = entry.by_hand
            by_hand = hand if hand is not None and hand.level.rank >= level.rank else None
            if by_hand is not None:  # the engine's own flag comes after that of the person
                level, verdict = by_hand.level, by_hand.verdict(state, label, self.config.max_score)
            if take and by_hand is None:
                flag.pending = flag.nudge = None
            elif take:
                entry.note_hand_taken(trace)
            score = known.score.value if (known := state.runs.get(label)) is not None else 0.0
            return Flag(level, verdict, score, state.nudges, state.index, by_hand=by_hand, budget=budget)

    def cursor(self, trajectory_id: str) -> Cursor | None:
        """A copy of the cursor of a trajectory, by its id or another name that it is known by; None if it has none."""
        return self.cursors.copy_of(trajectory_id)

    # --- saving ----------------------------------------------------------------------------------------------

    @looks_again
    def save(self, trajectory_id: str, run: str | None = None) -> bytes | None:
        """Byte form of the state of a trajectory, None if the trajectory is unknown.

        Parameters:
            run: label of the only run to save with the state of the trajectory; None saves all runs.
        """
        entry = self.find(trajectory_id)
        if entry is None:
            return None
        with entry.lock:
            entry.replay, entry.saved_index = [], entry.state.index
            return entry.state.to_bytes(run)

    @looks_again
    def adopt(self, trajectory_id: str, data: bytes, steps: int) -> bool:
        """Continue from saved state if another process has taken the trajectory further than this one knows.

        Steps evaluated here since this process last saved are evaluated again with the saved state.

        Parameters:
            data: saved state in its byte form.
            steps: number of steps it covers; the bytes are read only if this process saved fewer last.

        Raises:
            StateFormatError: the bytes cannot be read; nothing changes.
        """
        entry = self.entry(trajectory_id)
        if steps <= entry.saved_index:
            return False
        saved = self.engine.load_state(data)
        with entry.lock:
            if entry.replay is None:
                return False  # more steps were evaluated here in between than can be evaluated again
            turns, replay, entry.replay = entry.state.turns, entry.replay, []
            saved.keep_runs_of(entry.state)
            entry.state, entry.saved_index = saved, saved.index
            entry.note_turn(saved.turns.get("", ASKED))
            clear_flags(entry)
            for step in replay:
                self._evaluate(entry, apart(entry, step, turns), again=True)
            return True
