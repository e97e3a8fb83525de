"""Type I: the same call again with the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import TYPE_I, DetectionResult, Detector
from trajectory_guard.core.observation import Observation

_CERTAIN_AT: Final = 3
_CERTAIN_AFTER_WORK: Final = 5
_BLANK_AFTER_WORK: Final = 8


class Stutter(Detector):
    """Fires when a repeated call returns a result that it returned before, without progress in between.

    Does not fire while other calls bring progress in between, when the answer moves (polling, paging), or when the
    arguments or the result are unknown. The second occurrence is a hint (confidence 0.5, likely), the third is certain.
    Calls of another kind in between that had not been made before (an edit between two test runs) make it work at first
    and stutter only at the fifth equal answer; that is likely evidence, never certain.
    Where the step can only prove less (an acknowledged action, a wait), as many times the repeats are asked for.

    >>> from trajectory_guard.core.demonstration import fires
    >>> hours = "search(q=hours) -> Closed on Mondays. Open from Tuesday to Sunday, nine to five."
    >>> fires("same_call_same_result", [hours] * 5)
    step 1: 2 times, 0.50, likely, OBSERVE
    step 2: 3 times, 1.00, certain, NUDGE
    step 3: 4 times, 1.00, certain, NUDGE
    step 4: 5 times, 1.00, certain, STOP

    Reference: result-aware repeat counting, as peers were forced to adopt after release; thresholds chosen on
    recorded runs (``docs/detection.md``).
    """

    name: ClassVar[str] = "stutter"
    rules: ClassVar[tuple[str, ...]] = ("same_call_same_result",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Work with the result you already have.",
        "If it is not what you need, change the arguments or use another tool.",
        "If there is no other way, answer with what you have, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = (
        "Check why the tool's answer does not satisfy the agent: prompt, tool description, or missing data."
    )
    thresholds: ClassVar[Mapping[str, int]] = {
        "certain_at": _CERTAIN_AT,
        "after_work": _CERTAIN_AFTER_WORK,
        "blank_after_work": _BLANK_AFTER_WORK,
    }
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of repeats with what the evidence asks for."""
        if seen.repeats < 2:
            return None
        worked = seen.worked and not seen.others_progress
        blank = not (seen.step.result or "").strip()
        base = _CERTAIN_AT if not worked else _BLANK_AFTER_WORK if blank else _CERTAIN_AFTER_WORK
        needed = base * seen.pace
        confidence = 1.0 if seen.repeats >= needed else 0.5 if seen.repeats >= needed - 1 else 0.0
        return self.found(
            seen, confidence, "same_call_same_result",
            Certainty.ACKNOWLEDGED if worked else Certainty.LIKELY if confidence < 1.0 else Certainty.CERTAIN,
            count=seen.repeats, first_step=seen.first_repeat, steps=seen.repeated_at,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the call, the count and the result."""
        return f"{call} was called {found.count} times and returned {answer} each time."
