"""Lateness of a service's spans, and the time its steps wait for earlier steps before they are evaluated.

Where spans arrive in order, as from one exporter, no step waits. Where a step arrives after later steps were evaluated,
all steps from there on have to be evaluated again. So the steps of such a service wait until its newest span has ended
later than the step by the lateness seen so far, or for the same time on the clock of arrival if no newer span arrives.
A collector reads a backlog faster than it was written; then the end times of the spans serve as the clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from trajectory_guard.core.tracking.tables import BoundedTable

_MAX_SERVICES: Final = 1_024
_MAX_REMINDERS: Final = 2_000
_DECAY: Final = 0.995
"""Factor by which each step in order shortens the wait: some hundred of them end it."""
_LEAST_S: Final = 0.05
ALWAYS: Final = float("inf")
"""A time at which no step waits any longer."""


class Pace:
    """Lateness of one service.

    Attributes:
        newest: end of its newest span, seconds since the epoch.
        wait_s: seconds for which its steps wait.
    """

    __slots__ = ("_due", "_pushed", "newest", "wait_s")

    def __init__(self) -> None:
        self.newest = 0.0
        self.wait_s = 0.0
        self._due: list[tuple[float, int, Any]] = []  # heap
        self._pushed = 0

    def next_wait_s(self, end: float, *, in_order: bool, most: float) -> float:
        """Seconds for which a newly arrived step waits.

        Parameters:
            end: end of its span, seconds since the epoch.
            in_order: no step after it arrived in an earlier request.
            most: longest wait in seconds.
        """
        if in_order:
            self.newest = max(self.newest, end)
            self.wait_s = self.wait_s * _DECAY if self.wait_s > _LEAST_S else 0.0
        else:
            self.wait_s = max(self.wait_s, min(most, self.newest - end))
        return self.wait_s

    def remind(self, at: float, what: Any) -> None:
        """Return ``what`` from ``reminders`` once the newest span has ended at ``at``; beyond a bound, never."""
        if len(self._due) < _MAX_REMINDERS:  # the clock of arrival ends the wait without any
            self._pushed += 1
            heappush(self._due, (at, self._pushed, what))

    def reminders(self) -> list[Any]:
        """Take the reminders that are due."""
        found = []
        while self._due and self._due[0][0] <= self.newest:
            found.append(heappop(self._due)[2])
        return found


class Paces:
    """Paces by service; evicts the least recently used beyond 1,024."""

    def __init__(self) -> None:
        self._paces: BoundedTable[str, Pace] = BoundedTable(_MAX_SERVICES)

    def of(self, service: str) -> Pace:
        """The pace of a service."""
        pace = self._paces.touch(service)
        if pace is None:
            pace = self._paces[service] = Pace()
        return pace
