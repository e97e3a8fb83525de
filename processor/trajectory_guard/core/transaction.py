"""Snapshot of the state before a step, restored if its evaluation raises."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any, Final

from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.observation import SameResultRun
from trajectory_guard.core.policy import Ladder
from trajectory_guard.core.run import Run
from trajectory_guard.core.scoring import Score
from trajectory_guard.core.state import TrajectoryState

_of_run: Final = attrgetter(*Run.__slots__)
_of_series: Final = attrgetter(*SameResultRun.__slots__)
_of_score: Final = attrgetter(*Score.__slots__)
_of_ladder: Final = attrgetter(*Ladder.__slots__)


class Before:
    """The memory that evaluating a step may change, as it was before: values are replaced, never changed in place."""

    __slots__ = ("_fields", "_memories", "_of_state", "_state")

    def __init__(self, state: TrajectoryState) -> None:
        self._state = state
        self._of_state = (state.noise, state.denied)
        self._fields: list[tuple[Any, tuple[Any, ...]]] = []
        self._memories: list[tuple[Detector, dict[str, Any]]] = []

    def keep(self, run: Run) -> None:
        """Note what a run holds; to be called before the step is evaluated in it."""
        series, score, ladder = run.same_results, run.score, run.ladder
        self._fields += (
            (run, _of_run(run)), (series, _of_series(series)), (score, _of_score(score)), (ladder, _of_ladder(ladder)),
        )  # fmt: skip
        self._memories += [(one, _memory_of(one)) for one in run.detectors if not one.shared]

    def restore(self) -> None:
        """Put everything back."""
        self._state.noise, self._state.denied = self._of_state
        for part, values in self._fields:
            for name, value in zip(type(part).__slots__, values, strict=True):
                setattr(part, name, value)
        for detector, memory in self._memories:
            for name, value in memory.items():
                setattr(detector, name, value)


@cache
def _slots_of(kind: type[Detector]) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__")


def _memory_of(detector: Detector) -> dict[str, Any]:
    """The attributes of a detector: slots, and whatever a detector of the user's own keeps in its ``__dict__``."""
    memory = {name: getattr(detector, name) for name in _slots_of(type(detector)) if hasattr(detector, name)}  # type: ignore[arg-type]
    return {**memory, **getattr(detector, "__dict__", {})}
