"""Type IV over long laps: the same walk of seven to 256 calls, for the third time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from trajectory_guard.core.detectors.base import LAPS, TYPE_IV, DetectionResult, Detector
from trajectory_guard.core.detectors.pingpong import PingPong
from trajectory_guard.core.laps import KEPT, SHORTEST
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty, weakest


class LongCycle(Detector):
    """Fires when a walk of seven to 256 calls has come round for the third time, each call with its earlier result.

    An agent that forgets what it has read begins again, and its laps are longer than the history of calls. The second
    lap is compared roughly, the third one by whole results, clocks and ids aside; calls may change places. One new call
    or result, a pause of 45 seconds, or a repetition that the model counts aloud begins the comparison again. Values
    and acknowledgements are no part of the walk. The evidence is *acknowledged*: a tour of inspection, as of all hosts
    of a fleet, looks the same where no times are known.

    >>> from trajectory_guard.core.demonstration import fires
    >>> files = [f"read(path=part_{at}.py) -> Part {at} is a class of {at * 7} lines." for at in range(40)]
    >>> fires("long_cycle", (files * 4)[:129])
    step 126: 3 times, 1.00, acknowledged, OBSERVE
    step 127: 3 times, 1.00, acknowledged, NUDGE
    step 128: 3 times, 1.00, acknowledged, NUDGE

    Reference: agents that lose their context and read the same files again; no limit of memory may hide a loop.
    """

    name: ClassVar[str] = "long_cycle"
    rules: ClassVar[tuple[str, ...]] = ("long_cycle",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = PingPong.weight
    asked_at: ClassVar[int] = LAPS
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "You have been through all of this: write down what you know, and what is missing.",
        "Do something that you have not done yet, or leave this part of the task.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory that outlives its context, or a list of what is done."
    thresholds: ClassVar[Mapping[str, int]] = {"laps": 3, "shortest_lap": SHORTEST, "longest_lap": KEPT}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Report the lap, if there is one."""
        if not seen.lap or seen.same_batch:
            return None
        return self.found(
            seen, 1.0, "long_cycle", weakest(Certainty.ACKNOWLEDGED, seen.certainty), count=2 + seen.lapped // seen.lap,
            first_step=max(0, seen.index - seen.lapped - seen.lap + 1), period=seen.lap, varied=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """The length of a lap, how often it was walked, and the newest result."""
        return (
            f"The same {found.period} calls have come round {found.count} times with the same results; the newest, "
            f"{call}, returned {answer}."
        )
