"""The loops of an evaluated trajectory, and their consumption."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.core.explain.interventions import Spent, recommendation
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Evidence, StepRecord

MAX_FINDINGS: Final = 60
"""Findings listed per loop."""


class Finding(NamedTuple):
    """A step with a finding; ``step`` is its position in input order, from 0."""

    step: int
    score: float
    level: Level
    types: list[str]
    evidence: Evidence
    reason: str
    advice: str


class Loop(NamedTuple):
    """One loop, from its first step to the last step with a finding.

    Usually one episode of the engine. Episodes that overlap are shown as one loop: they have the same pattern,
    left for a few steps and taken up again. Steps are positions in input order, from 0.
    """

    number: int
    first: int
    last: int
    episodes: int
    findings: list[Finding]
    types: list[str]
    nudges: list[tuple[int, str]]
    stops: list[int]
    spent: Spent
    left_at: int | None

    @property
    def level(self) -> Level:
        """The highest level reached."""
        return max((found.level for found in self.findings), key=lambda level: level.rank)

    @property
    def certain(self) -> bool:
        """Whether it came to a nudge or a stop; below that it is a suspicion."""
        return self.level != Level.OBSERVE

    @property
    def name(self) -> str:
        """Label in charts and tables; a suspicion has a question mark."""
        return f"loop {self.number}{'' if self.certain else '?'}"

    @property
    def badness(self) -> tuple[int, float, int]:
        """Sorts loops: the worst is the greatest."""
        return self.level.rank, self.lead.score, -self.number

    @property
    def lead(self) -> Finding:
        """The most informative finding: the latest of those with the highest score."""
        return max(self.findings, key=lambda found: (found.score, found.step))

    @property
    def advice(self) -> str:
        """Recommendation for the developer, one sentence."""
        return self.lead.advice

    @property
    def listed(self) -> list[Finding]:
        """The findings to print: all, or the first ones if there are very many."""
        return self.findings[:MAX_FINDINGS]


class _Episode(NamedTuple):
    first: int
    last: int
    findings: list[Finding]
    nudge: tuple[int, str] | None
    stop: int | None
    left_at: int | None


def find_loops(outcome: Outcome) -> list[Loop]:
    """The loops of a trajectory, in order; no two of them share a step."""
    groups: list[list[_Episode]] = []
    for episode in sorted(_episodes(outcome), key=lambda episode: (episode.first, episode.last)):
        if groups and episode.first <= max(other.last for other in groups[-1]):
            groups[-1].append(episode)
        else:
            groups.append([episode])
    return [_loop(outcome, number, group) for number, group in enumerate(groups, 1)]


def _episodes(outcome: Outcome) -> Iterator[_Episode]:
    fired: dict[int, list[int]] = {}
    positions: dict[int, int] = {}
    left: dict[int, int] = {}
    for position, verdict in enumerate(outcome.verdicts):
        if verdict is None:
            continue
        positions[verdict.step_index] = position
        if verdict.detections:
            fired.setdefault(verdict.episode, []).append(position)
        if verdict.recovered:
            left[verdict.episode] = position
    for number, at in fired.items():
        yield _episode(outcome, at, positions, left.get(number))


def _episode(outcome: Outcome, at: Sequence[int], positions: Mapping[int, int], left_at: int | None) -> _Episode:
    first, findings, nudge = at[0], list[Finding](), None
    for position in at:
        verdict = outcome.verdicts[position]
        if verdict is None:
            continue
        first = min(first, positions.get(verdict.first_step, first))
        findings.append(
            Finding(
                position, verdict.score, verdict.level, verdict.types, verdict.evidence, verdict.reason,
                recommendation(verdict.detections),
            )
        )  # fmt: skip
        nudge = (position, verdict.nudge) if verdict.nudge and nudge is None else nudge
    stop = next((found.step for found in findings if found.level == Level.STOP), None)
    return _Episode(first, at[-1], findings, nudge, stop, left_at)


def _loop(outcome: Outcome, number: int, group: Sequence[_Episode]) -> Loop:
    first, last = group[0].first, max(episode.last for episode in group)
    findings = sorted((found for episode in group for found in episode.findings), key=lambda found: found.step)
    return Loop(
        number=number,
        first=first,
        last=last,
        episodes=len(group),
        findings=findings,
        types=list(dict.fromkeys(kind for found in findings for kind in found.types)),
        nudges=sorted(episode.nudge for episode in group if episode.nudge is not None),
        stops=sorted(episode.stop for episode in group if episode.stop is not None),
        spent=_spent(outcome, first, last),
        left_at=max(group, key=lambda episode: episode.last).left_at,
    )


def _spent(outcome: Outcome, first: int, last: int) -> Spent:
    """As the engine reckons it: the first call was legitimate, so what led to it is not counted."""
    counted = [outcome.steps[at] for at in range(first, last + 1) if outcome.verdicts[at] is not None]
    usages = [step.usage for step in counted[1:] if step.usage is not None]
    return Spent(
        len(counted),
        max(0.0, elapsed(counted)),
        sum(max(0, usage.tokens) for usage in usages),
        sum(max(0.0, usage.cost_usd) for usage in usages),
    )


def has_times(steps: Sequence[StepRecord]) -> bool:
    """Whether the steps carry times at all."""
    return any(step.timestamp or step.duration for step in steps) and bool(start_times(steps))


def start_times(steps: Sequence[StepRecord]) -> list[float]:
    """Start times that are numbers, seconds."""
    return [step.timestamp for step in steps if math.isfinite(step.timestamp)]


def elapsed(steps: Sequence[StepRecord]) -> float:
    """Seconds from the earliest start to the latest end."""
    ends = [step.timestamp + step.duration for step in steps if math.isfinite(step.timestamp + step.duration)]
    return max(ends, default=0.0) - min(start_times(steps), default=0.0)
