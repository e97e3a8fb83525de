"""Type VI without tools: the model is asked the same thing again and gives the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from trajectory_guard.core.detectors.base import REPEATED, TYPE_VI, DetectionResult, Detector
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty

_LIKELY_AT: Final = 3


class SameModelCall(Detector):
    """Fires when a model call repeats the one before it, input and answer, and no tool step of the run lies between.

    The engine takes such calls for steps (``core/tracking/model_calls.py``). The whole input is equal, but for what an
    agent has said itself: one that is called again and only says the same leaves that in its input, and in the messages
    of its graph (``gates/said.py``). Calls that overlap in time count once. The second call is a hint (confidence 0.5),
    the third is likely a loop, and never more: an application may have a reason to ask again.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("same_model_call", ["model(prompt=Improve the draft.) -> The draft is fine as it is."] * 4)
    step 1: 2 times, 0.50, likely, OBSERVE
    step 2: 3 times, 1.00, likely, NUDGE
    step 3: 4 times, 1.00, likely, NUDGE

    Reference: agents without tools that write, check and write again (``docs/detection.md``).
    """

    name: ClassVar[str] = "same_model_call"
    rules: ClassVar[tuple[str, ...]] = ("same_model_call",)
    loop_type: ClassVar[str] = TYPE_VI
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = REPEATED
    shared: ClassVar[bool] = True
    of_model_calls: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Do not give this answer again: it has not been enough so far.",
        "If it announces a step, take that step now; else say what was missing in it, and add that.",
        "If there is nothing to add, say so plainly, so that the work can end.",
    )
    recommendation: ClassVar[str] = (
        "Check why the application asks again: its prompt does not carry what was wrong with the last answer, or "
        "nothing ends the loop."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"likely_at": _LIKELY_AT}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of equal calls with what the evidence asks for."""
        needed = _LIKELY_AT * seen.variation_pace
        if seen.repeats < max(2, needed - 1):
            return None
        return self.found(
            seen, 1.0 if seen.repeats >= needed else 0.5, "same_model_call", Certainty.LIKELY, count=seen.repeats,
            first_step=seen.first_repeat, steps=seen.repeated_at, varied=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the count and, where it may be quoted, the answer."""
        said = f"The model was asked the same thing {found.count} times and gave the same answer"
        return f"{said}: {answer}" if answer.startswith('"') else f"{said}."
