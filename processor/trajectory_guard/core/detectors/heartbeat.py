"""Type I over many turns: a useless call that every new run or turn repeats."""

from __future__ import annotations

from typing import Any, ClassVar

from trajectory_guard.core.detectors.base import TYPE_I, DetectionResult, Observation
from trajectory_guard.core.history import History


class Heartbeat:
    """Fires when turn after turn brings nothing new: a scheduled agent that looks, finds the same, and ends.

    A new turn clears suspicion, so repeats across turns are invisible to the other detectors. This one counts whole
    turns without news. Does not fire where turns are unknown, where any step of a turn brought news, or before
    ``turns`` turns: a person may well ask the same a few times. A finding may nudge, never stop.

    Parameters:
        turns: turns in a row without news that make it certain; two fewer are a hint.

    Reference: 248 calls in 14 hours in one public report, each run having cleared the history before.
    """

    name: ClassVar[str] = "heartbeat"
    loop_type: ClassVar[str] = TYPE_I
    __slots__ = ("first", "idle", "news", "turn", "turns")

    def __init__(self, turns: int = 10) -> None:
        self.turns = turns
        self.turn: str | None = None
        self.idle = 0  # complete turns in a row without news
        self.first = -1  # first step of the first of them
        self.news = False

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        turn = seen.step.turn
        if turn is None:
            return None
        if turn != self.turn:
            self._turn_over(seen.index)
            self.turn = turn
        self.news = self.news or seen.news
        if self.news or self.idle + 1 < self.turns - 2 or seen.repeats > 1:
            return None  # within one turn, stutter speaks
        details = {"rule": "idle_turns", "count": self.idle + 1, "first_step": max(0, self.first)}
        return DetectionResult(TYPE_I, 1.0 if self.idle + 1 >= self.turns else 0.5, details, soft=True)

    def _turn_over(self, index: int) -> None:
        if self.news or self.turn is None:
            self.idle, self.first = 0, index
        else:
            self.idle += 1
        self.news = False

    def dump(self) -> Any:
        """The running count."""
        return [self.turn, self.idle, self.first, self.news] if self.turn is not None else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.turn, self.idle, self.first, self.news = data
