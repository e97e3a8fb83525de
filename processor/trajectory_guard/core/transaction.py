"""The snapshot of a trajectory's memory before a step, so that a step that fails leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final

from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.inquiry import Advance, Inquiry
from trajectory_guard.core.observation import SameResultRun
from trajectory_guard.core.plain import fields_of
from trajectory_guard.core.policy import Ladder
from trajectory_guard.core.run import Run
from trajectory_guard.core.score import RunScore
from trajectory_guard.core.state import TrajectoryState

_UNSET: Final = object()
_of_run: Final = attrgetter(*fields_of(Run))
_of_series: Final = attrgetter(*fields_of(SameResultRun))
_of_inquiry: Final = attrgetter(*fields_of(Inquiry))
_of_advance: Final = attrgetter(*fields_of(Advance))
_of_score: Final = attrgetter(*fields_of(RunScore))
_of_ladder: Final = attrgetter(*fields_of(Ladder))


class Before:
    """The memory that evaluating a step may change, as it was before: values are replaced, never changed in place."""

    __slots__ = ("_of_state", "_runs", "_state")

    def __init__(self, state: TrajectoryState, run: Run) -> None:
        self._state = state
        self._of_state = (state.noise, state.denied, state.model_calls)
        self._runs = [(run, *_memory_of(run))]

    def keep(self, run: Run) -> None:
        """Note the values of another run; called before the step is evaluated in it."""
        self._runs += ((run, *_memory_of(run)),)

    def restore(self) -> None:
        """Put everything back."""
        self._state.noise, self._state.denied, self._state.model_calls = self._of_state
        for run, parts, memories in self._runs:
            for name, value in zip(fields_of(Run), parts[0], strict=True):
                setattr(run, name, value)
            held = (run.same_results, run.inquiry, run.advance, run.score, run.ladder)
            for part, values in zip(held, parts[1:], strict=True):
                for name, value in zip(fields_of(type(part)), values, strict=True):  # type: ignore[arg-type]
                    setattr(part, name, value)
            for detector, values, own in memories:
                names, _, _ = _slots_of(type(detector))  # type: ignore[arg-type]
                for name, value in zip(names, values, strict=False):
                    if value is not _UNSET:
                        setattr(detector, name, value)
                for name, value in own.items():
                    setattr(detector, name, value)


_Parts = tuple[tuple[Any, ...], ...]
_Memories = list[tuple[Detector, tuple[Any, ...], dict[str, Any]]]


def _memory_of(run: Run) -> tuple[_Parts, _Memories]:
    """The values of a run and of its parts, and those of its detectors that have a memory."""
    parts = (
        _of_run(run), _of_series(run.same_results), _of_inquiry(run.inquiry), _of_advance(run.advance),
        _of_score(run.score), _of_ladder(run.ladder),
    )  # fmt: skip
    memories: _Memories = []
    for one in run.detectors:
        if not one.shared:
            names, read, has_dict = _slots_of(type(one))  # type: ignore[arg-type]
            try:
                values = read(one)
            except AttributeError:
                values = tuple(getattr(one, name, _UNSET) for name in names)
            memories += ((one, values, one.__dict__.copy() if has_dict else {}),)
    return parts, memories


@cache
def _slots_of(kind: type[Detector]) -> tuple[tuple[str, ...], Callable[[Detector], tuple[Any, ...]], bool]:
    """The slots of a detector, a function that reads them all, and whether it has a dict besides.

    The function returns the class twice behind the values: with fewer than two names it would return no tuple.
    """
    names = fields_of(kind)  # type: ignore[arg-type]
    return names, attrgetter(*names, "__class__", "__class__"), kind.__dictoffset__ != 0
