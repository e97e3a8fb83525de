"""Lists and lines in a result: the hits of a search without their order and scores, the lines that were read before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from struct import pack
from typing import Any, Final
from zlib import crc32

from trajectory_guard.core.content.masking import mask_lines, mask_noise
from trajectory_guard.core.content.result_text import DECIMAL, MIN_QUOTE_CHARS
from trajectory_guard.core.fingerprints import object_in, parse_json
from trajectory_guard.core.text import both_ends

_SCORE_OF_LINE: Final = re.compile(
    r"\d(?:(?<![=:\d.,].)(?<![=:] .)|(?<=score[=:].)|(?<=score[=:] .))\d{0,17}[.,]\d+(?![.,]?\d)", re.IGNORECASE
)
"""A decimal without a name, which is no part of an address or a row: ``loss=0.71`` and ``loss: 0.71`` are readings.

The characters before it are looked at behind its first digit: so a search skips to the digits."""


def hits_form(result: str, values: Sequence[str] = ()) -> str:
    """The texts and ids in a list of hits, without its order, scores and other numbers; empty if it is no such list.

    A list of hits stands alone, or is the only list in an object; texts beside it count, unless the request named them.

    >>> a = '{"hits": [{"url": "a", "score": 2.1}, {"url": "b", "score": 1.9}]}'
    >>> hits_form(a) == hits_form('{"hits": [{"url": "b", "score": 3.0}, {"url": "a", "score": 0.2}]}')
    True
    >>> hits_form('[{"id": 1, "state": "open"}, {"id": 2, "state": "open"}]').split("\\n")
    ['1 open', '2 open']
    >>> hits_form("- b.md (0.71)\\n- a.md (0.66)\\n- c.md (0.21)").split("\\n")
    ['- a.md ()', '- b.md ()', '- c.md ()']
    """
    if result[:1] not in ("{", "[") or (result[:1] == "[" and "{" not in result):
        return _listed_form(result)
    if len(result) > _MAX_HITS_CHARS or result.count("{") < 2:
        return ""
    try:
        value = object_in(result) if result[0] == "{" else parse_json(result)
    except (ValueError, RecursionError):
        return ""
    beside: list[str] = []
    if type(value) is dict:
        lists = [one for one in value.values() if type(one) is list or type(one) is dict]
        beside = [one for one in value.values() if type(one) is str]
        value = lists[0] if len(lists) == 1 else None
    if type(value) is not list or len(value) < 2:
        return ""
    rows = []
    for hit in value:
        if type(hit) is not dict:  # parsed from JSON
            return ""
        leaves: list[str] = []
        _add_distinct_leaves(hit, "", leaves)
        if not leaves:
            return ""
        rows.append(" ".join(leaves))
    if len(value) > _FEW_ROWS:
        rows = _with_figures(rows, value)
    rows.sort()
    if beside:
        rows += [mask_noise(text) if len(text) <= _MAX_STAMP_CHARS else text for text in beside if text not in values]
    return "\n".join(rows)


def _with_figures(rows: list[str], hits: list[dict[str, Any]]) -> list[str]:
    """The rows with those figures by which the list is not sorted: prices and places that are left, and no scores."""
    for name, first in hits[0].items():
        kind = type(first)
        if (kind is int or kind is float or kind is bool) and name not in _SCORES and name[-2:] not in _ID_ENDINGS:
            try:
                column = [hit[name] for hit in hits]
                up = sorted(column)
            except (KeyError, TypeError):  # some row has no figure there
                continue
            if column != up and column != up[::-1]:
                rows = [f"{row} {figure}" for row, figure in zip(rows, column, strict=True)]
    return rows


_FEW_ROWS: Final = 2
_SCORES: Final = frozenset(("score", "_score", "rank", "position", "similarity", "relevance", "distance", "confidence"))


def _listed_form(result: str) -> str:
    """The lines of a list without their order, scores and other fractions; empty if they are no list of like lines.

    A heading above ranked lines says nothing of the hits. A line below them may be the answer itself.
    """
    if len(result) > _MAX_LISTED_CHARS or result.count("\n") < _MIN_LISTED_LINES - 1:
        return ""
    start = result.lstrip()
    if start[:1].isalnum() and _FIRST_RANK.search(start) is None and _SCORE.match(start) is None:
        return ""  # as most results: no need to look at each line
    lines = [line.rstrip() for line in result.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if _LIST_NUMBER.match(line.lstrip()) is not None), len(lines))
    entries, below = _ranked(lines[first:])
    if first <= _LINES_AROUND and len(below) <= _LINES_AROUND - first and len(entries) >= _MIN_LISTED_LINES:
        return "\n".join([*sorted(DECIMAL.sub("", entry) for entry in entries), *map(mask_noise, below)])
    lines = [line.lstrip() for line in lines]
    scored = all(map(_SCORE.match, lines))
    if len(lines) < _MIN_LISTED_LINES or not (
        scored or all(line[0] == lines[0][0] and not line[0].isalnum() for line in lines)
    ):
        return ""
    return "\n".join(sorted(DECIMAL.sub("", line) for line in lines))


def _ranked(lines: list[str]) -> tuple[list[str], list[str]]:
    """The entries of a ranked list without their ranks, indented lines added to each; and the lines below the list."""
    entries: list[str] = []
    for at, line in enumerate(lines):
        rank = _LIST_NUMBER.match(line.lstrip())
        if rank is not None:
            entries.append(line.lstrip()[rank.end() :])
        elif line[:1].isspace():
            entries[-1] += f" {line.strip()}"
        else:
            return ([], []) if any(_LIST_NUMBER.match(one.lstrip()) for one in lines[at:]) else (entries, lines[at:])
    return entries, []


_SCORE: Final = re.compile(r"\W?(?:[^\W\d_]{2,16} ?[=:] ?)?[01]\.\d{1,17}\b")
"""At the beginning of a line, the score of a hit: ``score=0.505``, ``[0.71]``."""


_LIST_NUMBER: Final = re.compile(r"\A(?:\d{1,3}[.):]|\[\d{1,3}\]|\(\d{1,3}\))\s+")
_FIRST_RANK: Final = re.compile(r"^(?:\[1\]|\(1\)|1[.):])\s", re.MULTILINE)
_LINES_AROUND: Final = 2
LINE_BYTES: Final = 2


def lines_of(result: str, values: tuple[str, ...] = ()) -> bytes:
    """Checksums, ``LINE_BYTES`` each, of the lines of a result; none below three.

    Scores and other fractions aside, clocks and other noise too, and the lines of the request, which a terminal echoes.
    Of a line in brackets the figures are left out: it is the viewer's, and counts the lines around a window.

    >>> lines_of("[0.8] a\\n[0.7] b\\n[0.6] c") == lines_of("[0.9] a\\n[0.5] b\\n[0.1] c")
    True
    >>> lines_of("$ ls -a\\n.\\n..\\n$", ("ls -a",)) == lines_of("$ ls --all\\n.\\n..\\n$", ("ls --all",))
    True
    >>> lines_of("#####\\n#..@#\\n#####")
    b''
    >>> lines_of("(9 more lines above)\\na\\nb") == lines_of("(8 more lines above)\\na\\nb\\n(7 more li")
    True
    """
    compared = both_ends(result, _MAX_LINES_CHARS)
    if compared.count("\n") < _MIN_LISTED_LINES - 1 or _is_board(compared):
        return b""
    return _checksums_of_lines(compared, values)


def _is_board(text: str) -> bool:
    """Whether most lines form a board: equally long, of a few signs. Its state is where these stand, not which lines
    there are.
    """
    lines = text.splitlines()
    longest = max(map(len, lines))
    rows = [line for line in lines if len(line) == longest]
    return (
        longest >= _MIN_LISTED_LINES <= len(rows) and 2 * len(rows) > len(lines) and len(set("".join(rows))) <= _SIGNS
    )


_SIGNS: Final = 12


@lru_cache(maxsize=256)
def _checksums_of_lines(compared: str, values: tuple[str, ...]) -> bytes:
    text = mask_lines(_SCORE_OF_LINE.sub("", compared) if _may_hold_decimal(compared) else compared)
    for value in values:
        for line in value[:_MAX_LINES_CHARS].splitlines():
            if len(line) >= MIN_QUOTE_CHARS and line in text:
                text = text.replace(line, "")
    data = text.encode("utf-8", "surrogatepass")
    lines = [
        line.translate(_FIGURES) if line[0] in b"([" and _IN_BRACKETS.match(line) and _WORD.search(line) else line
        for line in map(bytes.strip, data.split(b"\n"))
        if line
    ]
    if lines and lines[-1][0] in b"([" and not _CLOSING.search(lines[-1]):
        lines.pop()  # the viewer's as well, where the telemetry has cut the text off
    short = [crc32(line) & 0xFFFF for line in lines]  # all of them have to be known: single ones may be alike
    return pack(f">{len(short)}H", *short) if len(short) >= _MIN_LISTED_LINES else b""


def _may_hold_decimal(text: str) -> bool:
    """Whether ``DECIMAL`` may match: a quick look in ASCII; elsewhere other characters may be digits."""
    return not text.isascii() or b"0.0" in text.encode().translate(_DIGITS_AND_POINTS)


_IN_BRACKETS: Final = re.compile(rb"\A(?:\([^()]*\)|\[[^][]*\])\Z")
_WORD: Final = re.compile(rb"[A-Za-z\x80-\xff]{2}")
"""A line in one pair of brackets, with a word in it: ``(204 more lines above)``, ``[File: a.py (274 lines total)]``."""
_CLOSING: Final = re.compile(rb"[])]")
_FIGURES: Final = bytes.maketrans(b"123456789", b"000000000")
_DIGITS_AND_POINTS: Final = bytes.maketrans(b"123456789,", b"000000000.")
_MAX_STAMP_CHARS: Final = 64
_MAX_LINES_CHARS: Final = 8_192
_MAX_LISTED_CHARS: Final = 4_096
_MIN_LISTED_LINES: Final = 3


def _add_distinct_leaves(within: Any, key: str, leaves: list[str]) -> None:
    """Texts, and the numbers under keys that end in ``id``: another id is another record. ``within``: dict or list."""
    for name, item in within.items() if type(within) is dict else zip(repeat(key), within):
        kind = type(item)
        if kind is str:
            leaves.append(item)
        elif kind is list and _TEXTS.issuperset(map(type, item)):
            leaves += item
        elif kind is dict or kind is list:
            _add_distinct_leaves(item, name, leaves)
        elif (kind is int or kind is bool) and name[-2:] in _ID_ENDINGS:
            leaves.append(str(item))


_TEXTS: Final = frozenset((str,))
_ID_ENDINGS: Final = frozenset(("id", "Id", "iD", "ID"))
_MAX_HITS_CHARS: Final = 8_192
