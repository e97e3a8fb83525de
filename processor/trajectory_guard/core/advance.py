"""Fruitless calls of one tool that go on: to the next page, offset or hour, or to where the last answer points.

Nothing but numbers differ, and they move by one step in one direction, or together as a date does. Or a value was not
asked for before and is taken from the last answer, as an opaque cursor is. Names of arguments need not be known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.plain import Plain
from trajectory_guard.core.result_text import MAX_FORM_CHARS, values_of

_NUMBER: Final = re.compile(r"\d{1,15}(?!\d)")
_TOKEN: Final = re.compile(r"[^\s\"',{}\[\]()<>]{4,512}")
_MAX_VALUES: Final = 6
_MAX_NUMBERS: Final = 24
_MAX_OFFERED: Final = 24
_MAX_RESULT_CHARS: Final = 2_000


class Advance(Plain):
    """How far the current series of fruitless calls of one tool has gone on. Checksums and numbers, bounded.

    Attributes:
        tool: name, case-folded. count: number of calls in a row that went on from the one before.
        shape: checksums of the values of the newest request without their numbers; numbers: these numbers.
        step: the newest change of one number per value.
        offered: checksums of the words of the newest result; asked: of the values that were asked for before.
    """

    __slots__ = ("asked", "count", "numbers", "offered", "shape", "step", "tool")

    def __init__(self) -> None:
        self.tool = ""
        self.count = 0
        self.shape: tuple[int, ...] = ()
        self.numbers: tuple[int, ...] = ()
        self.step: tuple[int, ...] = ()
        self.offered: tuple[int, ...] = ()
        self.asked: tuple[int, ...] = ()

    def end(self, tool: str) -> None:
        """A call of the tool returned something new: what follows is another series."""
        if tool == self.tool:
            self.__init__()  # type: ignore[misc]

    def update(self, tool: str, args: Any, result: str) -> int:
        """Add a fruitless call; returns how many calls in a row have gone on from the one before, this one included."""
        if tool != self.tool:
            self.__init__()  # type: ignore[misc]
            self.tool = tool
        texts = [text[:MAX_FORM_CHARS] for _, text in zip(range(_MAX_VALUES), values_of(args), strict=False)]
        values = [checksum(text) for text in texts]
        numbers = [tuple(map(int, _NUMBER.findall(text))) for text in texts]
        shape = tuple(checksum(_NUMBER.sub("#", text)) for text in texts)
        follows = any(value in self.offered and value not in self.asked for value in values)
        goes_on = shape == self.shape and self._goes_on(numbers)
        self.count = self.count + 1 if follows or goes_on else 0
        self.shape, self.numbers = shape, tuple(one for group in numbers for one in group)[:_MAX_NUMBERS]
        self.offered = tuple(map(checksum, _TOKEN.findall(result[:_MAX_RESULT_CHARS])[:_MAX_OFFERED]))
        self.asked = tuple(dict.fromkeys((*self.asked, *values)))[-_MAX_OFFERED:]
        return self.count

    def _goes_on(self, numbers: Sequence[Sequence[int]]) -> bool:
        """Whether the numbers of a request lie one step further; the first step is as good as any."""
        steps, at, together = [], 0, False
        for group in numbers:
            before = self.numbers[at : at + len(group)]
            at += len(group)
            moves = [now - then for now, then in zip(group, before, strict=False) if now != then]
            together = together or len(moves) > 1
            steps.append(moves[0] if moves else 0)
        if at > _MAX_NUMBERS or not any(steps):
            return False
        known, step = self.step, tuple(steps)
        if not known or not self.count:
            self.step = step
            return True
        if together:  # a date that begins a new month, a range in one text
            return all((one > 0) == (other > 0) for one, other in zip(step, known, strict=True) if one and other)
        self.step = step
        return step == known
