"""Failures of one call in the same words, whose figures go up and down: addresses, lines, ids, what was just written.

A build that fails once more after each edit is work as long as its message says something else, or one of its figures
moves in one direction, with steps back, as the number of failed tests does or the line of the first error, or towards
the value that was expected. So it is while the agent writes what the message named, and the next one names something
else, as in a list of rows that are mended one by one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.durations import pairs_that_moved
from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.written import figures_of

_ENOUGH: Final = 5  # behind the first failure of the call, of which nothing is kept
_MAX_CHARS: Final = 4_096
MAX_FIGURES: Final = 12
"""Messages with more figures, such as long logs, are not compared."""
_MIN_WRITTEN_CHARS: Final = 3
"""A single digit may have been written anywhere."""
_IN_WORD: Final = r"[^\s,;:{}\[\]\"'()|=]"
NUMBERED: Final = re.compile(rf"(?<!{_IN_WORD}){_IN_WORD}*\d{_IN_WORD}*")
"""A word with a digit in it. Tried at the beginning of a word only: elsewhere, a long word would take time squared."""
FIGURE: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_KEPT: Final = 8
_IN_ONE_DIRECTION: Final = 0.5
"""Difference of the shares of pairs that rise and that fall: at 0.5 three of four go one way."""


class AlikeFailures(NamedTuple):
    """A series of failures of one call.

    Fields:
        words: checksum of the message without its figures; times: failures in the series.
        figures: those of each of the newest failures.
        named: checksums of what the newest message names, and the agent had not written.
    """

    words: int = 0
    times: int = 0
    figures: tuple[tuple[float, ...], ...] = ()
    named: tuple[int, ...] = ()

    def with_failure(self, text: str, written: Container[int]) -> AlikeFailures:
        """The series with one more failure; a new one if it says something else.

        Parameters:
            written: ``figures_of`` what the agent wrote: a message that quotes them says what the agent did.
        """
        words, figures, named = _read(text, written)
        taken_up = any(one in written and one not in named for one in self.named)
        if len(figures) > MAX_FIGURES:
            return AlikeFailures()
        if taken_up or not self.times or words != self.words or len(figures) != len(self.figures[-1]):
            return AlikeFailures(words, 1, (figures,), named)
        return AlikeFailures(words, self.times + 1, (*self.figures[1 - _KEPT :], figures), named)

    @property
    def says_nothing_new(self) -> bool:
        """Whether so many failures came that a figure which counts something would have moved in one direction.

        Or towards another figure of the message, which stays: the value that was expected.
        """
        return self.times >= _ENOUGH and not moves_on(self.figures)

    def to_plain(self) -> list[Any]:
        """JSON-able."""
        return [self.words, self.times, [list(one) for one in self.figures], list(self.named)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> AlikeFailures:
        """Restore ``to_plain``; an empty list is no failure."""
        if not plain:
            return cls()
        words, times, figures, named = plain
        return cls(words, times, tuple(tuple(one) for one in figures), tuple(named))


def _read(text: str, written: Container[int]) -> tuple[int, tuple[float, ...], tuple[int, ...]]:
    """Checksum of a message without its figures, the figures, and checksums of what has figures and is not written."""
    figures: list[float] = []
    named: list[int] = []

    def without_figures(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) >= _MIN_WRITTEN_CHARS:
            unwritten = [one for one in figures_of(word) if one not in written]
            if not unwritten:
                return "#"
            named.extend(unwritten)
        figures.extend(float(one) for one in FIGURE.findall(word))
        return FIGURE.sub("#", word)

    words = checksum(NUMBERED.sub(without_figures, mask_text(text[:_MAX_CHARS])))
    return words, tuple(islice(figures, MAX_FIGURES + 1)), tuple(islice(named, MAX_FIGURES))


def moves_on(figures: Sequence[Sequence[float]]) -> bool:
    """Whether a figure of messages that are alike moves in one direction, or towards another one, which stays.

    Messages with many figures, or not with equally many, say too little of any of them.
    """
    if len(set(map(len, figures))) != 1 or len(figures[0]) > MAX_FIGURES:
        return False
    places = list(zip(*figures, strict=True))
    goals = {values[0] for values in places if len(set(values)) == 1}
    return any(_moves_on(values) or _approaches(values, goals) for values in places)


def _moves_on(values: tuple[float, ...]) -> bool:
    """Whether the values of a figure rise, or fall, on the whole."""
    return abs(_trend(values)) >= _IN_ONE_DIRECTION


def _approaches(values: tuple[float, ...], goals: set[float]) -> bool:
    """Whether a figure comes nearer to one of ``goals`` on the whole, from above and from below."""
    between = [goal for goal in goals if min(values) < goal < max(values)]
    return any(_trend([abs(value - goal) for value in values]) <= -_IN_ONE_DIRECTION for goal in between)


def _trend(values: Sequence[float]) -> float:
    """How many more of the pairs of unequal values rise than fall, as a share of them."""
    rising, falling = pairs_that_moved(values)
    return (rising - falling) / (rising + falling) if rising or falling else 0.0
