"""Type I: a call that was refused, proposed again."""

from __future__ import annotations

from typing import ClassVar

from trajectory_guard.core.detectors.base import REFUSED, TYPE_I, DetectionResult, Detector
from trajectory_guard.core.observation import Observation


class DeniedAgain(Detector):
    """Fires when a call with equal arguments is refused a second time: the first refusal was an answer already.

    The second proposal is reason for a nudge at once, the fourth may end the run. Does not fire for other arguments,
    and a new user turn clears what was refused before: a person may change their mind. Progress elsewhere does not.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("denied_again", ["delete(path=/data) -> [denied] not allowed"] * 4)
    step 1: 2 times, 1.00, certain, NUDGE
    step 2: 3 times, 1.00, certain, NUDGE
    step 3: 4 times, 1.00, certain, STOP
    """

    name: ClassVar[str] = "denied"
    rules: ClassVar[tuple[str, ...]] = ("denied_again",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = REFUSED
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Accept the decision: do not propose this call again unless you are asked to.",
        "Reach the goal in a way that does not need it, or ask what would be acceptable.",
        "If it cannot be done without it, say so.",
    )
    recommendation: ClassVar[str] = "Check whether the agent learns why its calls are refused."
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """The engine counts refusals, because they outlive a run."""
        if seen.denied_times < 2:
            return None
        at = seen.denied_at or (seen.index,)  # within one batch, all refusals before it may belong to other runs
        return self.found(seen, 1.0, "denied_again", count=seen.denied_times, first_step=at[0], steps=at)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the call and the number of refusals."""
        return f"{call} was proposed {found.count} times and refused each time."
