"""The part of the board that keeps scores: from a score to a verdict, and from a verdict to the agent it is about."""

from __future__ import annotations

import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trajectory_guard import telemetry
from trajectory_guard.board.by_hand import HandFlags
from trajectory_guard.board.entries import Entry
from trajectory_guard.board.flags import Flag
from trajectory_guard.callbacks import Intervention, notify
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.detectors.reported import QUALITY_DROP, QUALITY_RUN, TYPE_QUALITY
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.quality import Change, QualityRule, QualitySeries, TrajectoryQuality, check_score
from trajectory_guard.core.steps import Certainty, StepRecord
from trajectory_guard.logs import log_verdict
from trajectory_guard.process.containment import contain
from trajectory_guard.process.locks import looks_again
from trajectory_guard.quality.quality import API, JUDGE, Quality

if TYPE_CHECKING:
    from trajectory_guard.config import GuardConfig
    from trajectory_guard.quality.judge import Answer

MAX_NAME_CHARS: Final = 200
_log: Final = logging.getLogger(telemetry.LOGGER)


class _Added(NamedTuple):
    """A change that a score has made: the finding on a drop, and whether a gate gives advice to the agent."""

    trajectory_id: str
    found: DetectionResult | None
    measured: Mapping[str, Any]
    still_low: bool
    gated: bool


