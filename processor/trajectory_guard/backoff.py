"""Pauses between attempts, and what servers say about them. Shared by everything that sends."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final

MAX_REQUESTED_PAUSE_S: Final = 3600.0


class Backoff:
    """Pauses between attempts: exponential, with jitter.

    The n-th pause (from 0) is uniform in ``[i·(1 - f), i·(1 + f)]``, where ``i = min(max_s, initial_s·multiplier**n)``
    and ``f = jitter``; never shorter than what the server asked for, of which at most ``max_requested_s`` counts.

    Parameters:
        initial_s, multiplier, max_s: of the pauses, in seconds.
        jitter: share by which each is varied.
        max_requested_s: longest pause a server can ask for: one that names a wrong date would silence the sender.
        uniform: random number between two bounds; for tests.
    """

    def __init__(
        self,
        *,
        initial_s: float,
        multiplier: float,
        max_s: float,
        jitter: float,
        max_requested_s: float = MAX_REQUESTED_PAUSE_S,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._initial_s = min(initial_s, max_s)
        self._multiplier = multiplier
        self._max_s = max_s
        self._jitter = jitter
        self._max_requested_s = max_requested_s
        self._uniform = uniform
        self.reset()

    def reset(self) -> None:
        """Reset to the first delay after an attempt that succeeded."""
        self._interval_s = self._initial_s

    def next_pause_s(self, requested_s: float | None = None) -> float:
        """Seconds to wait before the next attempt."""
        interval_s = self._interval_s
        self._interval_s = min(interval_s * self._multiplier, self._max_s)
        pause_s = self._uniform(interval_s * (1.0 - self._jitter), interval_s * (1.0 + self._jitter))
        return max(pause_s, min(requested_s or 0.0, self._max_requested_s))


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds seconds or an HTTP date (RFC 9110, 10.2.3).

    Returns None if the header is absent or neither; 0 for a date that has passed.

    >>> parse_retry_after("120"), parse_retry_after("soon")
    (120.0, None)
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - (now or datetime.now(timezone.utc))).total_seconds())
