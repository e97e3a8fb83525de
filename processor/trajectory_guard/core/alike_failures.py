"""Failures of one call in the same words, whose figures go up and down: addresses, lines, ids, what was just written.

A build that fails once more after each edit is work as long as its message says something else, or one of its figures
moves in one direction, as the number of failed tests does or the line of the first error.
"""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import islice
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.masking import mask_text
from trajectory_guard.core.written import figures_of

_ENOUGH: Final = 5  # behind the first failure of the call, of which nothing is kept
_MAX_CHARS: Final = 4_096
_MAX_FIGURES: Final = 24
_MIN_WRITTEN_CHARS: Final = 3
"""A single digit may have been written anywhere."""
_IN_WORD: Final = r"[^\s,;:{}\[\]\"'()|=]"
_NUMBERED: Final = re.compile(rf"(?<!{_IN_WORD}){_IN_WORD}*\d{_IN_WORD}*")
"""A word with a digit in it. Tried at the beginning of a word only: elsewhere, a long word would take time squared."""
_CODE: Final = re.compile(r"(?=[0-9A-Za-z]{5})(?:(?<![A-Za-z])[A-Za-z]+\d+[A-Za-z]|(?<![0-9])\d+[A-Za-z]+\d)")
"""Letters and digits mixed, as in the name of a pod or the id of a request."""
_FIGURE: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_STAYED, _GREW, _FELL, _BOTH = "=+-~"


class AlikeFailures(NamedTuple):
    """A series of failures of one call.

    Fields:
        words: checksum of the message without its figures; times: failures in the series.
        trend: a character for each figure, which says how it has moved in the series: ``=+-~``, the last for both ways.
        figures: those of the newest failure.
    """

    words: int = 0
    times: int = 0
    trend: str = ""
    figures: tuple[float, ...] = ()

    def with_failure(self, text: str, written: Container[int]) -> AlikeFailures:
        """The series with one more failure; a new one if it says something else.

        Parameters:
            written: ``figures_of`` what the agent wrote: a message that quotes them says what the agent did.
        """
        words, figures = _read(text, written)
        if words != self.words or len(figures) != len(self.figures):
            return AlikeFailures(words, 1, _STAYED * len(figures), figures)
        moved = map(_moved, self.trend, self.figures, figures)
        return AlikeFailures(words, self.times + 1, "".join(moved), figures)

    @property
    def says_nothing_new(self) -> bool:
        """Whether so many failures came that a figure which counts something would have moved in one direction."""
        return self.times >= _ENOUGH and _GREW not in self.trend and _FELL not in self.trend

    def to_plain(self) -> list[Any]:
        """JSON-able."""
        return [self.words, self.times, self.trend, list(self.figures)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> AlikeFailures:
        """Restore ``to_plain``; an empty list is no failure."""
        if not plain:
            return cls()
        words, times, trend, figures = plain
        return cls(words, times, trend, tuple(figures))


def _read(text: str, written: Container[int]) -> tuple[int, tuple[float, ...]]:
    """Checksum of a message without its figures, and the figures."""
    figures: list[float] = []

    def without_figures(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) >= _MIN_WRITTEN_CHARS and all(one in written for one in figures_of(word)):
            return "#"
        if _CODE.search(word) is not None:
            return "#"
        figures.extend(float(one) for one in _FIGURE.findall(word))
        return _FIGURE.sub("#", word)

    words = checksum(_NUMBERED.sub(without_figures, mask_text(text[:_MAX_CHARS])))
    return words, tuple(islice(figures, _MAX_FIGURES))


def _moved(trend: str, then: float, now: float) -> str:
    if now == then:
        return trend
    direction = _GREW if now > then else _FELL
    return direction if trend in (_STAYED, direction) else _BOTH
