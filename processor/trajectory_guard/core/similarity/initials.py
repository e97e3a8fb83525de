"""Abbreviations that one of two texts writes out: ``ECB``, ``k8s``, ``P1``. The other text gives the long form."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"[^\W_]+")
_ACRONYM: Final = re.compile(r"[A-Z]{2,6}\Z")
_NUMERONYM: Final = re.compile(r"([a-z])(\d{1,2})([a-z])\Z", re.IGNORECASE)
_LETTERED: Final = re.compile(r"([A-Za-z])(\d{1,3})\Z")
_MIN_LOWER: Final = 3
"""Two initials prove something only where the words have capitals: "Premier League", not "public library"."""
_MAX_SHORT_CHARS: Final = 6
_MAX_LINKS: Final = 2
"""Short words without an initial that may stand in a long form: "Department of Defense"."""
MAX_TOKENS: Final = 64
"""Longer texts are compared as they stand."""


def write_out(a: str, b: str) -> tuple[str, str]:
    """Both texts, with each abbreviation of one replaced by its long form in the other.

    >>> write_out("ECB rate decision", "rate decision of the European Central Bank")[0]
    'European Central Bank rate decision'
    >>> write_out("k8s pods", "list Kubernetes pods")[0], write_out("P1 incidents", "incidents of priority 1")[0]
    ('Kubernetes pods', 'priority 1 incidents')
    """
    left, right = _read(a), _read(b)
    if not (left.short or right.short) or max(len(left.words), len(right.words)) > MAX_TOKENS:
        return a, b
    return _written_out(a, left, right), _written_out(b, right, left)


class _Words(NamedTuple):
    """The words of a text, and those of them that may be short for others."""

    words: list[str]
    short: list[str]


@lru_cache(maxsize=256)
def _read(text: str) -> _Words:
    words = _TOKEN.findall(text)
    return _Words(words, [word for word in words if _may_be_short(word)])


def _may_be_short(word: str) -> bool:
    if len(word) > _MAX_SHORT_CHARS or not word[0].isascii():
        return False
    return word.isupper() or word[-1].isdigit() or word[1:-1].isdigit()


def _written_out(text: str, own: _Words, other: _Words) -> str:
    known = {word.lower() for word in own.words} if own.short else frozenset()
    for word in own.short:
        form = _long_form(word, other.words) if word not in other.words else ""
        if form and known.isdisjoint(part.lower() for part in form.split() if not part.isdigit() and len(part) > 3):
            text = _TOKEN.sub(partial(_put, word, form), text)
    return text


def _put(word: str, form: str, found: re.Match[str]) -> str:
    return form if found[0] == word else found[0]


def _long_form(word: str, other: list[str]) -> str:
    numeronym = _NUMERONYM.match(word)
    if numeronym:
        first, count, last = numeronym[1].lower(), int(numeronym[2]), numeronym[3].lower()
        fits = (long for long in other if len(long) == count + 2 and (long[0] + long[-1]).lower() == first + last)
        return next(fits, "")
    lettered = _LETTERED.match(word)
    if lettered:
        found = (long for long, number in pairwise(other) if number == lettered[2] and _begins(long, lettered[1]))
        return next((f"{long} {lettered[2]}" for long in found), "")
    return _spelled_out(word, other) if _ACRONYM.match(word) else ""


def _begins(word: str, letter: str) -> bool:
    return len(word) > 2 and word[0].lower() == letter.lower()


def _spelled_out(acronym: str, other: list[str]) -> str:
    """The run of words whose initials are the acronym; short words in between may have none."""
    for start, first in enumerate(other):
        if first[0].upper() != acronym[0]:
            continue
        end, taken = start, 0
        for letter in acronym:
            links = 0
            while (
                end < len(other)
                and taken
                and len(other[end]) < 4
                and other[end].islower()
                and links < _MAX_LINKS
                and other[end][0] != letter.lower()
            ):
                end, links = end + 1, links + 1
            if end == len(other) or other[end][0].upper() != letter or other[end].isdigit():
                break
            end, taken = end + 1, taken + 1
        run = other[start:end]
        capitals = all(word[0].isupper() or len(word) < 4 for word in run)
        if taken == len(acronym) and any(len(word) > 2 for word in run) and (capitals or taken >= _MIN_LOWER):
            return " ".join(word for word in run if len(word) > 1 or word.isupper())
    return ""
