"""Detection of requests that have come round in a circle of collectors.

Every forwarded request names the collectors it may have gone through: this one, and those whose requests arrived
lately with the same signal. Batches are merged and stored on their way, so the exact path of a batch is unknown; but if
a collector receives its own request, the collectors form a circle, which would multiply all telemetry in it without
end. Two collectors that send each other different signals form none.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard_collector.otlp.signals import Signal

_MAX_KNOWN: Final = 32
_REMEMBERED_S: Final = 600.0
_ID_CHARS: Final = 16


class Hops:
    """The identity of one collector, and of those that send to it.

    Parameters:
        clock: seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.own = uuid.uuid4().hex[:_ID_CHARS]
        self._clock = clock
        self._before: dict[Signal, BoundedTable[str, float]] = {one: BoundedTable(_MAX_KNOWN) for one in Signal}

    def header(self, signal: Signal) -> str:
        """Value of the header ``VIA`` in forwarded requests of a signal."""
        before = self._before[signal]
        while before and self._clock() - next(iter(before.values())) > _REMEMBERED_S:
            before.evict_oldest()
        return ",".join((self.own, *before))

    def comes_back(self, signal: Signal, header: str | None) -> bool:
        """Whether this collector sent the request with this header; if not, it records the collectors named in it."""
        if not header:
            return False
        named = header.split(",")[: _MAX_KNOWN + 1]
        if self.own in named:
            return True
        for one in named:
            if len(one) == _ID_CHARS and one.isalnum() and one.isascii():
                self._before[signal][one] = self._clock()
        return False
