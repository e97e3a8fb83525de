"""From findings to a score, and from a score to an intervention: nudge first, stop last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from trajectory_guard.core.detectors.base import DetectionResult

_QUIET_STEPS: Final = 3
_QUIET_SCORE: Final = 0.5


class Level(str, Enum):
    """What the guard asks for after a step."""

    OBSERVE = "OBSERVE"
    NUDGE = "NUDGE"
    STOP = "STOP"

    def __str__(self) -> str:
        return self.value


class Episode:
    """One stretch of being stuck: from the first finding to recovery or stop. Also carries the score.

    Attributes:
        number: ordinal of the episode in its trajectory, from 1; 0 before the first.
        score: current score in [0, max_score].
        active: a finding has opened the episode and it has not been left yet.
        first_step: index of the first step of the loop, -1 outside an episode.
        types: loop types seen in the episode.
        hard: a finding of the episode that may lead to a stop was among them.
        nudged_batch: ordinal of the batch in which the nudge became due, -1 before.
        nudges: nudges due so far in the whole trajectory.
        stopped: a stop became due in this episode.
        recoveries: episodes left after a nudge, in the whole trajectory.
    """

    __slots__ = (
        "active",
        "base",
        "batch",
        "first_step",
        "hard",
        "hits",
        "nudged_batch",
        "nudges",
        "number",
        "quiet",
        "recoveries",
        "score",
        "stopped",
        "types",
    )

    def __init__(self) -> None:
        self.number = 0
        self.score = 0.0
        self.base = 0.0
        self.batch = 0
        self.hits: dict[str, float] = {}
        self.active = False
        self.first_step = -1
        self.types: list[str] = []
        self.hard = False
        self.nudged_batch = -1
        self.nudges = 0
        self.stopped = False
        self.quiet = 0
        self.recoveries = 0

    def absolve(self) -> None:
        """Back to a clean slate; ordinals and totals stay."""
        self.active, self.first_step, self.score, self.base, self.hits = False, -1, 0.0, 0.0, {}

    def to_plain(self) -> list[Any]:
        """All fields in slot order, JSON-able."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_plain(cls, data: list[Any]) -> Episode:
        """Restore ``to_plain``."""
        episode = cls()
        for name, value in zip(cls.__slots__, data, strict=True):
            setattr(episode, name, value)
        return episode


class Scorer:
    """Applies weights, decay, cap and the two thresholds.

    score = min(max_score, score + sum(weight * confidence)) when something fired, else score * decay. The calls of
    one batch count as one step of time: their findings are united and the decay is applied once.
    """

    __slots__ = ("decay", "max_score", "nudge_at", "stop_at", "weights")

    def __init__(
        self, *, weights: Mapping[str, float], nudge_at: float, stop_at: float, max_score: float, decay: float
    ) -> None:
        self.weights = dict(weights)
        self.nudge_at = nudge_at
        self.stop_at = stop_at
        self.max_score = max_score
        self.decay = decay

    def apply(self, episode: Episode, found: Iterable[DetectionResult], *, same_batch: bool) -> Level:
        """Update ``episode`` with the findings of one step and say what is due."""
        if not same_batch:
            episode.base, episode.hits = episode.score, {}
            episode.batch += 1
        fired = False
        for result in found:
            fired = True
            episode.hits[result.loop_type] = max(result.confidence, episode.hits.get(result.loop_type, 0.0))
        if episode.hits:
            gain = sum(self.weights[kind] * confidence for kind, confidence in episode.hits.items())
            episode.score = min(self.max_score, episode.base + gain)
        else:
            episode.score = episode.base * self.decay
        if fired:
            return self._intervene(episode, found)
        if not same_batch:
            self._maybe_close(episode)
        return Level.OBSERVE

    def _intervene(self, episode: Episode, found: Iterable[DetectionResult]) -> Level:
        self._open(episode, found)
        if episode.score < self.nudge_at:
            return Level.OBSERVE
        if episode.nudged_batch < 0:
            episode.nudged_batch = episode.batch
            episode.nudges += 1
            return Level.NUDGE
        may_stop = episode.score >= self.stop_at and episode.batch > episode.nudged_batch
        if may_stop and episode.hard:
            episode.stopped = True
            return Level.STOP
        return Level.NUDGE

    def _open(self, episode: Episode, found: Iterable[DetectionResult]) -> None:
        if not episode.active:
            episode.active = True
            episode.number += 1
            episode.first_step = min(result.details.get("first_step", 0) for result in found)
            episode.types, episode.hard, episode.nudged_batch, episode.stopped = [], False, -1, False
        episode.quiet = 0
        for result in found:
            episode.hard = episode.hard or not result.soft
            if result.loop_type not in episode.types:
                episode.types.append(result.loop_type)

    def _maybe_close(self, episode: Episode) -> None:
        if not episode.active:
            return
        episode.quiet += 1
        if episode.quiet >= _QUIET_STEPS and episode.score < _QUIET_SCORE:
            episode.active = False
            episode.first_step = -1
            episode.recoveries += episode.nudged_batch >= 0
