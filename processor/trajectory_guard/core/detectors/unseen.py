"""Type I where nobody sees what comes back: calls that were all made before, and whose results are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_I, UNSEEN, DetectionResult, Detector
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty

_CALLS: Final = 12


class Unseen(Detector):
    """Fires when twelve model turns in a row make nothing but calls that were made before, with unknown results.

    Screens that are not recorded, and telemetry that captures arguments but no results, leave only the requests.
    Unknown results are not equal: a game, or a long list, may be played with a few keys. So the finding is acknowledged
    at most, and leads to nudges only, ever more rarely. Does not fire at calls that are unknown too, that have no
    arguments, or that failed, and where a call that was not made within memory lies among them: look, act, look, act.
    Where one of the calls is a wait, all are given as much more time as with any other rule.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("unseen_results", ["click(x=1) -> ?", "click(x=2) -> ?"] * 8)
    step 13: 12 times, 1.00, acknowledged, NUDGE
    step 14: 13 times, 1.00, acknowledged, NUDGE
    step 15: 14 times, 1.00, acknowledged, NUDGE

    Reference: runs of agents that use a computer, recorded without screens (``docs/detection.md``).
    """

    name: ClassVar[str] = "unseen"
    rules: ClassVar[tuple[str, ...]] = ("unseen_results",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = UNSEEN
    shared: ClassVar[bool] = True
    may_stop: ClassVar[bool] = False
    insists: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "Check whether these calls have had any effect before you make one of them again.",
        "Do something that you have not done yet: another tool, other arguments, or another way to the goal.",
        "If there is no other way, say what you tried, and ask.",
    )
    recommendation: ClassVar[str] = (
        "Record the results of these tools, or supply the state after each call: without either a loop is found late."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"calls": _CALLS}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of turns with what the evidence asks for."""
        waits = seen.unseen_waits or seen.certainty is Certainty.WAITING
        needed = _CALLS * (seen.waiting_pace if waits else 1.0)
        if seen.unseen < needed or seen.same_batch:
            return None
        return self.found(
            seen, 1.0, "unseen_results", Certainty.ACKNOWLEDGED, count=seen.unseen, first_step=seen.unseen_first,
            steps=tuple(range(seen.unseen_first, seen.index + 1)), calls=seen.unseen, alike=0,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        return (
            f"For {found.count} turns there were only calls that had been made before, most recently {call}; what they "
            "returned is not recorded."
        )
