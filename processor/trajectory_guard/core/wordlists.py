"""Word lists are text files in ``core/words``: one group a line, sorted; ``#`` begins a comment.

They are read once, at import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final


def words(name: str) -> frozenset[str]:
    """All words of a list."""
    return frozenset(word for line in _lines(name) for word in line.split())


def groups(name: str) -> dict[str, tuple[str, ...]]:
    """Words by the name of their group, of a list whose lines are ``name: word word ...``."""
    return {head: tuple(members.split()) for head, members in _named(name)}


def runs(name: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Runs of words by the name of their group, of a list whose lines are ``name: run of words | run ...``."""
    return {head: tuple(tuple(run.split()) for run in members.split("|")) for head, members in _named(name)}


def beginnings(name: str, group: str = "") -> re.Pattern[str]:
    """Matches where a phrase of a list of ``runs`` begins: at the edge of a word, where words have edges.

    Parameters:
        group: name of the only group to match; all but ``changes`` if empty.
    """
    phrases = _phrases(name, group)
    spaced, unspaced = (
        "|".join(re.escape(one) for one in phrases if (one[0] >= _UNSPACED_FROM) is unspaced)
        for unspaced in (False, True)
    )
    return re.compile(rf"(?<![^\W_])(?:{spaced})|{unspaced}", re.IGNORECASE)


def ascii_beginnings(name: str) -> tuple[str, ...]:
    """The phrases of ``beginnings`` that a text in ASCII can hold, in lower case: one is part of every match there."""
    folded = (phrase.translate(_ASCII_CASES).lower() for phrase in _phrases(name, ""))
    return tuple(phrase for phrase in folded if phrase.isascii())


def may_hold(stems: Sequence[str], text: str) -> bool:
    """Whether one of ``stems`` is in a text, in any case; True if it is not ASCII, where letters have more cases."""
    if not text.isascii():
        return True
    lower = text.lower()
    return bool([stem for stem in stems if stem in lower])


_ASCII_CASES: Final = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
"""The letters beyond ASCII that, regardless of case, are one of ASCII."""


def _phrases(name: str, group: str) -> list[str]:
    found = runs(name)
    heads = [head for head in found if head == group or (not group and head != "changes")]
    return sorted({" ".join(run) for head in heads for run in found[head]})


_UNSPACED_FROM: Final = "\u0e00"
"""Thai, Japanese, Chinese and Korean: no spaces between words, or particles that are written on."""


def _named(name: str) -> Iterator[tuple[str, str]]:
    for line in _lines(name):
        head, _, members = line.partition(":")
        yield head, members


def _lines(name: str) -> Iterator[str]:
    text = (files("trajectory_guard.core") / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))
