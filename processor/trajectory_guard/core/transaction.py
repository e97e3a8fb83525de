"""Snapshot of the state before a step, restored if its evaluation raises."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final

from trajectory_guard.core.advance import Advance
from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.inquiry import Inquiry
from trajectory_guard.core.observation import SameResultRun
from trajectory_guard.core.policy import Ladder
from trajectory_guard.core.run import Run
from trajectory_guard.core.scoring import Score
from trajectory_guard.core.state import TrajectoryState

_UNSET: Final = object()
_of_run: Final = attrgetter(*Run.__slots__)
_of_series: Final = attrgetter(*SameResultRun.__slots__)
_of_inquiry: Final = attrgetter(*Inquiry.__slots__)
_of_advance: Final = attrgetter(*Advance.__slots__)
_of_score: Final = attrgetter(*Score.__slots__)
_of_ladder: Final = attrgetter(*Ladder.__slots__)


class Before:
    """The memory that evaluating a step may change, as it was before: values are replaced, never changed in place."""

    __slots__ = ("_memories", "_of_state", "_parts", "_state")

    def __init__(self, state: TrajectoryState) -> None:
        self._state = state
        self._of_state = (state.noise, state.denied, state.model_calls)
        self._parts: list[tuple[Any, tuple[Any, ...]]] = []
        self._memories: list[tuple[Detector, tuple[Any, ...], dict[str, Any]]] = []

    def keep(self, run: Run) -> None:
        """Note what a run holds; to be called before the step is evaluated in it."""
        series, score, ladder = run.same_results, run.score, run.ladder
        self._parts += (
            (run, _of_run(run)), (series, _of_series(series)), (run.inquiry, _of_inquiry(run.inquiry)),
            (run.advance, _of_advance(run.advance)),
            (score, _of_score(score)), (ladder, _of_ladder(ladder)),
        )  # fmt: skip
        for one in run.detectors:
            if not one.shared:
                names, read, has_dict = _slots_of(type(one))  # type: ignore[arg-type]
                try:
                    values = read(one)
                except AttributeError:
                    values = tuple(getattr(one, name, _UNSET) for name in names)
                self._memories.append((one, values, one.__dict__.copy() if has_dict else {}))

    def restore(self) -> None:
        """Put everything back."""
        self._state.noise, self._state.denied, self._state.model_calls = self._of_state
        for part, values in self._parts:
            for name, value in zip(type(part).__slots__, values, strict=True):
                setattr(part, name, value)
        for detector, values, own in self._memories:
            names, _, _ = _slots_of(type(detector))  # type: ignore[arg-type]
            for name, value in zip(names, values, strict=False):
                if value is not _UNSET:
                    setattr(detector, name, value)
            for name, value in own.items():
                setattr(detector, name, value)


@cache
def _slots_of(kind: type[Detector]) -> tuple[tuple[str, ...], Callable[[Detector], tuple[Any, ...]], bool]:
    """The slots of a detector, a function that reads them all, and whether it has a dict besides.

    The function returns the class twice behind the values: with fewer than two names it would return no tuple.
    """
    bases = (getattr(base, "__slots__", ()) for base in kind.__mro__)
    names = tuple(name for slots in bases for name in slots if name != "__dict__")
    return names, attrgetter(*names, "__class__", "__class__"), kind.__dictoffset__ != 0
