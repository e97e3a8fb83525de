"""Dates and times of day in one form, where the spelling leaves no doubt."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

from trajectory_guard.core.wordlists import groups

from .scripts import MARKS

_MONTHS: Final = {name: int(number) for number, names in groups("months").items() for name in names}
_ISO: Final = re.compile(
    r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?$",
    re.ASCII | re.IGNORECASE,
)
_CLOCK: Final = re.compile(r"^(\d{1,2})(?::(\d{2}))?(?::00)?\s*([ap])?\.?(?:m\.?)?$", re.ASCII | re.IGNORECASE)
_HALF_DAY: Final = re.compile(
    r"(?<![\w.:-])(\d{1,2})(?:[:.](\d{2}))?\s?([ap])\.?m(?:\.(?!\w)|\b)", re.ASCII | re.IGNORECASE
)
_FRENCH_CLOCK: Final = re.compile(r"(?<![\w.:-])(\d{1,2})h(\d{2})(?!\w)", re.ASCII)
_MONTH: Final = rf"([^\W\d_][\w{MARKS}]{{1,14}})"
_BEFORE_YEAR: Final = r"\.?,?\s{1,2}(?:del?\s)?(\d{4})"
_NAMED: Final = re.compile(
    rf"(?<![\w./-])(?:(\d{{1,2}})(?:st|nd|rd|th|er|\xba|\.)?\s{{1,2}}(?:de\s|of\s)?{_MONTH}{_BEFORE_YEAR}"
    rf"|{_MONTH}\.?\s{{1,2}}(\d{{1,2}})(?:st|nd|rd|th)?,?\s{{1,2}}(\d{{4}}))(?![\w-])",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(
    r"(?<![\w./-])(?:(\d{4})[-/](\d{1,2})[-/](\d{1,2})|(\d{4})\s?[年년]\s?(\d{1,2})\s?[月월]\s?(\d{1,2})\s?[日일]"
    r"|(\d{1,2})\.(\d{1,2})\.(\d{4}))(?![\d/-])"
)
_SLASHED: Final = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})/(\d{4})(?![\w/-])", re.ASCII)
_SEASON: Final = re.compile(r"(?<![\w./-])((?:19|20)\d\d)[-/\u2013]((?:19|20)?\d\d)(?![\w/-])", re.ASCII)
_WEEKDAY: Final = re.compile(r"^[^\W\d_]{3,12}\.?,\s+(?=\S)")
MAX_CHARS: Final = 40


def normalize_moment(text: str) -> str | None:
    """A date, a time of day or both in ISO form and UTC, or None; ``03/04/2025`` is ambiguous and stays as it is.

    >>> normalize_moment("2025-04-01 14:00:00"), normalize_moment("Tuesday, April 1, 2025"), normalize_moment("2 pm")
    ('2025-04-01T14:00', '2025-04-01', '14:00')
    >>> normalize_moment("1. April 2025"), normalize_moment("1 de abril de 2025"), normalize_moment("01.04.2025")
    ('2025-04-01', '2025-04-01', '2025-04-01')
    >>> normalize_moment("15/08/2025"), normalize_moment("08/15/2025"), normalize_moment("3/4/2025")
    ('2025-08-15', '2025-08-15', '03/04/2025')
    """
    if len(text) > MAX_CHARS:
        return None
    iso = _ISO.match(text)
    if iso:
        return _iso(iso)
    clock = _CLOCK.match(text)
    if clock and (clock[2] or clock[3]):
        return _clock(clock)
    unified = unify_moments(_WEEKDAY.sub("", text)).strip()
    return unified if _UNIFIED.match(unified) else None


_UNIFIED: Final = re.compile(r"\d{4}-\d\d-\d\d\Z|\d\d:\d\d\Z|\d\d/\d\d/\d{4}\Z")


def unify_moments(text: str) -> str:
    """A text in which dates with a year are in ISO form, times of day have 24 hours, and a season is ``2022-23``.

    >>> unify_moments("trains on March 5, 2024 at 2:30 pm"), unify_moments("league 2022/2023")
    ('trains on 2024-03-05 at 14:30', 'league 2022-23')
    """
    if not any(char.isdigit() for char in text):
        return text
    text = _SLASHED.sub(_padded, text)
    text = _NUMBERED.sub(_numbered, _NAMED.sub(_named, text))
    text = _FRENCH_CLOCK.sub(_french, _HALF_DAY.sub(_half_day, text))
    return _SEASON.sub(_season, text)


def _date(year: str, month: int, day: str, otherwise: str) -> str:
    return f"{year}-{month:02}-{int(day):02}" if 1 <= month <= 12 and 1 <= int(day) <= 31 else otherwise


def _named(match: re.Match[str]) -> str:
    day, name, year = (match[1], match[2], match[3]) if match[1] else (match[5], match[4], match[6])
    return _date(year, _MONTHS.get(name.casefold(), 0), day, match[0])


def _numbered(match: re.Match[str]) -> str:
    if match[7]:
        return _date(match[9], int(match[8]), match[7], match[0])
    year, month, day = (match[1], match[2], match[3]) if match[1] else (match[4], match[5], match[6])
    return _date(year, int(month), day, match[0]) + ("" if match[1] else " ")


def _half_day(match: re.Match[str]) -> str:
    return _time(int(match[1]), match[2], match[3]) or match[0]


def _padded(match: re.Match[str]) -> str:
    first, second = int(match[1]), int(match[2])
    as_it_is = f"{first:02}/{second:02}/{match[3]}"
    if first > _MONTHS_OF_YEAR >= second:
        return _date(match[3], second, match[1], as_it_is)
    return _date(match[3], first, match[2], as_it_is) if second > _MONTHS_OF_YEAR else as_it_is


_MONTHS_OF_YEAR: Final = 12


def _french(match: re.Match[str]) -> str:
    return f"{int(match[1]):02}:{match[2]}"


def _season(match: re.Match[str]) -> str:
    follows = (int(match[1]) + 1) % 100 == int(match[2]) % 100 and len(match[2]) != 3
    return f"{match[1]}-{match[2][-2:]}" if follows else match[0]


def _iso(match: re.Match[str]) -> str:
    date = f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}"
    if match[4] is None:
        return date
    zone = (match[7] or "").upper().replace(":", "")
    seconds = f":{match[6]}" if match[6] not in (None, "00") else ""
    plain = f"{date}T{int(match[4]):02}:{match[5]}{seconds}"
    if zone in ("UTC", "Z", ""):
        return plain + ("Z" if zone else "")
    try:
        moment = datetime.fromisoformat(f"{date}T{int(match[4]):02}:{match[5]}:{match[6] or '00'}{zone[:3]}:{zone[3:]}")
        moment = moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return plain + zone
    return f"{moment:%Y-%m-%dT%H:%M}{seconds}Z"


def _clock(match: re.Match[str]) -> str | None:
    return _time(int(match[1]), match[2], match[3])


def _time(hour: int, minute: str | None, half: str | None) -> str | None:
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    return f"{hour:02}:{minute or '00'}"
