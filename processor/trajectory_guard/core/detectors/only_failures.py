"""Type V: nothing but failures, whatever was called and whatever they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_V, DetectionResult, Detector
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.tools import is_thinking

_TURNS: Final = 16


class OnlyFailures(Detector):
    """Fires when sixteen model turns in a row brought nothing but failures, each in words of its own.

    A wall is described in many ways: ``same_error`` asks for one error class, and this rule for none. Thoughts in
    between do not count as success. A command that fails otherwise than it did the last time ends the series, as tests
    do that are being mended, and a wait for something (``certainty`` waiting) that is looked at again does not fire. It
    leads to nudges only: the entries of a long list may all fail.

    >>> from trajectory_guard.core.demonstration import fires
    >>> ways = "curl wget pip npm git ftp ssh scp rsync nc ping dig host telnet apt conda brew".split()
    >>> fires("only_failures", (f"run(with={way}) -> [error] {way}: {way[::-1]} {len(way)}" for way in ways))
    step 15: 16 times, 1.00, likely, OBSERVE
    step 16: 17 times, 1.00, likely, NUDGE

    Reference: failures in a row of healthy situations, fourteen at most (``docs/detection.md``).
    """

    name: ClassVar[str] = "only_failures"
    rules: ClassVar[tuple[str, ...]] = ("only_failures",)
    loop_type: ClassVar[str] = TYPE_V
    weight: ClassVar[float] = ErrorStreak.weight
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "Nothing has worked for many calls: stop trying further ways, and say what they have in common.",
        "Check what all of them need: a connection, a right, a running service, a valid session.",
        "If it cannot be had, finish what does not need it, and report what is missing.",
    )
    recommendation: ClassVar[str] = ErrorStreak.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"turns": _TURNS}
    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: tuple[int, ...] = ()  # the newest failure of each turn

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count the turns that brought nothing but failures."""
        if seen.signature is None or (seen.result_changed and seen.made > 1):
            if not is_thinking(seen.step.tool_name):
                self.steps = ()
            return None
        kept = self.steps[:-1] if seen.same_batch else self.steps[1 - 2 * _TURNS :]
        self.steps = (*kept, seen.index)
        polls = seen.certainty is Certainty.WAITING and seen.made > 1
        if len(self.steps) < _TURNS or polls or seen.same_batch:
            return None
        return self.found(
            seen, 1.0, "only_failures", Certainty.LIKELY, count=len(self.steps), first_step=self.steps[0],
            steps=self.steps[-_TURNS:], varied=True, calls=seen.index - self.steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def dump(self) -> Any:
        """The failures in a row."""
        return self.steps or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.steps = tuple(data)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        return f"At least {found.count} turns in a row brought nothing but failures; {call} returned {answer}."
