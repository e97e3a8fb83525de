"""The Langfuse scores of a verdict. Pure functions, so that every shell writes the same scores.

Each trace and episode gets two scores when a nudge (each of them) or a stop becomes due and when the agent recovers:
``trajectory_health`` (NUMERIC, 1 is healthy) and ``loop_detected`` (BOOLEAN). A Langfuse session gets both, too.
Langfuse treats a second score with the same id and timestamp as an update of the first.

The id is computed from the name, the trace or session, and the start of the episode in microseconds. It uses span data
only, because another process may not know the trajectory id or the episode number: ordinals restart with every process
and with every evicted trajectory. So a second delivery or a second collector writes the same scores again. Loops of two
workers, conversations or tenants do not begin in the same microsecond of the same trace or session.

Late steps may move the start of an episode. Its scores keep the start that was written first: an ordinal denotes the
episode known under it, unless the start lies after the newest step of that episode. In that case the trajectory was
evicted in between and counts from 1 again, and the scores belong to another loop.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

from trajectory_guard.core.detectors.reported import QUALITY_RUN
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.text import clip, encodable

HEALTH: Final = "trajectory_health"
LOOP: Final = "loop_detected"
NUMERIC: Final = "NUMERIC"
BOOLEAN: Final = "BOOLEAN"
_NAMESPACE: Final = UUID("b0d2f6de-5f0c-5a39-9a6e-3f4d6f0f0b6c")
_SESSION_KEYS: Final = (
    "langfuse.session.id",
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.observation.metadata.langfuse_session_id",
    "langfuse.trace.metadata.langfuse_session_id",
    "ai.telemetry.metadata.sessionId",
)
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


class LangfuseScore(NamedTuple):
    """One score as Langfuse's API takes it.

    Fields:
        id: the same for the same name, target and start of the episode.
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
    """The target of a score: a trace, or a session if ``is_session``."""

    id: str
    is_session: bool = False


def stage_of(verdict: Verdict) -> Stage | None:
    """The stage that a verdict reports; None for weak signals, loops that go on, and drops of quality."""
    if verdict.run.startswith(QUALITY_RUN):
        return None
    if verdict.recovered:
        return Stage.RECOVERED
    if not verdict.detections:
        return None
    if verdict.level is Level.STOP:
        return Stage.STOP
    return Stage.NUDGE if verdict.nudge is not None else None


def session_of(spans: Iterable[Mapping[str, Any]]) -> str | None:
    """The session Langfuse puts a step into, None if it has none: that of the nearest span that names one.

    Parameters:
        spans: attributes of the step's span and of those above it, nearest first.

    >>> session_of([{"gen_ai.tool.name": "search"}, {"gen_ai.conversation.id": "c", "session.id": "user-7"}])
    'user-7'
    """
    for attributes in spans:
        for key in _SESSION_KEYS:
            value = attributes.get(key)
            if value:
                try:
                    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
                except (ValueError, RecursionError):  # longer, or nested deeper, than any id that Langfuse takes
                    return None
    return None


def targets_of(trace_id: str | None, session_id: str | None) -> list[Target]:
    """The trace, and the session if its id is one that Langfuse takes."""
    session = session_id if session_id and len(session_id) <= _MAX_ID_CHARS and session_id.isascii() else None
    return [*([Target(trace_id)] if trace_id else []), *([Target(session, is_session=True)] if session else [])]