class QualityScores(HandFlags, ABC):
    """Scores of trajectories, their drops, and the nudges that follow from them. Thread-safe.

    Attributes:
        quality: rule, judge and sums; None while nothing is measured.
        publisher: writes a verdict into logs, trace and Langfuse; without one verdicts are only logged.
    """

    quality: Quality | None = None
    publisher: Callable[[Verdict], None] | None = None
    _has_warned = False

    def measure_quality(self, config: GuardConfig) -> None:
        """Measure as configured from now on; remembered scores stay."""
        before, self.quality = self.quality, None
        if before is not None:
            before.close()
        if not config.measures_quality:
            return
        quality = Quality(config.quality_rule, evaluations=config.quality_evaluations, counts=self.counts)
        if config.quality_judge is not None:
            from trajectory_guard.quality.judge import Judge

            quality.judge = Judge(
                config.quality_judge, self._judged, timeout_s=config.quality_timeout_s, sample=config.quality_sample,
                limit=config.quality_queue, counts=self.counts, redact=config.redact,
            )  # fmt: skip
        self.quality = quality

    # --- writing ---------------------------------------------------------------------------------------------

    def score(self, trajectory_id: str, value: float, name: str = "score", *, agent_name: str = "") -> Verdict | None:
        """Record the quality of an answer: the application's own evaluation, feedback of a user, a test.

        Does nothing but warn once while quality is not measured (``track_quality``); a wrong value is an error still.

        Parameters:
            trajectory_id: or a trace, thread or session id that it is known by.
            value: from 0 to 1, more is better.
            name: scores of one name are compared with each other.
            agent_name: whose answer it is, as spans or messages name it; empty where there is one agent only.

        Returns:
            The verdict if the score is the last of a drop, or of a recovery; else None.

        Raises:
            TypeError, ValueError: value, name or an id cannot be used.
        """
        score = check_score(value)
        if not isinstance(trajectory_id, str) or not trajectory_id:
            raise ValueError(f"trajectory_id: expected a text that is not empty, got {trajectory_id!r:.80}")
        for key, text, least in (("name", name, 1), ("agent_name", agent_name, 0)):
            if not isinstance(text, str) or not least <= len(text) <= MAX_NAME_CHARS:
                raise ValueError(f"{key}: expected a text of {least} to {MAX_NAME_CHARS} characters, got {text!r:.80}")
        if self.quality is None:
            self._warn_unmeasured(name)
            return None
        verdict = self.record_score(trajectory_id, score, name=name, source=API, agent=agent_name)
        self.publish_score(verdict)
        return verdict

    def _warn_unmeasured(self, name: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "trajectory_guard: the score %r is dropped: quality is not measured; GuardConfig(track_quality=True) "
                "measures it (logged once)", name,
            )  # fmt: skip

    def judge_answer(self, trajectory_id: str, request: str, response: str, *, agent_name: str = "") -> None:
        """Queue an answer for ``quality_judge``; gates do so themselves. Does nothing without a judge."""
        if self.quality is not None and self.quality.judge is not None:
            from trajectory_guard.quality.judge import Answer

            self.quality.judge.submit(Answer(trajectory_id, agent_name, request, response))

    def _judged(self, answer: Answer, score: float) -> None:
        self.publish_score(self.record_score(answer.trajectory, score, name=JUDGE, source=JUDGE, agent=answer.agent))

    def record_score(
        self, trajectory_id: str, score: float, *, name: str, source: str, agent: str = "", silent: bool = False
    ) -> Verdict | None:
        """Add a checked score to its series; returns the verdict on a drop or a recovery that is still to be published.

        Parameters:
            silent: the score belongs to the past: it counts for the trend, and nothing follows from it.
        """
        quality = self.quality
        if quality is None:
            return None
        quality.note(source, name, score)
        agent = agent[:MAX_NAME_CHARS]
        added = self._add(self.resolve_alias(trajectory_id), score, name, agent, quality.rule)
        if added is None or silent or (added.found is None and added.still_low):
            return None
        trajectory_id, found = added.trajectory_id, added.found
        label = QUALITY_RUN + agent
        step = StepRecord(
            uuid.uuid4().hex[:16], trajectory_id, name, None, None, agent_id=agent or None,
            timestamp=time.time(), run=label,
        )  # fmt: skip
        verdict = self.report(step, found, {**added.measured, "source": source})
        if found is None:
            self._clear_advice(trajectory_id, label)
            self.finish_recovery(trajectory_id, label)
        else:
            self.counts["quality.drops"] += 1
            self._mark_advised(trajectory_id, label, gated=added.gated)
        return verdict

    @looks_again
    def _add(self, trajectory_id: str, score: float, name: str, agent: str, rule: QualityRule) -> _Added | None:
        entry = self.entry(trajectory_id)
        with entry.lock:
            memory = _memory(entry)
            series = memory.series_of(agent, name)
            first = series.dropped_from is None
            change = series.add(score, rule)
            if change is None:
                return None
            found, measured = _finding(name, series, rule, first) if change is Change.DROPPED else (None, {})
            return _Added(entry.trajectory_id, found, measured, memory.is_low(agent), bool(memory.gates))

    @looks_again
    def _clear_advice(self, trajectory_id: str, label: str) -> None:
        """Clear advice that has not been delivered, and is no longer true."""
        with (entry := self.entry(trajectory_id)).lock:
            entry.flags.pop(label, None)

    @looks_again
    def _mark_advised(self, trajectory_id: str, label: str, *, gated: bool) -> None:
        with (entry := self.entry(trajectory_id)).lock:
            run = entry.state.runs.get(label)
            if run is not None:
                run.gated = gated

    def publish_score(self, verdict: Verdict | None) -> None:
        """Publish a verdict on scores; errors are contained."""
        if verdict is None or not verdict.detections:
            return
        try:
            if self.publisher is not None:
                self.publisher(verdict)
            else:
                log_verdict(verdict, redact=self.config.redact)
        except Exception:  # noqa: BLE001  a score must not break the application
            contain(self.counts, "quality", "a drop of quality could not be published")
        if verdict.intervenes and not self.is_gated(verdict.trajectory_id, verdict.run):
            notify(self.config.on_intervention, Intervention(verdict.level, "", verdict, {}, False), self.counts)

    # --- gates -----------------------------------------------------------------------------------------------

    @looks_again
    def new_messages(self, trajectory_id: str, gate: str | None, keys: Iterable[bytes]) -> tuple[int, bool]:
        """Record that a gate reads messages of a trajectory.

        Parameters:
            gate: name of its sub-graph, empty at the top, None if it is known already.
            keys: of the messages, the newest first; reading ends at the first one that was read before.

        Returns:
            How many of them are new, and whether no gate has read this trajectory before.
        """
        entry = self.entry(trajectory_id)
        with entry.lock:
            memory = _memory(entry)
            first = not memory.gates
            if gate is not None:
                memory.note_gate(gate)
            fresh: list[bytes] = []
            for key in keys:
                if key in memory.read:
                    break
                fresh.append(key)
            for key in reversed(fresh):
                memory.read.append(key)
            return len(fresh), first

    def has_advice(self, trajectory_id: str, agents: Collection[str] | None = None) -> bool:
        """Whether a nudge about quality waits for one of these agents; see ``advice``."""
        return self.advice(trajectory_id, agents, take=False) is not None

    @looks_again
    def advice(self, trajectory_id: str, agents: Collection[str] | None = None, *, take: bool = True) -> Verdict | None:
        """The verdict whose nudge about quality waits for one of these agents, None if there is none.

        Parameters:
            agents: names of the agents that the caller speaks to; the only agent with scores is always among them. None
                stands for all, as does every list where the graph at the top alone has a gate.
            take: clear it.
        """
        entry = self.find(trajectory_id)
        if entry is None or entry.quality is None:
            return None
        with entry.lock:
            scored, alone = entry.quality.agents, entry.quality.gates == {""}
            for agent in sorted(scored):
                flag = entry.flags.get(QUALITY_RUN + agent)
                if flag is None or flag.nudge is None:
                    continue
                if agents is None or agent in agents or len(scored) == 1 or alone:
                    verdict = flag.nudge
                    if take:
                        flag.pending = flag.nudge = None
                    return verdict
        return None

    def with_advice(self, trajectory_id: str, flag: Flag, *, take: bool) -> Flag:
        """The flag, or the advice of any agent where nothing else is due: for callers that name no run."""
        if self.quality is None or flag.level is not Level.OBSERVE:
            return flag
        verdict = self.advice(trajectory_id, take=take)
        return flag if verdict is None else flag._replace(level=Level.NUDGE, verdict=verdict)

    # --- of the board ----------------------------------------------------------------------------------------

    @abstractmethod
    def report(self, step: StepRecord, finding: DetectionResult | None, measured: Mapping[str, Any]) -> Verdict:
        """See ``FlagBoard``."""

    @abstractmethod
    def finish_recovery(self, trajectory_id: str, run: str) -> None:
        """See ``FlagBoard``."""


