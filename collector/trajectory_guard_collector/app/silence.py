"""A line in the log if a collector has run for a while and no span has come: a sender without an exporter is silent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

_log: Final = logging.getLogger(__name__)
_AFTER_S: Final = 30.0


class Silence:
    """Logs once, at INFO, that no span has come since the start; nothing if one has.

    Parameters:
        heard: whether spans have been taken over.
        clock: monotonic seconds; for tests.
    """

    def __init__(self, heard: Callable[[], bool], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._heard = heard
        self._clock = clock
        self._since = clock()
        self._over = False

    def look(self, endpoints: Mapping[str, str]) -> None:
        """Log the line if it is due.

        Parameters:
            endpoints: on which the collector listens, by name.
        """
        if self._over or self._clock() - self._since < _AFTER_S:
            return
        self._over = True
        if not self._heard():
            where = " and ".join(f"{name} on {at}" for name, at in endpoints.items() if name.startswith("otlp/"))
            _log.info(
                "no span has come in the first %d s (%s): does the sender have an OTLP exporter, for this port and its "
                "protocol?", _AFTER_S, where,
            )  # fmt: skip
