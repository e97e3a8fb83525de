"""The engine: one step in, one verdict out. Pure, deterministic, bounded."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from trajectory_guard.config import GuardConfig, ToolPolicy
from trajectory_guard.core.answers import error_signature, looks_like_error
from trajectory_guard.core.budget import within_budget
from trajectory_guard.core.detectors import (
    REGISTRY,
    DetectionResult,
    Detector,
    Insanity,
    Observation,
    Phantom,
    SameEffect,
    Stutter,
)
from trajectory_guard.core.fingerprints import args_hash, digest64
from trajectory_guard.core.history import UNKNOWN, Symbol
from trajectory_guard.core.interventions import Spent, nudge_text, reason_text
from trajectory_guard.core.masking import masked_hash
from trajectory_guard.core.scoring import Level, Scorer
from trajectory_guard.core.similarity.cascade import Settle
from trajectory_guard.core.state import BATCH_MASK, MAX_LEARNED_CALLS, TrajectoryState
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, INTERRUPTED, REFUSED_BY_GUARD, Evidence, StepRecord
from trajectory_guard.core.tools import is_waiting
from trajectory_guard.core.volatile import Lesson, learn

_PENDING: Final = re.compile(
    r"\b(?:pending|running|in[ _-]?progress|queued|waiting|processing|not (?:yet )?(?:ready|finished|done|complete)"
    r"|still|starting|scheduled|accepted|202|building|deploying|unchanged so far)\b",
    re.IGNORECASE,
)
_MAX_PENDING_CHARS: Final = 200


class Verdict(NamedTuple):
    """What the engine says after a step.

    Fields:
        trajectory_id, step_id, step_index: which step (index from 0).
        score: loop score in [0, max_score]; health: 1 - score / max_score.
        level: OBSERVE, NUDGE or STOP.
        detections: what fired at this step, strongest first.
        episode: ordinal of the episode, 0 before the first.
        evidence: how much of the step was visible.
        reason: one sentence a person understands; empty if nothing fired.
        nudge: message for the model, only on the step at which a nudge becomes due.
        stop_due: this is the step at which a stop becomes due; ``level`` stays STOP while the loop goes on.
        first_step: index of the first step of the loop, -1 if none.
        spent: steps, seconds, tokens and money since the loop began.
        nudges: nudges due so far in this trajectory.
        recovered: this step left an episode in which a nudge had been due.
        tool: tool of the step.
        began: start of the step with which the episode began, in seconds; 0 before the first episode.
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
    began: float = 0.0
    stop_due: bool = False

    @property
    def types(self) -> list[str]:
        """Loop types that fired at this step."""
        return [found.loop_type for found in self.detections]

    @property
    def intervenes(self) -> bool:
        """Whether a nudge or a stop became due at this step; ``level`` stays what it is while the loop goes on."""
        return self.nudge is not None or self.stop_due


