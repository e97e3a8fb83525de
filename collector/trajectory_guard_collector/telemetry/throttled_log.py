"""Log lines at a limited rate: the first of each kind, then one a minute with the count of those left out."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

from trajectory_guard.core.tracking.tables import BoundedTable

_MAX_KINDS: Final = 256
_INTERVAL_S: Final = 60.0
_NUMBER: Final = re.compile(r"\d+")


class ThrottledLog:
    """Logs the first line of each kind, then one a minute with the number of lines left out.

    Parameters:
        logger: receives the lines.
        clock: monotonic seconds; for tests.

    It distinguishes the 256 kinds seen last.
    """

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._kinds: BoundedTable[str, tuple[float, int]] = BoundedTable(_MAX_KINDS)

    def log(self, level: int, kind: str, message: str, error: BaseException | None = None) -> None:
        """Log ``message``, with the traceback of an error, unless one of its ``kind`` came in the last minute."""
        now = self._clock()
        last, left_out = self._kinds.pop(kind, (-float("inf"), 0))
        if now - last < _INTERVAL_S:
            self._kinds[kind] = (last, left_out + 1)
            return
        self._kinds[kind] = (now, 0)
        more = f" ({left_out} more like this since)" if left_out else ""
        self._logger.log(level, "%s%s", message, more, exc_info=error)


class ThrottledRecords(logging.Filter):
    """Lets the first record of each kind pass, then one a minute. Records that differ in numbers only are of one kind.

    It is for libraries that log each attempt to reach a backend. Parameters: as of ``ThrottledLog``.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: BoundedTable[str, tuple[float, int]] = BoundedTable(_MAX_KINDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes; it then says how many were left out."""
        message, now = record.getMessage(), self._clock()
        kind = _NUMBER.sub("0", f"{record.name} {message}")
        last, left_out = self._kinds.pop(kind, (-float("inf"), 0))
        passes = now - last >= _INTERVAL_S
        self._kinds[kind] = (now, 0) if passes else (last, left_out + 1)
        if passes and left_out:
            record.msg, record.args = f"{message} ({left_out} more like this since)", ()
        return passes
