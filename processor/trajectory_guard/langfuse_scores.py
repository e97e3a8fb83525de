"""Which scores Langfuse gets of a verdict, and when: pure, so that every shell writes the same ones.

Two scores for each trace and episode, written when a nudge becomes due, when a stop does, and when the agent recovers:
``trajectory_health`` (NUMERIC, 1 is well) and ``loop_detected`` (BOOLEAN). Where the trajectory is a conversation the
session gets both too. Langfuse takes a second score with the same id and timestamp for an update of the first; both
follow from the trajectory alone, so a restart or a second delivery of the spans writes the same scores again.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import clip
from trajectory_guard.core.scoring import Level

HEALTH: Final = "trajectory_health"
LOOP: Final = "loop_detected"
NUMERIC: Final = "NUMERIC"
BOOLEAN: Final = "BOOLEAN"
_NAMESPACE: Final = UUID("b0d2f6de-5f0c-5a39-9a6e-3f4d6f0f0b6c")
_ENVIRONMENT_KEYS: Final = ("langfuse.environment", "deployment.environment.name", "deployment.environment")
_ENVIRONMENT: Final = re.compile(r"[a-z0-9_-]{1,40}")
_RESERVED: Final = re.compile(r"^(?:langfuse[-_]?)+")
_MAX_COMMENT_CHARS: Final = 1_000
_MAX_ID_CHARS: Final = 200
_MAX_TARGETS: Final = 64


class Stage(IntEnum):
    """How far an episode has come; it never goes back."""

    NUDGE = 1
    STOP = 2
    RECOVERED = 3


class Score(NamedTuple):
    """One score as Langfuse's API takes it.

    Fields:
        id: the same for the same name, target and episode.
        name, value, data_type: ``trajectory_health`` is NUMERIC, ``loop_detected`` BOOLEAN with 1 or 0.
        timestamp: seconds since the epoch, when the episode began; an update has to repeat it.
        trace_id, session_id: one of the two.
        comment: for people.
        metadata: trajectory, episode, intervention, loop types and what the loop has cost.
        environment: Langfuse's environment, None for its default.
    """

    id: str
    name: str
    value: float
    data_type: str
    timestamp: float
    trace_id: str | None
    session_id: str | None
    comment: str
    metadata: Mapping[str, Any]
    environment: str | None = None


class Target(NamedTuple):
    """What a score is attached to: a trace, or a session if ``is_session``."""

    id: str
    is_session: bool = False


def stage_of(verdict: Verdict) -> Stage | None:
    """What there is to write of a verdict; None for weak signals and for loops that just go on."""
    if verdict.recovered:
        return Stage.RECOVERED
    if not verdict.detections:
        return None
    if verdict.level is Level.STOP:
        return Stage.STOP
    return Stage.NUDGE if verdict.nudge is not None else None


def targets_of(verdict: Verdict, trace_id: str | None) -> list[Target]:
    """The trace, and the session if the trajectory is a conversation whose id Langfuse takes for one."""
    name = verdict.trajectory_id
    session = name != trace_id and 0 < len(name) <= _MAX_ID_CHARS and name.isascii()
    return [*([Target(trace_id)] if trace_id else []), *([Target(name, is_session=True)] if session else [])]


def scores_of(
    verdict: Verdict, stage: Stage, target: Target, *, timestamp: float, environment: str | None, redact: bool
) -> list[Score]:
    """The scores of one target. A recovery brings health back; that a loop was detected stays true."""
    values = {HEALTH: (NUMERIC, round(verdict.health, 6)), LOOP: (BOOLEAN, 1.0)}
    if stage is Stage.RECOVERED:
        del values[LOOP]
    kind = "session:" if target.is_session else ""
    return [
        Score(
            id=str(uuid5(_NAMESPACE, f"{kind}{target.id}:{name}:{verdict.episode}")),
            name=name,
            value=value,
            data_type=data_type,
            timestamp=round(timestamp, 3),
            trace_id=None if target.is_session else target.id,
            session_id=target.id if target.is_session else None,
            comment=_comment(verdict, stage, redact=redact),
            metadata=_metadata(verdict, stage),
            environment=environment,
        )
        for name, (data_type, value) in values.items()
    ]


def environment_of(attributes: Mapping[str, Any], resource: Mapping[str, Any]) -> str | None:
    """The environment Langfuse gives a trace with these span and resource attributes, None for its default.

    >>> environment_of({}, {"deployment.environment.name": "Production"})
    'production'
    """
    for key in _ENVIRONMENT_KEYS:
        value = attributes.get(key) or resource.get(key)
        if value:
            name = _RESERVED.sub("", str(value).lower())[:40]
            return name if _ENVIRONMENT.fullmatch(name) else None
    return None


def _comment(verdict: Verdict, stage: Stage, *, redact: bool) -> str:
    if stage is Stage.RECOVERED:
        return f"The agent left the loop of episode {verdict.episode} after a nudge, at step {verdict.step_index + 1}."
    reason = "" if redact else f"{verdict.reason} "
    spent = verdict.spent
    cost = f", {spent.tokens:,} tokens" if spent.tokens else ""
    cost += f", {spent.cost_usd:.4f} USD" if spent.cost_usd else ""
    told = (
        f"{stage.name} at step {verdict.step_index + 1} in episode {verdict.episode} ({', '.join(verdict.types)};"
        f" nudges so far: {verdict.nudges}). In the loop: {spent.steps} steps, {spent.seconds:.0f} s{cost}."
    )
    return clip(reason, _MAX_COMMENT_CHARS - len(told)) + (" " if reason else "") + told


def _metadata(verdict: Verdict, stage: Stage) -> dict[str, Any]:
    return {
        "trajectory_id": verdict.trajectory_id[:_MAX_ID_CHARS],
        "episode": verdict.episode,
        "intervention": stage.name,
        "types": verdict.types,
        "loop_score": round(verdict.score, 4),
        "step_index": verdict.step_index,
        "nudges": verdict.nudges,
        "evidence": str(verdict.evidence),
        "spent": verdict.spent._asdict(),
    }


EpisodeKey = tuple[str, str, int]
"""Scope, trajectory id, and ordinal of the episode."""


class Episode:
    """What was written of one episode: its timestamp, and how far each target has come."""

    __slots__ = ("stages", "timestamp")

    def __init__(self, timestamp: float, stages: dict[Target, Stage] | None = None) -> None:
        self.timestamp = timestamp
        self.stages = stages if stages is not None else {}


class ScoreBook:
    """Knows what was written already, so that a score is written on change only. Not thread-safe.

    Parameters:
        max_episodes: episodes remembered; of a forgotten one the same scores are written once more.
        on_change: hears the key of an episode in which something was written, or which was forgotten.
    """

    def __init__(self, max_episodes: int, *, on_change: Callable[[EpisodeKey], None] = lambda key: None) -> None:
        self._max_episodes = max_episodes
        self._on_change = on_change
        self.episodes: OrderedDict[EpisodeKey, Episode] = OrderedDict()

    def changes(
        self, verdict: Verdict, trace_id: str | None, *, scope: str = "", environment: str | None = None,
        redact: bool = False, now: float = 0.0,
    ) -> list[Score]:  # fmt: skip
        """Scores that are to be written because of a verdict; none if nothing has changed.

        A recovery is written to every trace and session that was told of the loop.

        Parameters:
            verdict: what was found.
            trace_id: trace of the step.
            scope: keeps equal trajectory ids of different tenants apart.
            environment: of the trace.
            redact: leave the reason out.
            now: seconds since the epoch, the timestamp if spans carry no time.
        """
        stage = stage_of(verdict)
        if stage is None:
            return []
        key = (scope, verdict.trajectory_id, verdict.episode)
        episode = self.episodes.get(key)
        if episode is None:
            if stage is Stage.RECOVERED:
                return []
            episode = self._begin(key, verdict.began if verdict.began > 0 else now)
        scores = []
        for target in self._advance(episode, stage, targets_of(verdict, trace_id)):
            scores += scores_of(
                verdict, stage, target, timestamp=episode.timestamp, environment=environment, redact=redact
            )
        if scores:
            self._on_change(key)
        return scores

    def _begin(self, key: EpisodeKey, timestamp: float) -> Episode:
        episode = self.episodes[key] = Episode(timestamp)
        if len(self.episodes) > self._max_episodes:
            forgotten, _ = self.episodes.popitem(last=False)
            self._on_change(forgotten)
        return episode

    def _advance(self, episode: Episode, stage: Stage, targets: Iterable[Target]) -> list[Target]:
        """The targets for which the stage is new."""
        stages = episode.stages
        known = list(stages) if stage is Stage.RECOVERED else list(targets)
        changed = [one for one in known if stages.get(one, 0) < stage and (one in stages or len(stages) < _MAX_TARGETS)]
        stages.update(dict.fromkeys(changed, stage))
        return changed