def scores_of(
    verdict: Verdict, stage: Stage, target: Target, episode: Episode, *, environment: str | None, redact: bool
) -> list[LangfuseScore]:
    """The scores of one target. A recovery brings health back; that a loop was detected stays true."""
    values = {HEALTH: (NUMERIC, round(verdict.health, 6)), LOOP: (BOOLEAN, 1.0)}
    if stage is Stage.RECOVERED:
        del values[LOOP]
    kind = "session:" if target.is_session else ""
    start = f"{episode.start_s * 1e6:.0f}" if episode.start_s > 0 else str(verdict.episode)  # no times: nothing better
    return [
        LangfuseScore(
            id=str(uuid5(_NAMESPACE, f"{kind}{target.id}:{name}:{start}")),
            name=name,
            value=value,
            data_type=data_type,
            timestamp=round(episode.timestamp, 3),
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
    facts = (
        f"{stage.name} at step {verdict.step_index + 1} in episode {verdict.episode} ({', '.join(verdict.types)};"
        f" nudges so far: {verdict.nudges}). In the loop: {spent.steps} steps, {spent.seconds:.0f} s{cost}."
    )
    return clip(reason, _MAX_COMMENT_CHARS - len(facts)) + (" " if reason else "") + facts


def _metadata(verdict: Verdict, stage: Stage) -> dict[str, Any]:
    return {
        "trajectory_id": encodable(verdict.trajectory_id)[:_MAX_ID_CHARS],
        "episode": verdict.episode,
        "intervention": stage.name,
        "types": verdict.types,
        "score": round(verdict.score, 4),
        "step_index": verdict.step_index,
        "nudges": verdict.nudges,
        "evidence": str(verdict.evidence),
        "certainty": str(verdict.certainty or ""),
        "spent": verdict.spent._asdict(),
    }


EpisodeKey = tuple[str, str, int]
"""Scope, trajectory id, and ordinal of the episode."""


class Episode:
    """The scores written for one episode.

    Attributes:
        timestamp: of its scores, in seconds since the epoch.
        stages: how far each target has come.
        start_s: start of its first step in seconds, as first reported; 0 if spans carry no time.
        until: end of its newest reported step, in seconds.
        environment: Langfuse's environment it was written to last; None for the default.
        nudged: index of the step of the newest nudge; None before the first, or in a row of an earlier version.
    """

    __slots__ = ("environment", "nudged", "stages", "start_s", "timestamp", "until")

    def __init__(
        self, timestamp: float, stages: dict[Target, Stage] | None = None, *, start_s: float = 0.0, until: float = 0.0,
        environment: str | None = None, nudged: int | None = None,
    ) -> None:  # fmt: skip
        self.timestamp = timestamp
        self.stages = stages if stages is not None else {}
        self.start_s = start_s
        self.until = max(start_s, until)
        self.environment = environment
        self.nudged = nudged


class ScoreBook:
    """Record of the scores already written, so that a score is written on change only. Not thread-safe.

    Parameters:
        max_episodes: episodes remembered; of a forgotten one the same scores are written once more.
        on_change: called with the key of an episode whose scores were written, or which was evicted.
    """

    def __init__(self, max_episodes: int, *, on_change: Callable[[EpisodeKey], None] = lambda key: None) -> None:
        self._max_episodes = max_episodes
        self._on_change = on_change
        self.episodes: OrderedDict[EpisodeKey, Episode] = OrderedDict()

    def changes(
        self, verdict: Verdict, trace_id: str | None, session_id: str | None = None, *, scope: str = "",
        environment: str | None = None, redact: bool = False, at: float = 0.0, now: float = 0.0,
    ) -> list[LangfuseScore]:  # fmt: skip
        """Scores that are to be written because of a verdict; none if nothing has changed.

        A recovery is written to every trace and session that has a score of the loop.

        Parameters:
            verdict: verdict of the step.
            trace_id, session_id: trace of the step, and the session Langfuse puts it into.
            scope: keeps equal trajectory ids of different tenants apart.
            environment: of the trace; None if it is unknown, or the default.
            redact: leave the reason out.
            at: end of the step in seconds since the epoch.
            now: the same by the clock, the timestamp if spans carry no time.
        """
        stage = stage_of(verdict)
        if stage is None:
            return []
        key = (scope, verdict.trajectory_id, verdict.episode)
        episode = self._known(key, verdict.episode_start_s)
        if episode is None:
            if stage is Stage.RECOVERED:
                return []
            start_s = max(0.0, verdict.episode_start_s)
            episode = self._begin(key, Episode(start_s or now, start_s=start_s))
        episode.until = max(episode.until, at)
        episode.environment = environment or episode.environment  # a run may recover where no span is at hand
        scores = []
        nudged, again = episode.nudged, False
        if stage is Stage.NUDGE:
            again = nudged is not None and verdict.step_index > nudged
            episode.nudged = verdict.step_index if nudged is None else max(nudged, verdict.step_index)
        for target in self._advance(episode, stage, targets_of(trace_id, session_id), again=again):
            scores += scores_of(verdict, stage, target, episode, environment=episode.environment, redact=redact)
        if scores:
            self._on_change(key)
        return scores

    def _known(self, key: EpisodeKey, start_s: float) -> Episode | None:
        episode = self.episodes.get(key)
        if episode is not None and start_s > episode.until:
            return None  # the trajectory was evicted meanwhile and counts its episodes from 1 again
        return episode

    def _begin(self, key: EpisodeKey, episode: Episode) -> Episode:
        self.episodes[key] = episode
        self.episodes.move_to_end(key)
        if len(self.episodes) > self._max_episodes:
            forgotten, _ = self.episodes.popitem(last=False)
            self._on_change(forgotten)
        return episode

    def _advance(self, episode: Episode, stage: Stage, targets: Iterable[Target], *, again: bool) -> list[Target]:
        """The targets for which the stage is new; ``again``: a further nudge, which is new where the last one was."""
        stages, below = episode.stages, stage + again
        known = list(stages) if stage is Stage.RECOVERED else list(targets)
        changed = [one for one in known if stages.get(one, 0) < below and (one in stages or len(stages) < _MAX_TARGETS)]
        stages.update(dict.fromkeys(changed, stage))
        return changed
