"""The engine: one step in, one verdict out. Pure, deterministic, bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.core import policy as ladder_policy
from trajectory_guard.core.content.envelope import readable
from trajectory_guard.core.content.surroundings import without_surroundings
from trajectory_guard.core.detectors import REGISTRY, REPORTED, DetectionResult, Detector, DetectorSettings, weights
from trajectory_guard.core.detectors.base import TYPE_IV, signs_of
from trajectory_guard.core.explain.certificates import Certificate, certify
from trajectory_guard.core.explain.interventions import Spent, brought_by, nudge_text, reason_text
from trajectory_guard.core.fingerprints import Symbol, id_symbol
from trajectory_guard.core.history import amounts
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.policy import Decision, Level, Scorer
from trajectory_guard.core.reading import Reader
from trajectory_guard.core.run import Run
from trajectory_guard.core.settings import EngineSettings, ToolSettings, settings_or_defaults
from trajectory_guard.core.state import MAX_RUNS, Before, TrajectoryState
from trajectory_guard.core.steps import (
    INTERRUPTED,
    Certainty,
    Evidence,
    ModelTokens,
    StepRecord,
    weakest,
    with_known_times,
)
from trajectory_guard.core.text_bounds import within_limit
from trajectory_guard.core.tools import is_status_lookup
from trajectory_guard.core.tracking import model_calls, scope
from trajectory_guard.core.visits import AGENTS, Visit, advance, begins_request, relay_detectors


class Verdict(NamedTuple):
    """The engine's verdict on one step. All indices count the steps of the trajectory from 0.

    Fields:
        trajectory_id, step_id, step_index: identify the step.
        score: loop score of the run in [0, max_score]; health: 1 - score / max_score.
        level: OBSERVE, NUDGE or STOP.
        detections: findings at this step, strongest first.
        episode: ordinal in the trajectory, 0 before the first episode; evidence: how much of the step was visible.
        reason: one sentence for people; empty without a finding.
        nudge: message for the model, only on the step at which a nudge becomes due.
        first_step: index of the first step of the loop, -1 if none.
        spent: steps, seconds, tokens and USD since the loop began.
        nudges: nudges due so far in this trajectory.
        recovered: this step left an episode in which a nudge had been due.
        tool: tool of the step; episode_start_s: start of the episode, in seconds; 0 before the first episode.
        stop_due: this is the step at which a stop becomes due; ``level`` stays STOP while the loop goes on.
        run: label of the run; ordinal: ordinal of the nudge in its episode, from 1; 0 if no nudge became due.
        certificate: rule, parameters and facts behind the nudge or the stop, only on the step at which it becomes due.
        brought: kind of the step's result (``interventions.brought_by``), only where a stop is due.
        not_run: a gate answered the call without running it; only where a stop is due.
    """

    trajectory_id: str
    step_id: str
    step_index: int
    score: float
    health: float
    level: Level
    detections: tuple[DetectionResult, ...] = ()
    episode: int = 0
    evidence: Evidence = Evidence.FULL
    reason: str = ""
    nudge: str | None = None
    first_step: int = -1
    spent: Spent = Spent()
    nudges: int = 0
    recovered: bool = False
    tool: str = ""
    episode_start_s: float = 0.0
    stop_due: bool = False
    run: str = ""
    ordinal: int = 0
    certificate: Certificate | None = None
    brought: str = ""
    not_run: bool = False

    @property
    def types(self) -> list[str]:
        """Loop types that fired at this step."""
        return list(dict.fromkeys(finding.loop_type for finding in self.detections))

    @property
    def rule(self) -> str:
        """The rule behind the strongest finding; empty without a finding."""
        return self.detections[0].rule if self.detections else ""

    @property
    def certainty(self) -> Certainty | None:
        """The certainty of the strongest finding; None without a finding."""
        return self.detections[0].certainty if self.detections else None

    @property
    def intervenes(self) -> bool:
        """Whether a nudge or a stop became due at this very step; ``level`` stays unchanged while the loop goes on."""
        return self.nudge is not None or self.stop_due

    def with_certificate_of(self, before: Verdict | None) -> Verdict:
        """This verdict with the certificate of an earlier one, if that certifies the intervention that still holds.

        A gate may act later than the step at which the intervention became due.
        """
        if before is None or self.certificate is not None:
            return self
        same = (before.episode, before.run, before.level) == (self.episode, self.run, self.level)
        return self._replace(certificate=before.certificate) if same else self


_NOTHING_SPENT: Final = Spent()
_Evaluated = tuple[Run, Observation, Decision, Verdict]
"""An evaluated step of a run that is not in the state yet."""


class Engine:
    """Evaluates steps. It holds settings only: all memory is in the ``TrajectoryState`` that the caller passes.
    Not thread-safe per state: callers serialise the steps of one trajectory.

    Parameters:
        settings: thresholds, weights, policies; the defaults if None.
        settle: decides whether two texts mean the same where the comparator cannot; None: it does not know yet.
        price: USD for a model's name, input and output tokens for which the telemetry gives no cost, each time the
            cost is read; 0 if it is unknown. Neither function may block.

    Raises:
        TypeError: ``settings`` are no ``EngineSettings``; a ``GuardConfig`` gives them by ``engine_settings()``.
    """

    def __init__(
        self, settings: EngineSettings | None = None, *, settle: Callable[[str, str], bool | None] | None = None,
        price: Callable[[str, int, int], float] | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings = settings_or_defaults(settings)
        self.price = price
        self._weights = {**{one.loop_type: one.weight for one in REPORTED}, **weights(), **settings.weights}
        self._scorer = Scorer(weights=self._weights, max_score=settings.max_score, decay=settings.decay)
        self._reader = Reader(settings)
        given, kinds = DetectorSettings(redact=settings.redact, settle=settle), (*REGISTRY.values(), *REPORTED)
        self._factories = [_factory(kind, given) for kind in REGISTRY.values() if self._weights[kind.loop_type] > 0]
        self._laps = self._weights[TYPE_IV] > 0
        self._only_nudged = frozenset(
            rule for kind in kinds if not kind.may_stop for rule in kind.rules if rule not in kind.stopping_rules
        )
        self._lenient = frozenset(rule for kind in kinds if not kind.insists for rule in kind.rules)

    def new_state(self, trajectory_id: str) -> TrajectoryState:
        """Empty state of a trajectory."""
        return TrajectoryState(trajectory_id, self.settings.history_steps)

    def load_state(self, data: bytes) -> TrajectoryState:
        """Restore a state from its byte form; raises ``StateFormatError``."""
        return TrajectoryState.from_bytes(data, self._detectors)

    def _detectors(self) -> tuple[Detector, ...]:
        return tuple(factory() for factory in self._factories)

    # --- one step --------------------------------------------------------------------------------------------

    def observe(self, state: TrajectoryState, step: StepRecord) -> Verdict | None:
        """Evaluate one step and update ``state``. None if the step does not count.

        A step does not count if it was seen before (same ``step_id``), if its tool is set to ``ignore``, or if the
        call was interrupted before it returned: it will be made again. A step that raises leaves the state unchanged.
        A model call counts from its first repeat on, with the call that it repeats as a step before it. If the repeat
        raises, that first call stays counted, and the next repeat is the first one again.
        """
        step = with_known_times(step)
        if step.model_scope in (None, model_calls.IN_MESSAGES):
            return self._observe(state, step)
        return self._observe_model_call(state, step)

    def _observe_model_call(self, state: TrajectoryState, step: StepRecord) -> Verdict | None:
        policy = self.settings.tool(step.tool_name)
        if (policy is not None and policy.ignore) or id_symbol(step.step_id) in state.step_ids:
            return None
        (step, label), before = scope.run_of_model_call(step, state.turns, state.runs), state.model_calls
        newest, repeated = model_calls.advance(before.get(label, ()), step, redact=self.settings.redact)
        state.note_model_calls(label, newest)
        if repeated is None:
            return None
        try:
            if repeated.times == 2:
                self._observe(state, repeated.first_step(step))
            return self._observe(state, step)
        except BaseException:
            state.model_calls = before
            raise

    def _observe(self, state: TrajectoryState, step: StepRecord) -> Verdict | None:
        policy = self.settings.tool(step.tool_name) if self.settings.tools else None
        if step.outcome_type == INTERRUPTED or (policy is not None and policy.ignore):
            return None
        if (key := id_symbol(step.step_id)) in state.step_ids:
            return None
        step = within_limit(readable(step), self.settings.max_understood_chars)
        label = scope.run_label(step, state.turns)
        run = state.runs.get(label)
        newest = run.batch_label if run is not None else None
        if run is None or (newest and step.batch and step.batch < newest and scope.is_restart(run, step.batch)):
            run = Run(label, state.capacity, self._detectors(), scope.superstep(step.batch))  # not yet in the state
        step, around = without_surroundings(step, state.around, state.index, run.knows_call)
        if state.model_calls and step.model_scope is None:
            step = model_calls.with_thought(step, state.model_calls.get(label, ()))
        before, relay, visit = Before(state, run), state.relay, state.visit
        lap = ended = None
        try:
            evaluated = self._evaluate(state, run, step, policy)
            if step.agent_id:
                visit, ended = advance(visit, step, evaluated[1], label, state.index)
            if ended is not None and self._laps:
                if (hands_over := ended.agent != step.agent_id or ended.may_repeat) or relay is not None:
                    relay = self._relay_of(state, ended, step)
                if hands_over and relay is not None:
                    before.keep(relay)
                    lap = self._evaluate(state, relay, ended.record(step), None, likely=True)
        except BaseException:
            before.restore()
            raise
        self._remember(state, evaluated, key)
        state.visit, state.relay, state.around = visit, relay, around
        if lap is None or ended is None:
            return evaluated[3]
        self._count(state, lap, ended.first)
        if ended.trace == step.trace_id:
            lap[0].trace_id = step.trace_id
        return self._weightier(state, evaluated[3], lap)

    def _evaluate(
        self, state: TrajectoryState, run: Run, step: StepRecord, policy: ToolSettings | None, *, likely: bool = False
    ) -> _Evaluated:
        """Evaluate a step of a run; if this raises, the caller has to restore the state.

        Parameters:
            likely: limit the certainty of every finding to ``Certainty.LIKELY``.
        """
        observation = self._reader.read(state, run, step, policy)
        findings = self._detect(run, observation, policy, likely=likely)
        may_stop = run.stoppable if run.gated else self.settings.may_stop
        may_stop = may_stop and not (policy is not None and policy.never_stop)
        return self._decide(state, run, observation, findings, new_batch=not observation.same_batch, may_stop=may_stop)

    def _decide(
        self, state: TrajectoryState, run: Run, observation: Observation, findings: tuple[DetectionResult, ...], *,
        new_batch: bool, may_stop: bool, measured: Mapping[str, Any] | None = None,
    ) -> _Evaluated:  # fmt: skip
        """Apply the findings of a step to score and ladder; if this raises, the caller has to restore the state."""
        decisive, towards = ladder_policy.decisive(findings, self._only_nudged)
        self._scorer.apply(run.score, findings, new_batch=new_batch)
        decision = ladder_policy.decide(
            run.ladder, decisive, run.score.value, self.settings, new_batch=new_batch, progress=observation.progress,
            now=observation.step.timestamp, at=run.index, may_stop=may_stop, may_be_new=observation.may_be_new,
            towards_stop=towards, insists=not (decisive and decisive[0].rule in self._lenient),
        )  # fmt: skip
        return run, observation, decision, self._verdict(state, run, observation, findings, decision, measured)

    def report(
        self, state: TrajectoryState, step: StepRecord, finding: DetectionResult | None, measured: Mapping[str, Any]
    ) -> Verdict:
        """Evaluate the output of a graph node that a gate has measured itself, in a run of its own.

        An output that raises, as for incomplete values, leaves the state unchanged.

        Parameters:
            step: the output; ``run`` names the gate and the node.
            finding: that of the gate, with indices counted from this output (0, -1, …); None for an output without one.
            measured: the values behind it, for the certificate.
        """
        step = with_known_times(step)
        label = scope.run_label(step, state.turns)
        run = state.runs.get(label) or Run(label, state.capacity, ())
        observation = Observation(step, run.index, run.same_results)
        observation.progress = finding is None
        findings: tuple[DetectionResult, ...] = ()
        if finding is not None and self._weights[finding.loop_type] > 0:
            steps = tuple(run.index + at for at in finding.steps if run.index + at >= 0)
            findings = (finding._replace(first_step=max(0, run.index + finding.first_step), steps=steps),)
        before = Before(state, run)
        try:
            evaluated = self._decide(
                state, run, observation, findings, new_batch=True, may_stop=self.settings.may_stop, measured=measured
            )
        except BaseException:
            before.restore()
            raise
        current = state.current
        self._remember(state, evaluated, id_symbol(step.step_id))
        state.current = current if current in state.runs else label  # the run that acted last is still the agent's
        return evaluated[3]

    # --- loops between agents --------------------------------------------------------------------------------

    def _relay_of(self, state: TrajectoryState, ended: Visit, step: StepRecord) -> Run:
        """The run whose steps are the visits of the user turn. Its trace is that of the last hand-over within one."""
        label = scope.label_of(AGENTS, state.turns.get(""))
        run = state.relay
        pause = run is not None and 0.0 < run.last_end <= step.timestamp - self.settings.slow_gap_s
        if run is None or run.label != label or pause or begins_request(run.trace_id, ended, step, state.turns):
            return Run(label, state.capacity, relay_detectors())
        return run

    def _weightier(self, state: TrajectoryState, own: Verdict, lap: _Evaluated) -> Verdict:
        """The verdict on the sequence of agents if it outweighs the verdict on the agent's own run, else the latter."""
        run, _, _, verdict = lap
        weighs_more = verdict.intervenes or verdict.recovered or (bool(verdict.detections) and not own.detections)
        if own.intervenes or own.recovered or not weighs_more:
            return own
        return verdict._replace(episode=run.ladder.episode, nudges=state.nudges)

    def _detect(
        self, run: Run, observation: Observation, policy: ToolSettings | None, *, likely: bool
    ) -> tuple[DetectionResult, ...]:
        if observation.counted or (observation.copy_of >= 0 and not observation.is_surplus):
            return ()  # several times on purpose; copies within one batch count once, whatever the rule
        run.note_memory(observation)
        findings = []
        signs, of_model_calls = signs_of(observation), observation.step.model_scope is not None
        for detector in run.detectors:
            if detector.asked_at & signs and detector.of_model_calls is of_model_calls:
                finding = detector.update(observation)
                if finding is not None:
                    findings.append(finding)
        if not findings:
            return ()
        factor = policy.weight if policy is not None else 1.0
        kept = []
        for finding in findings:
            if factor != 1.0:
                finding = finding._replace(confidence=min(1.0, finding.confidence * factor))
            if likely or observation.unclear or finding.first_step < run.boundary:
                limit = Certainty.ACKNOWLEDGED if observation.unclear else Certainty.LIKELY
                finding = finding._replace(certainty=weakest(finding.certainty, limit))
            if finding.detected:
                kept.append(finding)
        kept.sort(key=lambda one: (one.rule in self._only_nudged, -self._weights[one.loop_type] * one.confidence))
        return tuple(kept)

    # --- writing the state -----------------------------------------------------------------------------------

    def _remember(self, state: TrajectoryState, evaluated: _Evaluated, key: Symbol) -> None:
        """Write the evaluated step into the state. Nothing here can fail."""
        run, observation, _, _ = evaluated
        step = observation.step
        state.step_ids.append(key)
        self._enter(state, run, step)
        if step.model_scope is None and state.model_calls:
            state.note_model_calls(run.label, ())
        if (
            run.index
            and observation.repeats == 0
            and not (observation.result_changed or observation.same_batch)
            and step.timestamp
            and not is_status_lookup(step.tool_name)
        ):
            run.rhythm_s = scope.next_rhythm(run, observation.gap_s)
        if step.agent_id and step.agent_id not in run.agents:
            run.agents = (*run.agents[-3:], step.agent_id)
        self._count(state, evaluated, state.index)
        state.note_work(observation)
        if step.usage is not None or run.usage.tokens:
            run.usage.append(run.index - 1, step.usage, len(run.history.calls))
        state.index += 1

    def _count(self, state: TrajectoryState, evaluated: _Evaluated, place: int) -> None:
        """Add an evaluated step to its run, and its decision to the counts of the trajectory."""
        run, observation, decision, _ = evaluated
        if decision.opened:
            state.episodes += 1
            run.ladder.episode = state.episodes
            run.episode_start_s = observation.step.timestamp
        state.nudges += bool(decision.nudge)
        state.recoveries += decision.recovered
        if decision.nudge and run.gated:
            run.ladder.nudge_undelivered = True
        run.remember(observation, place)

    def _enter(self, state: TrajectoryState, run: Run, step: StepRecord) -> None:
        """Make the run the current one."""
        instance, turn = step.run or "", step.turn if step.turn is not None else step.asked
        if turn is not None and state.turns.get(instance) != turn:
            denied = state.denied  # the reader has cleared it already, and may have entered this step
            state.begin_turn(instance, turn)
            state.denied = denied
        if state.current != run.label or not run.index or len(state.runs) > MAX_RUNS:  # no steps: a new one
            state.restarts += state.enter_run(run) not in (None, run)
            state.current = run.label
        if step.trace_id is not None:
            run.trace_id = step.trace_id

    # --- verdicts --------------------------------------------------------------------------------------------

    def _verdict(
        self, state: TrajectoryState, run: Run, observation: Observation, findings: tuple[DetectionResult, ...],
        decision: Decision, measured: Mapping[str, Any] | None = None,
    ) -> Verdict:  # fmt: skip
        step, score = observation.step, run.score.value
        episode = state.episodes + 1 if decision.opened else run.ladder.episode
        episode_start_s = step.timestamp if decision.opened else run.episode_start_s
        nudges = state.nudges + bool(decision.nudge)
        common = (state.trajectory_id, step.step_id, state.index, score, 1.0 - score / self.settings.max_score)
        if not findings:  # most steps: by position, in the order of the fields, since keywords cost twice the time
            return Verdict(
                *common, decision.level, (), episode, step.evidence, "", None, -1, _NOTHING_SPENT, nudges,
                decision.recovered, step.tool_name, episode_start_s, False, run.label,
            )  # fmt: skip
        first = max(0, min(run.ladder.first_step, *[finding.first_step for finding in findings]))
        excerpt = not self.settings.redact
        kind, not_run = brought_by(step) if decision.level is Level.STOP else ("", False)
        reason = reason_text(findings[0], step, excerpt=excerpt)
        nudge = nudge_text(findings, step, reason, decision.nudge, excerpt=excerpt) if decision.nudge else None
        placed = tuple([_placed(finding, run, state.index) for finding in findings])
        certificate = None if decision.ladder_values is None else certify(
            findings[0], observation, run, decision, self.settings, trajectory_id=state.trajectory_id,
            step_id=id_symbol(step.step_id), weights=self._weights, place=state.index, measured=measured,
        )  # fmt: skip
        return Verdict(
            *common, level=decision.level, detections=placed, episode=episode, evidence=step.evidence,
            reason=reason, nudge=nudge, first_step=run.history.place_of(first, state.index), nudges=nudges,
            spent=self._spent(run, observation, first), tool=step.tool_name, episode_start_s=episode_start_s,
            stop_due=decision.stop_due, run=run.label, ordinal=decision.nudge, certificate=certificate,
            brought=kind, not_run=not_run,
        )  # fmt: skip

    def _spent(self, run: Run, observation: Observation, first: int) -> Spent:
        step = observation.step
        started = run.started(first) if first < run.index else step.timestamp
        seconds = max(0.0, step.timestamp + step.duration - started) if started is not None else 0.0
        tokens, cost, unpriced = run.usage.after(first)
        if step.usage is not None and first < run.index:
            asked, paid = amounts(step.usage)
            tokens, cost = tokens + asked, cost + paid
            unpriced = (*unpriced, *step.usage.unpriced)
        return Spent(
            run.index - first + run.history.copies_after(first), seconds, tokens, cost + self._priced(unpriced)
        )

    def _priced(self, unpriced: tuple[ModelTokens, ...]) -> float:
        price = self.price
        return 0.0 if price is None else sum(price(one.model, one.input_tokens, one.output_tokens) for one in unpriced)

    # --- events reported by shells ---------------------------------------------------------------------------

    def delivered(self, state: TrajectoryState, label: str) -> None:
        """Record that a gate delivered the nudge to the agent of this run; the ladder counts from this step."""
        run = state.run_named(label)
        if run is not None:
            ladder_policy.delivered(run.ladder)

    def reset_episode(self, state: TrajectoryState, label: str | None = None) -> None:
        """End the episode because a person dismissed the finding: the score becomes 0 and has to build up again."""
        run = state.run if label is None else state.runs.get(label)
        if run is not None:
            ladder_policy.reset_episode(run.ladder)
            run.score.clear()
            run.forget_repeats()

    def end_run(self, state: TrajectoryState, label: str) -> Verdict | None:
        """End the run and its episode. Returns a verdict if the run recovered from a loop, else None."""
        state.note_model_calls(label, ())
        run = state.runs.get(label)
        if run is None:
            return None
        verdict = self.finish_recovery(state, label)
        ladder_policy.reset_episode(run.ladder)
        run.score.clear()
        run.forget_repeats()
        return verdict

    def finish_recovery(self, state: TrajectoryState, label: str) -> Verdict | None:
        """Close the episode of a run that pauses or ends. Returns a verdict if it recovered from a loop, else None."""
        run = state.runs.get(label)
        if run is None or not ladder_policy.finish_recovery(run.ladder):
            return None
        run.score.clear()
        state.recoveries += 1
        last = state.step_ids[state.step_ids.start + len(state.step_ids) - 1].hex()
        return Verdict(
            state.trajectory_id, last, max(0, state.index - 1), 0.0, 1.0, Level.OBSERVE, episode=run.ladder.episode,
            nudges=state.nudges, recovered=True, episode_start_s=run.episode_start_s, run=label,
        )  # fmt: skip


def _placed(finding: DetectionResult, run: Run, newest: int) -> DetectionResult:
    """A finding with indices of the trajectory instead of the run; ``newest`` is the index of this step."""
    first, steps = run.history.place_of(finding.first_step, newest), run.history.places_of(finding.steps, newest)
    unchanged = first == finding.first_step and steps == finding.steps
    return finding if unchanged else finding._replace(first_step=first, steps=steps)


def _factory(kind: type[Detector], settings: DetectorSettings) -> Callable[[], Detector]:
    """A factory of detectors for one run. All runs share a detector without memory."""
    if not kind.shared:
        return lambda: kind.from_settings(settings)
    shared = kind.from_settings(settings)
    return lambda: shared
