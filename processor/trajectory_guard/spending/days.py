"""The UTC day on which a model call counts. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

_YEAR_2000: Final = 946_684_800.0


def today(now: float) -> str:
    """UTC date of a time in seconds.

    >>> today(0.0)
    '1970-01-01'
    """
    return datetime.fromtimestamp(now, timezone.utc).date().isoformat()


def day_of(end: float, now: float) -> str:
    """UTC day on which a call counts that ended at this time, in seconds.

    A day that has not come yet, or one before the year 2000, is no day of a call, but a clock that is wrong or not set:
    the call counts today, or no daily budget would ever see it.

    >>> day_of(0.0, 1_700_000_000.0), day_of(1_800_000_000.0, 1_700_000_000.0), day_of(1_690_000_000.0, 1_700_000_000.0)
    ('2023-11-14', '2023-11-14', '2023-07-22')
    """
    return today(end if _YEAR_2000 <= end <= now else now)
