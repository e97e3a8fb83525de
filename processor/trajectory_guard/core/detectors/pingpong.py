"""Type IV: calls or agents in a cycle, A B A B, that brings nothing new."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_IV, DetectionResult, Observation
from trajectory_guard.core.history import History

MAX_PERIOD: Final = 6
_MASK: Final = (1 << 63) - 1


class PingPong:
    """Fires when the last steps repeat with a period of 2 to 6, each with the answer it had one lap earlier.

    A lap counts only if its answers equal those of the lap before, so edit-test rounds whose failures change and
    hand-offs that bring new text stay quiet. The calls of one model turn form one element of the cycle whatever
    their order, and a period of one is stutter, not ping-pong. Half a lap beyond the second is a hint, the third
    complete lap is certain.

    Parameters:
        laps: complete laps that make the cycle certain.
        patience: factor on ``laps`` while an answer in the lap says "still running": look and wait is a cycle, too.

    Reference: suffix cycles in the call sequence; lap counts compared in ``docs/detection.md``.
    """

    name: ClassVar[str] = "pingpong"
    loop_type: ClassVar[str] = TYPE_IV
    __slots__ = ("closed", "current", "laps", "matched", "patience", "tools", "waited")

    def __init__(self, laps: int = 3, patience: int = 3) -> None:
        self.laps = laps
        self.patience = patience
        self.closed: list[int] = []  # symbols of the last MAX_PERIOD batches, newest last
        self.tools: list[str] = []  # tool names of the last MAX_PERIOD steps
        self.current = 0  # symbol of the batch still open; -1 if part of it is unknown
        self.waited = -1  # index of the newest step whose answer said that something is still under way
        self.matched: list[int] = []  # by period - 1: how many batches in a row equalled the one a period ago

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        symbol = self._symbol(seen)
        if seen.same_batch and self.current:
            self.current = (self.current + symbol) & _MASK if symbol and self.current > 0 else -1
        else:
            if self.current:
                self._close()
            self.current = symbol or -1
        if seen.pending:
            self.waited = seen.index
        self.tools.append(seen.step.tool_name)
        if len(self.tools) > MAX_PERIOD:
            del self.tools[0]
        return self._longest(seen) if self.current in self.closed else None

    def _symbol(self, seen: Observation) -> int:
        if not seen.call or not seen.result:
            return 0
        return (int.from_bytes(seen.call, "big") * 31 + int.from_bytes(seen.result, "big")) & _MASK

    def _close(self) -> None:
        closed, current = self.closed, self.current
        if current > 0 and current in closed:
            before = self.matched or [0] * MAX_PERIOD
            self.matched = [
                before[period - 1] + 1 if len(closed) >= period and closed[-period] == current else 0
                for period in range(1, MAX_PERIOD + 1)
            ]
        else:
            self.matched = []
        closed.append(current)
        if len(closed) > MAX_PERIOD:
            del closed[0]

    def _longest(self, seen: Observation) -> DetectionResult | None:
        closed = self.closed
        if self.current < 0 or closed[-1] == self.current:
            return None  # partly unknown, or a period of one
        for period in range(2, len(closed) + 1):
            if closed[-period] == self.current:
                run = (self.matched[period - 1] if self.matched else 0) + 1
                if run > period:
                    return self._cycle(seen, period, run)
        return None

    def _cycle(self, seen: Observation, period: int, run: int) -> DetectionResult | None:
        laps = 1 + run / period
        waiting = self.waited > seen.index - period
        needed = self.laps * self.patience if waiting else self.laps
        if laps < needed - 1 + 1 / period:
            return None
        details = {
            "rule": "cycle", "count": int(laps), "period": period,
            "first_step": max(0, seen.index - run - period + 1), "tools": self.tools[-period:],
        }  # fmt: skip
        return DetectionResult(TYPE_IV, 1.0 if laps >= needed else 0.5, details)

    def dump(self) -> Any:
        """Cycle symbols and run lengths."""
        return [self.closed, self.current, self.matched, self.tools, self.waited] if self.current else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        closed, self.current, matched, tools, self.waited = data
        self.closed, self.matched, self.tools = list(closed), list(matched), list(tools)
