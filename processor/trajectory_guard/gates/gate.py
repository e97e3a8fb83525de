"""The work of every gate, whatever its framework: read the flag, decide, report, and record the steps in the state."""

from __future__ import annotations

import base64
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry import trace

from trajectory_guard.board.between import is_between
from trajectory_guard.board.flags import Flag, GateRun
from trajectory_guard.board.quality import is_advice, text_given
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.callbacks import Intervention, notify, text_of
from trajectory_guard.config import GuardConfig, is_disabled
from trajectory_guard.core.cursor.boundary import GUARD, PERSON
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.closing import closing_text
from trajectory_guard.core.explain.interventions import owed_nudge
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.hand_flag import CLOSING
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.scope import label_of
from trajectory_guard.gates.boundaries import STATE, Boundaries
from trajectory_guard.gates.branches import (
    note_read_below,
    note_request,
    note_unreadable,
    saved_state,
    with_summaries_marked,
)
from trajectory_guard.gates.call_ids import own_ids_answered
from trajectory_guard.gates.deliveries import deliveries, note_said, texts_given
from trajectory_guard.gates.messages import (
    calls_before_nudges,
    is_answer,
    is_first_round,
    new_steps,
    open_calls,
    requested_in_turn,
    turn_of,
    was_nudged,
    with_marks,
)
from trajectory_guard.gates.quality import read_quality, request_in, with_advice
from trajectory_guard.gates.remote import CollectorReply, RemoteFlags, Use, caller_of
from trajectory_guard.gates.said import Answers, newest_said, said_again
from trajectory_guard.gates.status import NOTHING, Delivery, payload_of, scratchpad_entry, status_after
from trajectory_guard.otel.metrics import register_globally
from trajectory_guard.otel.publishing import publish, publish_by_hand, quotes_nothing
from trajectory_guard.process.containment import contain
from trajectory_guard.runtime import board_for, follow
from trajectory_guard.spending.answers import stricter


class GateDecision(NamedTuple):
    """A gate's decision, and its updates of the graph state.

    Fields:
        level: OBSERVE, NUDGE or STOP, after the configured mode was applied.
        trajectory_id: the trajectory decided on.
        nudge: message for the model; None unless one is due now.
        payload: stop payload; None unless level is STOP.
        closing: text that a stopped run ends with; empty unless level is STOP.
        request: text that a person wrote last, for the judge of the answer; empty without a judge.
        said: digest of the agent's answer before, if it is called again without anything else; else empty.
        scratchpad: entries for ``trajectory_scratchpad``, one per new step.
        status: new value of ``loop_status``.
    """

    level: Level
    trajectory_id: str
    nudge: str | None
    payload: dict[str, Any] | None
    scratchpad: list[dict[str, Any]]
    status: dict[str, Any]
    closing: str = ""
    request: str = ""
    said: str = ""


