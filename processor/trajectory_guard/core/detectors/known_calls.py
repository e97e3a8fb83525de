"""Type IV without an order: step after step, an earlier call is made again and returns what it returned then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from zlib import crc32

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import REPEATED, TYPE_IV, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import is_value
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.result_text import is_acknowledgement
from trajectory_guard.core.steps import SUCCESS

_WINDOW: Final = 24
_KNOWN: Final = 14
_DIFFERENT: Final = 4
_NEWEST: Final = 6
_KNOWN_OF_NEWEST: Final = 4


_Again = tuple[int, int, int, int]
"""A step that repeated an earlier one: its index, a checksum of the call, the steps since that call was made last, and
how often this number has changed from one such step to the next, since the run began."""


class KnownCalls(Detector):
    """Fires when at least fourteen of the last 24 steps repeated one of four or more earlier calls with its result.

    An agent tries the same few levers, pages or files again and again, in ever other order, and strews in something new
    now and then: no call comes often enough in a row for type I, and no lap equals the one before. A routine is none:
    where steps come again in the order in which they came before (log in, open, do something new, log out), the
    distances to their earlier calls are equal, and at most a third of the distances may be. Four of the newest six
    steps have to be among those that count: an agent that does new things by now has recovered. Steps that wait,
    actions that are only acknowledged, and single values do not count. Likely at most: a way back through known places
    is no loop. A call that directly follows itself is type I's.

    >>> from trajectory_guard.core.demonstration import fires
    >>> levers = "abcdef" + "fbxdcaebydacfzbdfaecvb"
    >>> fires("known_calls", (f"pull(lever={one}) -> Lever {one} clicks, and the door stays shut." for one in levers))
    step 23: 14 times, 1.00, likely, OBSERVE
    step 24: 15 times, 1.00, likely, NUDGE
    step 25: 16 times, 1.00, likely, NUDGE
    step 27: 17 times, 1.00, likely, NUDGE

    Reference: 2,716 recorded runs, in which it fires in none that other rules leave alone, but for one that a reader
    had called a loop (``docs/detection.md``).
    """

    name: ClassVar[str] = "known_calls"
    rules: ClassVar[tuple[str, ...]] = ("known_calls",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = 1.5
    asked_at: ClassVar[int] = REPEATED
    advice: ClassVar[tuple[str, ...]] = (
        "You know what these calls return: write down what you know, and what is missing.",
        "Do something that you have not done yet, or leave this part of the task.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has tried, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"known": _KNOWN, "window": _WINDOW, "different": _DIFFERENT}
    __slots__ = ("again",)

    def __init__(self) -> None:
        self.again: tuple[_Again, ...] = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Add the step to those of the window, and count them."""
        if seen.in_a_row or seen.recurrences < 2 or seen.certainty is Certainty.WAITING:
            return None
        if seen.outcome == SUCCESS:
            text = (seen.step.result or "").strip()
            if is_acknowledgement(text) or is_value(text):
                return None
        again, lag = self.again, seen.index - seen.recurred_at[-2]
        changes = again[-1][3] + (again[-1][2] != lag) if again else 0
        again = (*again, (seen.index, crc32(seen.call), lag, changes))
        while again[0][0] <= seen.index - _WINDOW:
            again = again[1:]
        self.again = again
        count = len(again)
        if count < _KNOWN or again[-_KNOWN_OF_NEWEST][0] <= seen.index - _NEWEST:
            return None
        is_routine = 3 * (changes - again[0][3]) < 2 * (count - 1)
        if is_routine or len({one[1] for one in again}) < _DIFFERENT:
            return None
        steps = tuple([one[0] for one in again])
        return self.found(
            seen, 1.0, "known_calls", Certainty.LIKELY, count=count, first_step=steps[0], steps=steps, calls=_WINDOW,
            varied=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of steps, the newest call and its result."""
        return (
            f"{found.count} of the last {found.calls} calls had been made before, and returned what they returned "
            f"then; the newest, {call}, returned {answer}."
        )

    def dump(self) -> Any:
        """The steps of the window that count."""
        return self.again or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.again = tuple((at, call, lag, changes) for at, call, lag, changes in data)
