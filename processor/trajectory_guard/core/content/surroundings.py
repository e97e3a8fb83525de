"""The surroundings of the answers of a trajectory, whatever is called: a frame, and figures that count the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.call_counters import Counter, Counters, without_counters
from trajectory_guard.core.content.envelope import readable
from trajectory_guard.core.content.learned_frames import DEAD, NO_FRAME, Frame, without_learned_frame
from trajectory_guard.core.steps import StepRecord


class Surroundings(NamedTuple):
    """The known surroundings of a trajectory's answers.

    Fields:
        frame: tokens at the beginning and the end of every answer.
        counters: lines of results that may count the calls.
    """

    frame: Frame = NO_FRAME
    counters: Counters = ()

    def and_then(self, newer: Surroundings) -> Surroundings:
        """The surroundings known of both, if the answers of another state are the later ones."""
        return Surroundings(newer.frame if newer.frame != NO_FRAME else self.frame, newer.counters or self.counters)

    def to_plain(self) -> list[Any]:
        """The surroundings as JSON values."""
        return [self.frame.to_plain(), [tuple(one) for one in self.counters]]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Surroundings:
        """Restore ``to_plain``."""
        frame, counters = plain
        return cls(Frame.from_plain(frame), tuple([Counter(*map(_as_kept, one)) for one in counters]))


NO_SURROUNDINGS: Final = Surroundings()


def _as_kept(value: Any) -> Any:
    """A value of a named tuple as it was before it was written: its lists were tuples."""
    return tuple(value) if type(value) is list else value


def without_surroundings(
    step: StepRecord, known: Surroundings, at: int, is_known: Callable[[StepRecord], bool]
) -> tuple[StepRecord, Surroundings]:
    """A step whose result is without what stands around all results, and what is known of that then.

    Parameters:
        known: from the steps before; at: index of this one; is_known: whether its call was made before.
    """
    frame = known.frame
    if frame is not DEAD:
        inner, frame = without_learned_frame(step, frame, at, is_known)
        step = step if inner is step else readable(inner)
    step, counters = without_counters(step, known.counters, at, is_known)
    changed = frame is not known.frame or counters is not known.counters
    return step, Surroundings(frame, counters) if changed else known
