"""One warning for a loop of one's own that asks for an id which no span carries: it gets OBSERVE for ever."""

from __future__ import annotations

import logging
from typing import Final

from trajectory_guard import telemetry
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.text import clip, printable
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock

ASKED: Final = 8
"""The warning comes after so many requests for an unknown id, and so many steps of other ids meanwhile."""
_MAX_IDS: Final = 64
_log: Final = logging.getLogger(telemetry.LOGGER)


class UnknownIds:
    """The last ``_MAX_IDS`` ids that gates asked for and the board did not know."""

    def __init__(self) -> None:
        self._asked: BoundedTable[str, tuple[int, int]] = BoundedTable(_MAX_IDS)  # times, and steps at the first time
        self._has_warned = False
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    def asked(self, trajectory_id: str, steps: int, newest: str) -> None:
        """Note that an id without a step was asked for.

        Parameters:
            steps: of all trajectories of the process, so far.
            newest: id of the trajectory that moved last.
        """
        if self._has_warned:
            return
        trajectory_id = bounded_name(trajectory_id)
        with self._lock:
            times, first = self._asked.get(trajectory_id) or (0, steps)
            self._asked[trajectory_id] = (times + 1, first)
            if self._has_warned or times + 1 < ASKED or steps - first < ASKED:
                return
            self._has_warned = True
        _log.warning(
            "trajectory_guard: take(%r) was asked %d times, and no tool call has come under this id, while others took "
            "%d steps, %r among them. If this agent calls tools, its spans carry another id: the README of the package "
            "says under 'A loop of your own' which one each framework writes (logged once)",
            clip(printable(trajectory_id)), times + 1, steps - first, clip(printable(newest)),
        )  # fmt: skip
