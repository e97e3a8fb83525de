"""Figures that the agent wrote itself: where a result shows them, they are no noise."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.masking import volatile_parts

_WORD: Final = re.compile(r"\w+")
_ASCII_FIGURE: Final = re.compile(r"\b[A-Za-z_]*\d\w*", re.ASCII)
_DIGIT: Final = re.compile(r"\d")
_MAX_WRITTEN_CHARS: Final = 2_000


def was_written(written: Collection[int], text: str) -> bool:
    """Whether a part of a result that looks volatile is one that the agent wrote itself: a time-out, a date, an id.

    Parameters:
        written: ``figures_of`` what the agent has written.
    """
    return any(
        figures and set(figures) <= set(written)
        for figures in map(figures_of, volatile_parts(text[:_MAX_WRITTEN_CHARS]))
    )


def figures_of(text: str) -> list[int]:
    """Checksums of the words of a text that hold a digit."""
    text = text[:_MAX_WRITTEN_CHARS]
    if text.isascii():  # searched in one go, and mostly there is nothing to find
        return [checksum(word) for word in _ASCII_FIGURE.findall(text)] if _DIGIT.search(text) else []
    return [checksum(word) for word in _WORD.findall(text) if any(map(str.isdigit, word))]
