"""Type I: the same call again with the same answer."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_I, DetectionResult, Observation
from trajectory_guard.core.history import History
from trajectory_guard.core.steps import ERROR
from trajectory_guard.core.tools import moves_cursor

_AFTER_WORK: Final = 5
_STOP_AFTER_WORK: Final = 8


def _is_blank(seen: Observation) -> bool:
    return not (seen.step.result or "").strip()


class Stutter:
    """Fires when a call is repeated and returned what it had returned before, and nothing new came back since.

    Does not fire while other calls bring news in between, when the answer moves (polling, paging), or when the
    arguments or the result are unknown. The second occurrence is a hint (confidence 0.5), the third is certain.
    Calls of another kind in between that had not been made before (an edit between two test runs) make it work at first
    and stutter only at the fifth equal answer, and no reason to stop before the eighth.
    A pace slower than ``slow_gap_s`` between calls that succeed, or an answer that says "still running", is waiting and
    not stutter until it has happened ``patience`` times as often; likewise a move of some cursor ("next", ``cd ..``)
    that answers nothing, or while other agents bring news. Asked at a sixth of that pace
    and still running: ``patience`` squared.

    Parameters:
        slow_gap_s: seconds of idle time between equal calls from which on they count as deliberate polling.
        patience: factor on the number of repeats where waiting is plausible.

    Reference: result-aware repeat counting, as peers were forced to adopt after release; thresholds chosen on
    recorded runs (``docs/detection.md``).
    """

    name: ClassVar[str] = "stutter"
    loop_type: ClassVar[str] = TYPE_I
    __slots__ = ("patience", "slow_gap_s")

    def __init__(self, slow_gap_s: float = 120.0, patience: int = 3) -> None:
        self.slow_gap_s = slow_gap_s
        self.patience = patience

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        if seen.repeats < 2:
            return None
        slow = seen.gap_s >= self.slow_gap_s and seen.step.outcome_type != ERROR
        moving = _is_blank(seen) and moves_cursor(seen.step.tool_name, seen.step.args)
        waiting = seen.pending or slow or moving or seen.others_progress
        paced = seen.gap_s >= self.slow_gap_s / 6
        patience = self.patience * self.patience if seen.pending and paced else self.patience
        needed = 3 * patience if waiting else _AFTER_WORK if seen.worked else 3
        confidence = 1.0 if seen.repeats >= needed else 0.5 if seen.repeats >= needed - 1 else 0.0
        if confidence == 0.0:
            return None
        details = {"rule": "same_call_same_result", "count": seen.repeats, "first_step": seen.first_repeat}
        return DetectionResult(TYPE_I, confidence, details, soft=seen.worked and seen.repeats < _STOP_AFTER_WORK)

    def dump(self) -> Any:
        """Stateless."""
        return None

    def load(self, data: Any) -> None:
        """Stateless."""