class Gate:
    """Decides on the intervention in a trajectory from its flag and the messages in the graph state.

    Parameters:
        config: by default that of the board. It has to be equal to the board's, ``config.GATE_KEYS`` aside; a process
        without a configuration adopts it.
        board: the board to read; by default the one the span processor writes to.

    Attributes:
        is_own_node: it is a node after the tools: it does not see a run begin, and the state may keep nothing of
            it, not even that it has nudged.

    Raises:
        ConfigError: the board is configured otherwise; the keys that differ are named.
    """

    def __init__(self, config: GuardConfig | None = None, *, board: FlagBoard | None = None) -> None:
        self._given = config
        self.board = board_for(config, board, gate=True)
        register_globally(self.board)
        self.boundaries, self.answers = Boundaries(self.board), Answers()
        self.recalls_in_nudge, self.is_own_node = True, False
        self.configure(self.board.config)
        follow(self)

    def __deepcopy__(self, memo: Any) -> Gate:
        return self  # its board is that of the process: a copied agent is guarded by the same one

    def __reduce__(self) -> Any:
        raise TypeError("a gate cannot be pickled, as its board belongs to the process: create one in each process")

    def configure(self, config: GuardConfig) -> None:
        """Take the configuration of the board, and keep the values of this gate's own keys."""
        own = config.with_gate_keys(self._given)
        self.config = own = own.model_copy(update={"mode": "observe"}) if is_disabled() else own
        self.remote = RemoteFlags.of(self.config, self.board, self._count_silence) if own.mode != "observe" else None

    def decide(
        self, messages: Sequence[Any], status: Mapping[str, Any] | None, thread_id: Any = None, *,
        namespace: str = "", path: str = "", peek: bool = False, read_state: Callable[[], str | None] | None = None,
        witness: bool = False,
    ) -> GateDecision:  # fmt: skip
        """Bring the trajectory up to date and return the intervention that is due.

        Parameters:
            messages: the messages in the graph state.
            status: the ``loop_status`` in the graph state, as this gate left it before.
            thread_id: the thread's id, of any type; None if the caller gave none.
            namespace: path of tasks that leads to the graph run of the node that asks (``alice:<id>``), which is the
                agent instance; empty at the top level.
            path: the same with the task of that node itself.
            read_state: gives the fingerprint of the state that the application supplies, None if it knows none; called
                after new steps.
            peek: do not clear the flag of a stop (for gates that are executed again when a person has answered).
            witness: as for ``Boundaries.read``.
        """
        status = status or {}
        messages = with_marks(messages, status.get("nudge_digests") or ())
        trajectory = self._identify(messages, status, thread_id)
        self.board.discard_lossy(trajectory)
        is_readable = self._restore(trajectory, status)
        branches = self.board.branches
        if (self.is_own_node or branches.crowded) and (trace_id := current_trace()) is not None:
            begins = self.is_own_node and is_first_round(messages)
            branches.set_apart(trajectory, namespace, trace_id, own_ids_answered(messages), begins=begins)
        messages, turn = with_summaries_marked(self.board, trajectory, namespace, messages)
        read_quality(self.board, trajectory, messages, namespace)
        if self.board.config.cursor:
            self.read_boundaries(trajectory, namespace, messages, status, witness=witness)
        if read_state is not None:
            self.board.await_states(trajectory, namespace)
        covered = status
        if peek and not is_readable:  # a person may have been asked: what led to the question is in the messages only
            covered = {key: value for key, value in status.items() if key != "calls"}
        fresh, run = self._catch_up(trajectory, namespace, messages, turn, covered, again=peek, read_state=read_state)
        if covered is not status:
            fresh = [step for step in fresh if step.step_id not in (status.get("calls") or ())]
        taken = self.board.take(trajectory, run, path)
        try:
            flag = self._with_remote(trajectory, run, taken, status)
            if self.board.quality is not None:
                flag = with_advice(self.board, trajectory, flag, messages, namespace)
            decision = self._decision(trajectory, run, flag, messages, fresh, status, peek=peek)
        except BaseException:  # an error, or Ctrl-C: the run may be taken up again, and is then owed what was due
            self._put_back(trajectory, taken)
            raise
        if decision.level is Level.STOP and peek:
            self._put_back(trajectory, flag)
        elif decision.level is Level.STOP:
            self.board.note_stop(trajectory, run, path)
        if self.board.config.cursor:
            decision = self._with_cursor(decision, run, namespace, flag)
        if (quality := self.board.quality) is not None and quality.judge is not None:
            decision = decision._replace(request=request_in(messages))
        return decision._replace(said=newest_said(messages))

    @property
    def does_io(self) -> bool:
        """Whether a decision asks a collector or reads a ledger: asynchronous gates then decide on a thread."""
        return self.remote is not None or self.board.spending is not None

    def trajectory_of(self, messages: Sequence[Any], status: Mapping[str, Any], thread_id: Any = None) -> str:
        """The trajectory that ``decide`` would decide on."""
        return self._identify(messages, status, thread_id)

    def named_trajectory(self, messages: Sequence[Any], status: Mapping[str, Any], thread_id: Any) -> str | None:
        """The trajectory that ``decide`` would decide on, None if it would have to invent a name."""
        trace_id = current_trace()
        is_new = trace_id is None or self.board.is_taken(trace_id)
        if thread_id is None and not status.get("trajectory_id") and is_new:
            return None
        return self._identify(messages, status, thread_id)

    def answered(self, decision: GateDecision, messages: Sequence[Any]) -> None:
        """Read the messages that the agent has written: if the last one requests no tool, the run is over."""
        read_quality(self.board, decision.trajectory_id, messages, answers=decision.request)
        trajectory, run = decision.trajectory_id, str(decision.status.get("run") or "")
        if messages and decision.level is not Level.STOP and is_answer(messages[-1]):
            if self.answers.says_more((trajectory, run), newest_said(messages), decision.said):
                self.board.finish_recovery(trajectory, run)
        elif messages:
            note_request(self.board, trajectory, run, messages[-1], current_trace())

    def refresh(self, status: Mapping[str, Any], trajectory: str) -> dict[str, Any]:
        """``status`` brought up to date after the trajectory's state was changed by hand."""
        score = self.board.read(trajectory, status.get("run")).score
        cleared = {"status": "ok", "score": score, "health": 1.0, "stop": None}
        return {**status, **cleared, "state": self._saved_state(trajectory, status.get("run"))}

    # --- the cursor ------------------------------------------------------------------------------------------

    def read_boundaries(
        self, trajectory: str, namespace: str, messages: Sequence[Any], status: Mapping[str, Any], *, witness: bool,
        live: bool = False,
    ) -> None:  # fmt: skip
        """Bring the cursor up to date: from saved state, then from the messages."""
        saved = status.get(STATE)
        try:
            if isinstance(saved, str):
                self.board.cursors.adopt(trajectory, namespace, saved)
        except StateFormatError as error:
            note_unreadable(self.board, "cursor", trajectory, error)
        self.boundaries.read(trajectory, namespace, messages, witness=witness, live=live)

    def _with_cursor(self, decision: GateDecision, run: str, namespace: str, flag: Flag) -> GateDecision:
        """The decision, entered in the cursor if it is one, with the record for the agent and for the graph state."""
        trajectory, verdict = decision.trajectory_id, flag.verdict
        if verdict is not None and decision.level is not Level.OBSERVE:
            by, outcome = PERSON if flag.by_hand is not None else GUARD, decision.level.value.lower()
            self.boundaries.feedback(trajectory, run, namespace, outcome, verdict.reason, by=by)
        if decision.nudge is not None and self.recalls_in_nudge and self.board.config.recall:
            recalled = self.boundaries.text(trajectory, run, namespace)
            nudge = f"{decision.nudge}\n\n{recalled}" if recalled else decision.nudge
            decision.status["nudge_digests"] = [*decision.status["nudge_digests"][:-1], text_digest(nudge)]
            decision = decision._replace(nudge=nudge)
        decision.status.update(self.boundaries.status(trajectory, namespace))
        return decision

    def contain(self) -> None:
        """Count and log an error of the gate itself; the caller lets the run go on."""
        contain(self.board.counts, "gate", "error in the gate, contained", quotes_nothing=quotes_nothing(self.board))

    # --- identity and memory ---------------------------------------------------------------------------------

    def _identify(self, messages: Sequence[Any], status: Mapping[str, Any], thread_id: Any) -> str:
        trace_id = current_trace()
        if thread_id is None:
            if status.get("trajectory_id"):
                return bounded_name(str(status["trajectory_id"]))
            if trace_id is not None and not self.board.is_taken(trace_id):
                return trace_id
            # agents of one graph hand their messages on: the gate of another one has read what stands before
            turn = turn_of(messages)
            others = (self.board.find_read(step, turn) for step in requested_in_turn(messages))
            found = self._by_call(messages) or next(filter(None, others), None)
            return found if found is not None and found != trace_id else uuid.uuid4().hex
        name = bounded_name(str(thread_id))
        trajectory = self.board.resolve_alias(name)
        if trace_id is not None and self.board.resolve_alias(trace_id) != trajectory:
            self.board.join(trace_id, trajectory)
        return trajectory

    def _by_call(self, messages: Sequence[Any]) -> str | None:
        """The trajectory in which the newest call was evaluated: for instrumentations that leave no current span."""
        return next(map(self.board.find_call, own_ids_answered(messages[-1:])), None)

    def _restore(self, trajectory: str, status: Mapping[str, Any]) -> bool:
        """Continue from the saved state if it is further; False if it cannot be read."""
        try:
            steps = int(status.get("steps_taken", sys.maxsize))
            if self.board.has_saved(trajectory, steps):
                return True  # as mostly: then the state is not even unpacked
            data = saved_state(status)
            if data is not None:
                self.board.adopt(trajectory, data, steps)
        except (StateFormatError, TypeError, ValueError) as error:
            note_unreadable(self.board, "state", trajectory, error)
            return False
        return True

    def _catch_up(
        self, trajectory: str, instance: str, messages: Sequence[Any], turn: str | None, status: Mapping[str, Any], *,
        again: bool, read_state: Callable[[], str | None] | None,
    ) -> tuple[list[StepRecord], str]:  # fmt: skip
        """Evaluate calls that no span reported. Returns every step that is new to the graph state, and the run's label.

        If ``again``, a gate may have read steps and been interrupted before it could write them into the state.
        A supplied state is that after the newest model turn; of the calls before it no state is known.

        Parameters:
            turn: label of the current user turn, as far as the messages show it.
        """
        if turn is None:  # a reducer may have trimmed the message that began the turn, or a summary stands for it
            turn = self.board.branches.turn_in(trajectory, instance)
        run = label_of(instance, None) if turn is None else self.board.new_turn(trajectory, instance, turn)
        before, stoppable = frozenset(status.get("calls") or ()), self.config.mode != "nudge"
        found = new_steps(
            messages, trajectory_id=trajectory, now=time.time(),
            known=lambda call: call in before or (self.board.was_read(trajectory, call) and not (again and before)),
        )  # fmt: skip
        steps = [step._replace(run=instance or None, turn=turn) for step in found] if found else found
        if instance and steps:
            note_read_below(self.board, trajectory, instance, turn, steps)
        state = read_state() if read_state is not None and steps else None
        verdicts = self._evaluate_read(trajectory, run, messages, steps, status, stoppable=stoppable, state=state)
        if read_state is not None:
            verdicts += self.board.release_awaiting(trajectory, run)
        said = []
        if not steps and not self.board.repeats_model_call(trajectory):
            said = said_again(messages, trajectory, time.time())
        self.board.note_talk(trajectory, talks=bool(said))
        verdicts += (self.board.observe(step._replace(run=instance or None, turn=turn)) for step in said)
        if steps:
            texts, calls = texts_given(messages), requested_in_turn(messages)
            self.board.note_given(trajectory, run, steps[-1].step_id, texts, calls)
        if not steps:
            began = status.get("run") not in (None, run)
            self.board.follow_model_calls(
                trajectory, GateRun(instance, turn), current_trace(), began=began, stoppable=stoppable
            )
        for verdict in verdicts:
            if verdict is not None and (verdict.detections or verdict.recovered):
                publish(verdict, self.board, redact=self.config.redact)
        return steps, run

    def _evaluate_read(
        self, trajectory: str, run: str, messages: Sequence[Any], steps: Sequence[StepRecord],
        status: Mapping[str, Any], *, stoppable: bool, state: str | None,
    ) -> list[Verdict | None]:  # fmt: skip
        """Evaluate steps read from the messages, each after what its agent had brought by then, and after its nudge.

        Parameters:
            state: fingerprint of the supplied state, which is that after the newest model turn.
        """
        verdicts: list[Verdict | None] = []
        is_lost = self.is_own_node or (status and "calls" not in status)
        if steps and steps[0].batch != steps[-1].batch:  # several turns at once: their messages may have got new ids
            is_lost = True
        nudged = calls_before_nudges(messages, status.get("advice_digests") or ()) if is_lost else set()
        brought = deliveries(messages, steps)
        for step in steps:
            self.board.note_delivery(trajectory, brought.get(step.step_id))
            given = state if step.batch == steps[-1].batch else None
            verdicts.append(self.board.observe_from_messages(step, stoppable=stoppable, state=given))
            if step.step_id in nudged:
                # the state keeps nothing of the gate and is read from its beginning: this was delivered, and published
                if self.board.take(trajectory, run).level is Level.NUDGE:
                    self.board.delivered(trajectory, run)
                verdicts.clear()
        note_said(self.board, trajectory, run, messages)
        return verdicts

    def repeats_model_call(self, thread_id: Any) -> bool:
        """Whether an agent of the thread, or of the current trace, repeats a model call without any tool call."""
        names = (None if thread_id is None else str(thread_id), current_trace())
        return any(name is not None and self.board.repeats_model_call(name) for name in names)

    # --- what a collector knows ------------------------------------------------------------------------------

    def ask_collector(self, trajectory: str, status: Mapping[str, Any], agent: str, use: Use) -> CollectorReply | None:
        """The collector's answer on a trajectory; None without a collector, or if it does not answer in time.

        Parameters:
            status: of the graph state.
            agent: name of the agent, for budgets; empty if unknown.
            use: the part of the answer that is needed now.
        """
        if self.remote is None:
            return None
        hands = max(int(status.get("collector_hand", 0)), self.board.remote_hands(trajectory))
        step = int(status.get("collector_step", -1))
        return self.remote.ask(trajectory, step, hands, caller_of(self.board, agent), use)

    def _count_silence(self) -> None:
        self.board.counts["errors.collector"] += 1

    def _with_remote(self, trajectory: str, run: str, flag: Flag, status: Mapping[str, Any]) -> Flag:
        """The flag of this process, or that of the collector if its level is higher, with the stricter of the budgets.

        The collector also reads the spans of this process, later: a nudge delivered here is not delivered again.
        """
        if self.remote is None or flag.level is Level.STOP:
            return flag
        answer = self.ask_collector(trajectory, status, "", "flag")
        if answer is None:
            return flag
        asked = answer.flag
        if answer.budget is not None:
            flag = flag._replace(budget=stricter(flag.budget, answer.budget))
        if asked is not None and asked.by_hand is not None:
            self.board.adopt_hand_flag(trajectory, asked.by_hand)
            own = flag if flag.by_hand is not None else self.board.take(trajectory, run)
            return own._replace(budget=flag.budget)
        given = int(status.get("nudges_given", 0))
        if asked is None or flag.level is Level.NUDGE or (asked.level is Level.NUDGE and asked.nudges <= given):
            return flag
        return asked._replace(budget=flag.budget)

    # --- decision --------------------------------------------------------------------------------------------

    def _decision(
        self, trajectory: str, run: str, flag: Flag, messages: Sequence[Any], fresh: Sequence[StepRecord],
        status: Mapping[str, Any], *, peek: bool,
    ) -> GateDecision:  # fmt: skip
        scratchpad = [scratchpad_entry(step, redact=self.config.redact) for step in fresh]
        level, verdict, due = self._level_due(trajectory, flag, messages), flag.verdict, NOTHING
        if verdict is not None and level is not Level.OBSERVE:
            if level is Level.STOP and _may_stop(run, flag, messages, status):
                due = self._stop(trajectory, run, flag, verdict, scratchpad, status, peek=peek)
            else:
                due = self._nudge(trajectory, run, flag, verdict, level)
            self._announce(flag, verdict, due)
        status = status_after(
            trajectory, run, flag, due, status, scratchpad, max_score=self.board.config.max_score,
            collector_hand=self.board.remote_hands(trajectory), state=self._saved_state(trajectory, run),
        )  # fmt: skip
        return GateDecision(due.level, trajectory, due.nudge, due.payload, scratchpad, status, due.closing)

    def _level_due(self, trajectory: str, flag: Flag, messages: Sequence[Any]) -> Level:
        """The level of the flag as far as the mode allows it; nothing yet while a requested call has no answer."""
        level = self._allowed(flag.level)
        if level is not Level.OBSERVE and flag.verdict is not None and open_calls(messages):
            self._put_back(trajectory, flag)  # for the next opportunity
            return Level.OBSERVE
        return level

    def _nudge(self, trajectory: str, run: str, flag: Flag, verdict: Verdict, level: Level) -> Delivery:
        """The nudge that is due. Of a stop that is due too early: a nudge has to precede it in the run's messages."""
        text = verdict.nudge
        if level is Level.STOP:
            text = text or owed_nudge(verdict.detections, verdict.reason)
        if text is None:
            return NOTHING
        if flag.by_hand is None:  # the person's own words stay, and are no nudge on the ladder
            text = text_of(text_given(self.config.nudge_text, verdict), verdict, text, self.board.counts)
            of_others = is_advice(verdict) or (is_between(verdict.run) and not flag.remote)
            self.board.delivered(trajectory, verdict.run if of_others else run)
        return Delivery(Level.NUDGE, nudge=text)

    def _stop(
        self, trajectory: str, run: str, flag: Flag, verdict: Verdict, scratchpad: Sequence[Mapping[str, Any]],
        status: Mapping[str, Any], *, peek: bool,
    ) -> Delivery:  # fmt: skip
        """The stop that is due, with the text that the run ends with."""
        payload, closing = payload_of(flag, verdict, scratchpad, status, redact=self.config.redact), CLOSING
        if flag.by_hand is None:
            default = closing_text(verdict.detections, verdict.tool, verdict.brought, not_run=verdict.not_run)
            closing = text_of(self.config.stop_text, verdict, default, self.board.counts)
        if not peek:
            self.board.stopped(trajectory, run)
        return Delivery(Level.STOP, payload=payload, closing=closing)

    def _announce(self, flag: Flag, verdict: Verdict, due: Delivery) -> None:
        """Report what is delivered: a person's flag in full, the engine's own verdict was reported with its step."""
        if due.level is Level.OBSERVE:
            return
        if flag.by_hand is not None:
            publish_by_hand(verdict, self.board)
        intervention = Intervention(due.level, due.nudge or due.closing, verdict, due.payload or {}, True)
        notify(self.config.on_intervention, intervention, self.board.counts)

    def _put_back(self, trajectory: str, flag: Flag) -> None:
        if flag.by_hand is not None:
            self.board.put_back_hand_flag(trajectory, flag.by_hand)
        elif flag.verdict is not None:
            self.board.put_back(trajectory, flag.verdict)

    def _allowed(self, level: Level) -> Level:
        if self.config.mode == "observe" or (self.config.mode == "nudge" and level is Level.STOP):
            return Level.OBSERVE
        return level

    def _saved_state(self, trajectory: str, run: str | None) -> str | None:
        """The engine's state of the run, for ``_restore``: as text, because some checkpointers take JSON only."""
        saved = self.board.save(trajectory, run)
        return base64.b64encode(zlib.compress(saved, 1)).decode("ascii") if saved is not None else None


def _may_stop(run: str, flag: Flag, messages: Sequence[Any], status: Mapping[str, Any]) -> bool:
    """Whether a stop may be carried out: by a person, or after a nudge that the messages of this run hold."""
    if flag.by_hand is not None or status.get("nudged_run") == run:
        return True
    if flag.verdict is not None and is_between(flag.verdict.run) and not flag.remote:
        return True  # another agent was nudged, or the board would not ask for a stop
    return was_nudged(messages, status.get("advice_digests") or ())


def current_trace() -> str | None:
    """Id of the trace in which the gate decides, None if there is none."""
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}" if span.is_valid else None