class Engine:
    """Judges steps. Holds configuration only: all memory is in the ``TrajectoryState`` it is handed.

    Not thread-safe per state: callers serialise the steps of one trajectory.

    Parameters:
        config: thresholds, weights, policies.
        settle: says whether two texts mean the same where the comparator cannot; must not block.
    """

    def __init__(self, config: GuardConfig | None = None, *, settle: Settle | None = None) -> None:
        self.config = config or GuardConfig()
        self._settle = settle
        self._scorer = Scorer(
            weights=self.config.weights, nudge_at=self.config.nudge_threshold, stop_at=self.config.stop_threshold,
            max_score=self.config.max_score, decay=self.config.decay,
        )  # fmt: skip
        enabled = [kind for kind in REGISTRY.values() if self.config.weights[kind.loop_type] > 0]
        self._factories = [self._factory(kind) for kind in enabled]
        self._no_policies = not self.config.tools

    def new_state(self, trajectory_id: str) -> TrajectoryState:
        """Empty state of a trajectory."""
        return TrajectoryState(trajectory_id, self.config.history_steps, self._detectors())

    def load_state(self, data: bytes) -> TrajectoryState:
        """State from its byte form; raises ``StateFormatError``."""
        return TrajectoryState.from_bytes(data, self._detectors())

    def _factory(self, kind: type[Detector]) -> Callable[[], Detector]:
        """How to get a detector for one trajectory. Those without state of their own are shared by all."""
        config = self.config
        if kind is Stutter:
            shared: Detector = Stutter(config.slow_gap_s, config.poll_patience)
            return lambda: shared
        if kind in (Phantom, SameEffect):
            shared = kind()
            return lambda: shared
        if kind is Insanity:
            return lambda: Insanity(redact=config.redact, settle=self._settle)
        return kind

    def _detectors(self) -> tuple[Detector, ...]:
        return tuple(factory() for factory in self._factories)

    def observe(self, state: TrajectoryState, step: StepRecord) -> Verdict | None:
        """Judge one step and update ``state``. None if the step does not count.

        A step does not count if it was seen before (same ``step_id``), if its tool is set to ``ignore``, or if the
        call was interrupted before it answered: it will come again.
        """
        policy = None if self._no_policies else self.config.policy(step.tool_name)
        if (
            step.outcome_type == INTERRUPTED
            or (policy is not None and policy.ignore)
            or self._is_duplicate(state, step)
        ):
            return None
        try:
            step = within_budget(step, self.config.max_understood_chars)
            seen = self._read(state, step, policy)
            found = self._detect(state, seen, policy)
        except BaseException:
            state.step_ids.forget_last()  # it did not become a step: ids and steps keep the same index
            raise
        before = (state.episode.active, state.episode.nudges, state.episode.stopped)
        episodes = state.episode.number
        level = self._scorer.apply(state.episode, found, same_batch=seen.same_batch)
        if state.episode.number > episodes:
            state.began = step.timestamp
        self._remember(state, step, seen)
        return self._verdict(state, seen, found, level, before)

    def repeats(self, state: TrajectoryState, tool: str, args: Any) -> int:
        """How often a call has returned its last answer since anything new came back; 0 if it was not made."""
        history = state.history
        hashed = args_hash(args)
        for agent in ("", *state.agents):
            call = _call_symbol(StepRecord("", "", tool, hashed, agent_id=agent or None))
            last = history.calls.last(call)
            if last >= 0 and history.results[last]:
                return len(history.since(max(0, state.last_news), call, history.results[last]))
        return 0

    # --- reading ---------------------------------------------------------------------------------------------

    def _is_duplicate(self, state: TrajectoryState, step: StepRecord) -> bool:
        key = _id_symbol(step.step_id)
        if key in state.step_ids:
            return True
        state.step_ids.append(key)
        return False

    def _read(self, state: TrajectoryState, step: StepRecord, policy: ToolPolicy | None) -> Observation:
        seen = Observation(step, state.index, _call_symbol(step), _result_symbol(step), state.frozen)
        seen.same_batch = self._joins_batch(state, step)
        if step.turn is not None and step.turn != state.turn:
            self._new_turn(state, step)
        if step.outcome_type == ERROR:
            seen.signature = error_signature(step.result, step.error_class)
        seen.last_news = state.last_news
        history = state.history
        previous = history.calls.last(seen.call)
        if previous >= 0:
            self._read_repeat(state, seen, previous, policy)
        else:
            seen.news = self._is_new(state, seen)
            state.last_fresh = state.index if seen.call else state.last_fresh
        if seen.signature is None and not seen.news and step.result and looks_like_error(step.result):
            seen.signature = error_signature(step.result, None)
        if state.frozen.update(seen) and not seen.moved:
            seen.news = False
        return seen

    def _joins_batch(self, state: TrajectoryState, step: StepRecord) -> bool:
        if step.batch is not None or state.batch_label is not None:
            return step.batch is not None and step.batch == state.batch_label
        return state.index > 0 and step.timestamp < state.batch_end and step.duration > 0

    def _new_turn(self, state: TrajectoryState, step: StepRecord) -> None:
        """The label of the user turn changed; the first one known is no change."""
        if state.turn is not None:
            state.start_turn(self.config.decay)
        state.turn = step.turn

    def _is_new(self, state: TrajectoryState, seen: Observation) -> bool:
        """Whether a call not made before brought something new."""
        if not seen.result or not seen.step.result or seen.step.outcome_type in (EMPTY, DENIED):
            return False
        return seen.result not in state.history.results

    def _read_repeat(self, state: TrajectoryState, seen: Observation, previous: int, policy: ToolPolicy | None) -> None:
        """A call made before: did it return the same (volatile parts aside)?"""
        history, step = state.history, seen.step
        if step.error_class == REFUSED_BY_GUARD:
            seen.result = history.results[previous]
        if not seen.result:
            return
        if history.results[previous] != seen.result and not history.returned(seen.call, seen.result):
            seen.result = self._settle_volatile(state, seen, previous)
            seen.news = seen.moved = history.results[previous] != seen.result
        if seen.news:
            return  # an answer this call gave before, though not the last time, is back and forth and no news
        own_news = state.news_of(step.agent_id)
        before = history.since(max(0, own_news), seen.call, seen.result)
        seen.others_progress = state.last_news > max(own_news, previous)
        seen.first_repeat = before[-1] if before else seen.index
        current = state.episode.batch + (not seen.same_batch)  # copies within one model turn count once
        seen.repeats = len({state.batch_of(at) for at in before} | {current & BATCH_MASK})
        self._continue_chain(state, seen, own_news, current & BATCH_MASK)
        seen.worked = state.last_fresh > previous
        seen.gap_s = self._idle_gap(state, step, previous)
        declared = policy is not None and policy.poll
        seen.pending = declared or _is_pending(step.result) or is_waiting(step.tool_name, step.args)
        if policy is not None and policy.idempotent and seen.repeats == 2:
            seen.repeats = 3

    def _continue_chain(self, state: TrajectoryState, seen: Observation, own_news: int, batch: int) -> None:
        """Count a long stutter beyond the window of remembered steps."""
        key = (seen.call + seen.result).hex()
        known, count, first, last_batch = state.chain
        if key == known and own_news <= first:
            count += batch != last_batch
            seen.repeats, seen.first_repeat = max(seen.repeats, count), min(seen.first_repeat, first)
        state.chain = (key, seen.repeats, seen.first_repeat, batch)

    def _idle_gap(self, state: TrajectoryState, step: StepRecord, previous: int) -> float:
        """Seconds between the last equal call and this one; running time aside where nothing came in between."""
        since = state.last_end if previous == state.index - 1 else state.start_of(previous)
        return max(0.0, step.timestamp - since) if since is not None and step.timestamp else 0.0

    def _settle_volatile(self, state: TrajectoryState, seen: Observation, previous: int) -> Symbol:
        """The symbol to use for an answer unlike the last one: the old symbol if only volatile parts differ.

        The masked form of the very first answer is never known (masking every answer would cost more than the rest
        of the engine), so the third answer is the first that can be recognised.
        """
        text = seen.step.result
        if text is None:
            return seen.result
        key = seen.call.hex()
        saved = state.learned.pop(key, None)
        lesson, noise = learn(Lesson(*saved) if saved is not None else None, masked_hash(text).hex(), text)
        state.learned[key] = list(lesson)
        if len(state.learned) > MAX_LEARNED_CALLS:
            del state.learned[next(iter(state.learned))]
        return state.history.results[previous] if noise else seen.result

    # --- judging ---------------------------------------------------------------------------------------------

    def _detect(
        self, state: TrajectoryState, seen: Observation, policy: ToolPolicy | None
    ) -> tuple[DetectionResult, ...]:
        found = []
        for detector in state.detectors:
            result = detector.update(seen, state.history)
            if result is not None:
                found.append(result)
        if not found:
            return ()
        factor = policy.weight if policy is not None else 1.0
        if factor != 1.0:
            found = [DetectionResult(f.loop_type, min(1.0, f.confidence * factor), f.details, f.soft) for f in found]
        weights = self.config.weights
        return tuple(sorted((f for f in found if f.detected), key=lambda f: -weights[f.loop_type] * f.confidence))

    def _remember(self, state: TrajectoryState, step: StepRecord, seen: Observation) -> None:
        if seen.news:
            state.note_news(step.agent_id)
        state.history.calls.append(seen.call)
        state.history.results.append(seen.result)
        if step.agent_id and step.agent_id not in state.agents:
            state.agents = (*state.agents[-7:], step.agent_id)
        self._remember_time(state, step, seen.same_batch)
        self._remember_usage(state, step)
        state.index += 1

    def _remember_time(self, state: TrajectoryState, step: StepRecord, same_batch: bool) -> None:
        end = step.timestamp + step.duration
        state.batch_end = min(state.batch_end, end) if same_batch else end
        state.batch_label = step.batch
        state.last_end = max(state.last_end, end)
        state.starts.append(step.timestamp)
        state.batches.append(state.episode.batch & BATCH_MASK)
        if len(state.starts) > len(state.history.calls):
            del state.starts[0], state.batches[0]

    def _remember_usage(self, state: TrajectoryState, step: StepRecord) -> None:
        if step.usage is None and not state.tokens:
            return
        if not state.tokens:
            missing = len(state.history.calls) - 1
            state.tokens.extend([0] * missing)
            state.costs.extend([0.0] * missing)
        if step.usage is not None:
            state.total_tokens += max(0, step.usage.tokens)
            state.total_cost += max(0.0, step.usage.cost_usd)
        state.tokens.append(state.total_tokens)
        state.costs.append(state.total_cost)
        if len(state.tokens) > len(state.history.calls):
            del state.tokens[0], state.costs[0]

    def _verdict(
        self, state: TrajectoryState, seen: Observation, found: tuple[DetectionResult, ...], level: Level,
        before: tuple[bool, int, bool],
    ) -> Verdict:  # fmt: skip
        episode, step = state.episode, seen.step
        score = episode.score
        base = (state.trajectory_id, step.step_id, seen.index, score, 1.0 - score / self.config.max_score, level)
        recovered = before[0] and not episode.active and episode.nudged_batch >= 0
        if not found:
            return Verdict(
                *base, episode=episode.number, evidence=step.evidence, nudges=episode.nudges, recovered=recovered,
                tool=step.tool_name, began=state.began,
            )  # fmt: skip
        first = min(episode.first_step, *(f.details.get("first_step", seen.index) for f in found))
        spent = self._spent(state, first, step)
        due = episode.nudges > before[1]
        excerpt = not self.config.redact
        reason = reason_text(found[0], step, spent, excerpt=excerpt)
        return Verdict(
            *base, detections=found, episode=episode.number, evidence=step.evidence, reason=reason,
            nudge=nudge_text(found, step, spent, excerpt=excerpt) if due else None, first_step=first, spent=spent,
            nudges=episode.nudges, tool=step.tool_name, began=state.began,
            stop_due=level is Level.STOP and not before[2],
        )  # fmt: skip

    def _spent(self, state: TrajectoryState, first: int, step: StepRecord) -> Spent:
        started = state.start_of(first)
        seconds = max(0.0, step.timestamp + step.duration - started) if started is not None else 0.0
        tokens, cost = state.spent_before(first + 1)
        return Spent(state.index - first - 1, seconds, state.total_tokens - tokens, state.total_cost - cost)


def _id_symbol(step_id: str) -> Symbol:
    try:
        symbol = bytes.fromhex(step_id)
    except ValueError:
        symbol = b""
    return symbol if len(symbol) == 8 else blake2b(step_id.encode("utf-8", "replace"), digest_size=8).digest()


def _call_symbol(step: StepRecord) -> Symbol:
    if step.tool_args_hash is None:
        return UNKNOWN
    agent = step.agent_id or ""
    return digest64(f"{step.tool_name.casefold()}\0{agent}\0{step.tool_args_hash}".encode("utf-8", "replace"))


def _result_symbol(step: StepRecord) -> Symbol:
    if step.state_snapshot_hash is None:
        return UNKNOWN
    return digest64(f"{step.outcome_type}\0{step.state_snapshot_hash}".encode("utf-8", "replace"))


def _is_pending(result: str | None) -> bool:
    return result is not None and len(result) <= _MAX_PENDING_CHARS and _PENDING.search(result) is not None
