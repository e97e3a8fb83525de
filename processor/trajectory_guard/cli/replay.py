"""Judging recorded trajectories: what the guard would have done, and when. Shadow mode for last week's runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from trajectory_guard.cli.inputs import Recorded, Sink, read
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.scoring import Level
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.assemble import extract_steps
from trajectory_guard.dialects.span import SpanView


class Outcome(NamedTuple):
    """One judged trajectory: id, its steps, and a verdict per step (None where a step did not count)."""

    id: str
    steps: list[StepRecord]
    verdicts: list[Verdict | None]

    def first(self, *levels: Level) -> int | None:
        """Index of the first step with one of these levels."""
        return next((i for i, one in enumerate(self.verdicts) if one is not None and one.level in levels), None)

    @property
    def first_nudge(self) -> int | None:
        """Index of the first step at which a nudge became due."""
        return self.first(Level.NUDGE)

    @property
    def first_stop(self) -> int | None:
        """Index of the first step at which a stop became due."""
        return self.first(Level.STOP)

    @property
    def max_score(self) -> float:
        """Highest score reached."""
        return max((one.score for one in self.verdicts if one is not None), default=0.0)

    @property
    def types(self) -> list[str]:
        """Loop types seen, in order of appearance."""
        return list(dict.fromkeys(kind for one in self.verdicts if one is not None for kind in one.types))

    def to_json(self) -> dict[str, Any]:
        """The line that ``replay --json`` prints."""
        return {
            "id": self.id,
            "steps": len(self.steps),
            "first_nudge": self.first_nudge,
            "first_stop": self.first_stop,
            "max_score": round(self.max_score, 6),
            "types": self.types,
            "verdicts": [
                {
                    "step": i,
                    "score": round(one.score, 6),
                    "level": str(one.level),
                    "types": one.types,
                    "reason": one.reason,
                }
                for i, one in enumerate(self.verdicts)
                if one is not None and one.detections
            ],
        }


def judge(recorded: Recorded, engine: Engine) -> Outcome:
    """Run the engine over one trajectory."""
    state = engine.new_state(recorded.id)
    return Outcome(recorded.id, recorded.steps, [engine.observe(state, step) for step in recorded.steps])


def trajectories(paths: Iterable[str], sink: Sink) -> Iterator[Recorded]:
    """Trajectories of all files: step lines as they come, those of spans when all spans are read."""
    spans: list[SpanView] = []
    for path in paths:
        for item in read(path, sink):
            if isinstance(item, Recorded):
                yield item
            else:
                spans.append(item)
    grouped: dict[str, list[StepRecord]] = {}
    for step in extract_steps(spans):
        grouped.setdefault(step.trajectory_id, []).append(step)
    for identifier, steps in grouped.items():
        yield Recorded(identifier, steps)


def replay(paths: Iterable[str], config: GuardConfig, sink: Sink) -> Iterator[Outcome]:
    """Judge every trajectory in the files."""
    engine = Engine(config)
    for recorded in trajectories(paths, sink):
        yield judge(recorded, engine)
