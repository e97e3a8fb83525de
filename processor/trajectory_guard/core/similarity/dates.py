"""Dates and times of day in one form, where the spelling leaves no doubt."""

from __future__ import annotations

import re
from typing import Final

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_ISO: Final = re.compile(
    r"^(\d{4})[-/](\d{1,2})[-/](\d{1,2})"
    r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?$",
    re.ASCII | re.IGNORECASE,
)
_CLOCK: Final = re.compile(r"^(\d{1,2})(?::(\d{2}))?(?::00)?\s*([ap])?\.?(?:m\.?)?$", re.ASCII | re.IGNORECASE)
_NAMED: Final = re.compile(
    r"^(?:(\d{1,2})(?:st|nd|rd|th)?\.?\s+([a-z]{3,9})\.?|([a-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?),?\s+(\d{4})$",
    re.ASCII | re.IGNORECASE,
)
MAX_CHARS: Final = 40


def normalize_moment(text: str) -> str | None:
    """A date, a time of day or both in ISO form, or None; ``03/04/2025`` is ambiguous and stays as it is.

    >>> normalize_moment("2025-04-01 14:00:00"), normalize_moment("April 1, 2025"), normalize_moment("2 pm")
    ('2025-04-01T14:00', '2025-04-01', '14:00')
    """
    if len(text) > MAX_CHARS:
        return None
    iso = _ISO.match(text)
    if iso:
        return _iso(iso)
    clock = _CLOCK.match(text)
    if clock and (clock[2] or clock[3]):
        return _clock(clock)
    named = _NAMED.match(text)
    if named:
        month = _MONTHS.get((named[2] or named[3])[:3].lower())
        return f"{named[5]}-{month:02}-{int(named[1] or named[4]):02}" if month else None
    return None


def _iso(match: re.Match[str]) -> str:
    date = f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}"
    if match[4] is None:
        return date
    seconds = f":{match[6]}" if match[6] not in (None, "00") else ""
    zone = (match[7] or "").upper().replace(":", "")
    return f"{date}T{int(match[4]):02}:{match[5]}{seconds}{'Z' if zone in ('UTC', '+0000', 'Z') else zone}"


def _clock(match: re.Match[str]) -> str | None:
    hour = int(match[1])
    if match[3]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[3].lower() == "p" else 0)
    return f"{hour:02}:{match[2] or '00'}"
