"""Loops between which something new comes back: one result again and again, or only results that were there before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import TYPE_I, TYPE_III, DetectionResult, Detector
from trajectory_guard.core.detectors.stutter import Stutter
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import EMPTY

_OFTEN: Final = 8
_OFTEN_EMPTY: Final = 6
_QUIET_STEPS: Final = 32
_KEPT: Final = 4
_KNOWN_STEPS: Final = 10
_KNOWN_FOR_SURE: Final = 14


class Recurrence(Detector):
    """Type I across progress: a call keeps returning one result while other calls bring new ones.

    Only look-ups that name what they ask for count, and calls that fail or find nothing: a look at the inbox, the
    state of a repository, a login are part of each piece of work. Fires once at the eighth equal result within memory,
    at the sixth where nothing was found; one earlier it is a hint. It fires again after 32 further steps, then after
    ever more. The other calls are progress of their own, but they do not change what this call returns. Where
    something may be under way it waits as long as any other rule.

    >>> from trajectory_guard.core.demonstration import fires
    >>> pages = ("red lamps", "blue chairs", "old maps", "new tools", "wet paint", "dry goods")
    >>> fires("recurring_result", (
    ...     call for page in pages
    ...     for call in (f"open(page={len(page)}) -> All about {page}.", "find(q=refund) -> [empty] ")
    ... ))
    step 9: 5 times, 0.50, likely, OBSERVE
    step 11: 6 times, 1.00, likely, NUDGE

    Reference: counts of equal results in 229 healthy recorded runs (``docs/detection.md``).
    """

    name: ClassVar[str] = "recurrence"
    rules: ClassVar[tuple[str, ...]] = ("recurring_result",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    advice: ClassVar[tuple[str, ...]] = Stutter.advice
    recommendation: ClassVar[str] = Stutter.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"often": _OFTEN, "often_empty": _OFTEN_EMPTY}
    __slots__ = ("found_before",)

    def __init__(self) -> None:
        self.found_before: tuple[tuple[str, int, int], ...] = ()  # call and result, quiet until which step, how long

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of equal results within memory with what the evidence asks for."""
        if seen.recurrences <= seen.repeats or not seen.asks:
            return None
        needed = (_OFTEN_EMPTY if seen.outcome == EMPTY else _OFTEN) * seen.pace
        if seen.recurrences < needed - 1:
            return None
        key = (seen.call + seen.result).hex()
        known = next((one for one in self.found_before if one[0] == key), None)
        if known is not None and seen.index < known[1]:
            return None
        full = seen.recurrences >= needed
        if full:
            quiet = 2 * known[2] if known is not None else _QUIET_STEPS
            others = tuple(one for one in self.found_before if one is not known)
            self.found_before = (*others[1 - _KEPT :], (key, seen.index + quiet, quiet))
        return self.found(
            seen, 1.0 if full else 0.5, "recurring_result", Certainty.LIKELY, count=seen.recurrences,
            first_step=seen.recurred_at[0], steps=seen.recurred_at,
        )  # fmt: skip

    def dump(self) -> Any:
        """The results that were found already."""
        return self.found_before or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.found_before = tuple((key, until, quiet) for key, until, quiet in data)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the call, the count and the result."""
        return f"{call} was called {found.count} times among other calls and returned {answer} each time."


class Wandering(Detector):
    """Type III without a period: step after step, nothing is seen that was not there before.

    No call is repeated often and no order repeats, as in a walk through rooms that are known: one call leads to ever
    different states, and all of them are old. Fires at the tenth such step in a row and is certain at the fourteenth:
    a way back through known places is no loop. A state that is new ends the series, and so does a call that was not
    made before. Short values and acknowledgements do not count.

    >>> from trajectory_guard.core.demonstration import fires
    >>> walk = "abcdefgh" + "hfdbgacehdbfgaec"
    >>> room = "You are in room {}: two doors, a table, and a lamp."
    >>> steps = [f"go(way={way}) -> {room.format(at)}" for way, at in zip(walk[1:], walk, strict=False)]
    >>> fires("nothing_new", steps)
    step 17: 10 times, 0.50, likely, OBSERVE
    step 18: 11 times, 0.50, likely, OBSERVE
    step 19: 12 times, 0.50, likely, OBSERVE
    step 20: 13 times, 0.50, likely, OBSERVE
    step 21: 14 times, 1.00, likely, OBSERVE
    step 22: 15 times, 1.00, likely, NUDGE

    Reference: walks of game agents through known places, found by reading (``docs/detection.md``).
    """

    name: ClassVar[str] = "wandering"
    rules: ClassVar[tuple[str, ...]] = ("nothing_new",)
    loop_type: ClassVar[str] = TYPE_III
    weight: ClassVar[float] = 0.5
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Everything you look at is known to you already: write down what you know, and what is missing.",
        "Do something that you have not done yet, or leave this part of the task.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has seen, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"known_steps": _KNOWN_STEPS, "known_for_sure": _KNOWN_FOR_SURE}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the length of the series with what the evidence asks for."""
        if seen.known_ground < _KNOWN_STEPS or not seen.describes_state:
            return None
        first = max(0, seen.index - seen.known_ground + 1)
        return self.found(
            seen, 1.0 if seen.known_ground >= _KNOWN_FOR_SURE else 0.5, "nothing_new", Certainty.LIKELY,
            count=seen.known_ground, first_step=first, varied=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of steps and the newest result."""
        return f"The last {found.count} calls led only to what had been seen before; {call} returned {answer}."
