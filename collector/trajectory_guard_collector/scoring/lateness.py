"""How late the spans of a service come: what a step has to wait for before it is evaluated.

Where everything arrives in order, as from one exporter, nothing waits. Where steps turn out to precede others that were
evaluated already, all from there on would have to be evaluated again, for each of them. So steps of such a service wait
until its newest span has ended as much later as its late steps came behind it, or for as long on the clock of arrival
if nothing newer comes. A backlog is read faster than it was written: then the spans themselves are the clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from trajectory_guard.core.tracking.tables import BoundedTable

_MAX_SERVICES: Final = 1_024
_DECAY: Final = 0.995
"""Share of the wait that is left after each step in order: some hundred of them end it."""
_LEAST_S: Final = 0.05
ALWAYS: Final = float("inf")
"""A time at which nothing waits any longer."""


class Pace:
    """The pace of one service.

    Attributes:
        newest: end of its newest span, seconds since the epoch.
        wait_s: seconds that its steps wait.
    """

    __slots__ = ("_due", "_pushed", "newest", "wait_s")

    def __init__(self) -> None:
        self.newest = 0.0
        self.wait_s = 0.0
        self._due: list[tuple[float, int, Any]] = []  # heap
        self._pushed = 0

    def next_wait_s(self, end: float, *, in_order: bool, most: float) -> float:
        """Seconds for which a step that has arrived waits.

        Parameters:
            end: when its span ended, seconds since the epoch.
            in_order: it is the newest of its trajectory; else it precedes a step that arrived before it.
            most: longest wait in seconds.
        """
        if in_order:
            self.newest = max(self.newest, end)
            self.wait_s = self.wait_s * _DECAY if self.wait_s > _LEAST_S else 0.0
        else:
            self.wait_s = max(self.wait_s, min(most, self.newest - end))
        return self.wait_s

    def remind(self, at: float, what: Any) -> None:
        """Return ``what`` from ``reminders`` once the newest span has ended at ``at``."""
        self._pushed += 1
        heappush(self._due, (at, self._pushed, what))

    def reminders(self) -> list[Any]:
        """What has become due."""
        found = []
        while self._due and self._due[0][0] <= self.newest:
            found.append(heappop(self._due)[2])
        return found


class Paces:
    """Paces by service; those unused for longest are forgotten beyond 1,024."""

    def __init__(self) -> None:
        self._paces: BoundedTable[str, Pace] = BoundedTable(_MAX_SERVICES)

    def of(self, service: str) -> Pace:
        """The pace of a service."""
        pace = self._paces.touch(service)
        if pace is None:
            pace = self._paces[service] = Pace()
        return pace
