"""What is tried by plan: combinations of several lists, as nested loops go through them, and counted repetitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.plain import from_text, to_text

_MAX_COLUMNS: Final = 8
_MAX_VALUES: Final = 64
_KEPT_ROWS: Final = 64
_LEAST_ROWS: Final = 4
_MAX_WORDS: Final = 3
_MAX_CHARS: Final = 60
"""A longer value, or one of more words, is a text: other words for one question may be asked of two sources in turn."""


class Grid(NamedTuple):
    """The newest calls of one tool as rows of a table, each value by its place in the list of its column.

    Nested loops over lists go round: the inner list begins again, and whenever it does, an outer one has moved on.
    Settings that are tried out go back and forth.

    Fields:
        tool: name, case-folded.
        columns: checksums of the values of each argument, in the order in which they came.
        named: whether the values of each are names, and not numbers: places on a screen and settings are turned.
        rows: places of the values of each call in their columns, a byte each.
    """

    tool: str = ""
    columns: tuple[tuple[int, ...], ...] = ()
    named: tuple[bool, ...] = ()
    rows: bytes = b""

    def after(self, tool: str, values: Sequence[str]) -> Grid:
        """The table with one more call.

        Parameters:
            values: those of its arguments that say what is asked for.
        """
        if not 1 < len(values) <= _MAX_COLUMNS or any(map(_is_text, values)):
            return NO_GRID
        sums = list(map(checksum, values))
        named = tuple([_NUMBER.fullmatch(value) is None for value in values])
        grid = self if tool == self.tool and named == self.named else Grid(tool, ((),) * len(sums), named)
        columns = [known if one in known else (*known, one) for known, one in zip(grid.columns, sums, strict=True)]
        if max(map(len, columns)) > _MAX_VALUES:
            return NO_GRID
        row = bytes([known.index(one) for known, one in zip(columns, sums, strict=True)])
        return Grid(tool, tuple(columns), named, (grid.rows + row)[-_KEPT_ROWS * len(sums) :])

    @property
    def is_walked(self) -> bool:
        """Whether the calls go through the combinations in order, and the inner list has begun again.

        A column whose values never come again is no list: it may be a price, or words that are new each time.
        """
        width = len(self.columns)
        rows = [self.rows[at : at + width] for at in range(0, len(self.rows), width or 1)]
        if len(rows) < _LEAST_ROWS or len(set(rows)) < len(rows):
            return False
        pairs = list(pairwise(rows))
        moves = [sum([one[at] != other[at] for one, other in pairs]) for at in range(width)]
        lists = [at for at in range(width) if moves[at] and len({row[at] for row in rows}) < len(rows)]
        if len(lists) < 2 or not any(self.named[at] for at in lists):
            return False
        inner, *outer = sorted(lists, key=moves.__getitem__, reverse=True)
        size = 1 + max([row[inner] for row in rows])
        if len(rows) <= size or any((one[inner] + 1) % size != other[inner] for one, other in pairs):
            return False
        begins = {other[inner] for one, other in pairs if any(one[at] != other[at] for at in outer)}
        return len(begins) == 1

    def to_plain(self) -> list[object]:
        """JSON-able."""
        return [self.tool, self.columns, self.named, to_text(self.rows)]

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> Grid:
        """Restore ``to_plain``."""
        tool, columns, named, rows = plain
        return cls(tool, tuple(map(tuple, columns)), tuple(named), from_text(rows))


NO_GRID: Final = Grid()
_NUMBER: Final = re.compile(r"-?\d{1,12}(?:[.,]\d{1,12})?")


def _is_text(value: str) -> bool:
    return len(value) > _MAX_CHARS or value.count(" ") >= _MAX_WORDS


MAX_TOTAL: Final = 200
"""A count towards more is no excuse: the loop that it may be would go on for too long."""
_MAX_GAP: Final = 8
_MAX_SPENT: Final = 2 * MAX_TOTAL
"""Steps of a run that may be counted: one that begins its count anew for ever is a loop."""
_FIRST_LAP: Final = 4
"""Steps that the first count covers in a run that was asked to count: no second one shows yet how long its lap is."""
_HEAD_CHARS: Final = 400
_COUNTED: Final = re.compile(
    r"(?:\d{1,3}\s?[-–]\s?)?(\d(?<![\d.,:].)\d{0,2})(?![\d.])[^\d\n]{1,9}(\d{1,3})(?![\d:]|\.\d)"
)
"""``4 of 20``; of calls that are made together, the last one counts: ``6-10 of 40``."""


def counts_in(thought: str) -> str:
    """What a model counts in a text, without the text.

    >>> counts_in("Now label 4 of 20 for Ms Smith")
    '4/20'
    """
    return " ".join([f"{number}/{total}" for number, total in _COUNTED.findall(thought[:_HEAD_CHARS])])


class Count(NamedTuple):
    """What the model counts aloud towards a number that it has set: "run 3 of 10", "7/20".

    What is measured, tossed or tried several times on purpose looks like a loop, and ends by itself. A count that goes
    up by one each time, of one total, says so in any language.

    Fields:
        number, total: as the model says them; at: index of the step that it was said with.
        gap: steps since the count before it, 0 if this is the first one; lap: how many of them belong to each number.
        spent: steps that were counted in this run, all counts together.
    """

    number: int = 0
    total: int = 0
    at: int = -1
    gap: int = 0
    lap: int = 0
    spent: int = 0

    def after(self, thought: str, index: int, asked: bool = False) -> Count:
        """The count once the model has said ``thought`` with the step at ``index``.

        Parameters:
            asked: a nudge has asked it to count, so that its first count is an answer.

        >>> count = Count().after("Run 1 of 10", 0).after("Run 2 of 10", 1)
        >>> count.covers(1), count.covers(2), count.after("Run 2 of 10", 2).covers(2)
        (True, False, False)
        >>> Count().after("第1次，共3次", 0).after("", 1).after("第2次，共3次", 2).covers(3)
        True
        >>> Count().after("Run 1 of 16.", 0).after("Run 5 of 16.", 4).covers(7)
        True
        >>> Count().after("4/20", 8, asked=True).covers(9), Count().after("4/20", 8).covers(9)
        (True, False)
        """
        for found in _COUNTED.findall(thought[:_HEAD_CHARS]):
            number, total = int(found[0]), int(found[1])
            if (number, total) == (self.number, self.total) and index < self.at + self.gap:
                return self
            gap, more = index - self.at, number - self.number
            if total == self.total and 0 < more <= total - self.number and gap % more == 0:
                return Count(number, total, index, gap, gap // more, self.spent + gap)
            if 0 < number <= total <= MAX_TOTAL:
                lap = _FIRST_LAP if asked and total != self.total else 0
                return Count(number, total, index, lap, lap, self.spent + lap)
        return self

    def covers(self, index: int) -> bool:
        """Whether a step is one of those that the model counts: neither the next count is overdue, nor the end."""
        due = index < self.at + min(self.gap, (self.total - self.number + 1) * self.lap)
        return due and self.gap <= _MAX_GAP and self.spent <= _MAX_SPENT