def is_advice(verdict: Verdict | None) -> bool:
    """Whether a verdict is about quality: it may nudge, and counts for no stop."""
    return verdict is not None and verdict.rule == QUALITY_DROP


def text_given(text: Any, verdict: Verdict | None) -> Any:
    """The configured text of a nudge; None where it is a template about calls, and the verdict is about answers."""
    of_calls = isinstance(text, str) and ("{tool" in text or "{count" in text)
    return None if of_calls and is_advice(verdict) else text


def clear_flags(entry: Entry) -> None:
    """Clear all flags but advice, which is about answers and not about steps."""
    for label in [label for label in entry.flags if not label.startswith(QUALITY_RUN)]:
        del entry.flags[label]


def carry_over(old: Entry, new: Entry) -> None:
    """Keep scores, and advice that waits, where a trajectory is begun again because its steps hid too much."""
    new.quality = old.quality
    for label, flag in old.flags.items():
        if label.startswith(QUALITY_RUN):
            new.flags[label] = flag


def join_scores(into: Entry, other: Entry) -> None:
    """Add the scores of an entry to those of another one, which turned out to be the same trajectory."""
    if other.quality is not None:
        _memory(into).join(other.quality)


def _memory(entry: Entry) -> TrajectoryQuality:
    if entry.quality is None:
        entry.quality = TrajectoryQuality()
    return entry.quality


def _finding(
    name: str, series: QualitySeries, rule: QualityRule, first: bool
) -> tuple[DetectionResult, dict[str, Any]]:
    """The finding of a drop, and the values it was computed from. ``first``: the scores were not low before."""
    trend = series.trend(rule)
    assert trend is not None  # the series has just dropped
    limits = {"drop": rule.drop, "floor": rule.floor, "deviations": rule.deviations if first else 0.0}
    measured = {"scores": list(series.scores), "recent": rule.recent, **limits}
    names = (name, f"{trend.before:.2f}", f"{trend.now:.2f}")
    found = DetectionResult(TYPE_QUALITY, 1.0, QUALITY_DROP, Certainty.LIKELY, rule.recent, 0, (0,), names)
    return found, measured
