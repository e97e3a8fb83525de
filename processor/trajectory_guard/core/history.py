"""The bounded memory of one trajectory: rings of 8-byte symbols, newest last.

Byte strings keep a trajectory under 4 KiB and make every look-up one ``rfind`` in C; a list of step objects would
be ten times the size and slower to search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Symbol = bytes
"""Eight bytes of a hash; ``UNKNOWN`` for what was not visible."""
UNKNOWN: Final[Symbol] = b""
WIDTH: Final = 8
_BLANK: Final = b"\0" * WIDTH


class Ring:
    """Symbols of the last ``capacity`` steps, addressed by absolute step index."""

    __slots__ = ("data", "size", "start")

    def __init__(self, capacity: int, data: bytes = b"", start: int = 0) -> None:
        self.size = capacity * WIDTH
        self.data = data  # immutable on purpose: exact size, where a bytearray would keep room to grow
        self.start = start

    def __len__(self) -> int:
        return len(self.data) // WIDTH

    def __contains__(self, symbol: Symbol) -> bool:
        if not symbol or symbol not in self.data:
            return False
        return self._rfind(symbol, len(self.data)) >= 0

    def __getitem__(self, index: int) -> Symbol:
        offset = (index - self.start) * WIDTH
        symbol = self.data[offset : offset + WIDTH] if offset >= 0 else UNKNOWN
        return UNKNOWN if symbol == _BLANK else symbol

    def append(self, symbol: Symbol) -> None:
        """Add the newest symbol, forgetting the oldest when full."""
        data = self.data
        if len(data) < self.size:
            self.data = data + (symbol or _BLANK)
        else:
            self.data = data[WIDTH:] + (symbol or _BLANK)
            self.start += 1

    def forget(self, symbol: Symbol) -> bool:
        """Blank the newest occurrence of ``symbol``; whether there was one."""
        at = self.last(symbol)
        if at < 0:
            return False
        offset = (at - self.start) * WIDTH
        self.data = self.data[:offset] + _BLANK + self.data[offset + WIDTH :]
        return True

    def forget_last(self) -> None:
        """Take the newest symbol back."""
        self.data = self.data[:-WIDTH]

    def last(self, symbol: Symbol) -> int:
        """Index of the newest occurrence, -1 if there is none (or ``symbol`` is unknown)."""
        if not symbol or symbol not in self.data:
            return -1
        offset = self._rfind(symbol, len(self.data))
        return self.start + offset // WIDTH if offset >= 0 else -1

    def occurrences(self, symbol: Symbol) -> Iterator[int]:
        """Indices of ``symbol``, newest first."""
        if not symbol:
            return
        offset = self._rfind(symbol, len(self.data))
        while offset >= 0:
            yield self.start + offset // WIDTH
            offset = self._rfind(symbol, offset)

    def _rfind(self, symbol: Symbol, end: int) -> int:
        offset = self.data.rfind(symbol, 0, end)
        while offset >= 0 and offset % WIDTH:  # a match across two neighbours is no match
            offset = self.data.rfind(symbol, 0, offset + WIDTH - 1)
        return offset


class History:
    """What a trajectory remembers of its steps: which call, and what came back."""

    __slots__ = ("calls", "results")

    def __init__(self, capacity: int) -> None:
        self.calls = Ring(capacity)
        self.results = Ring(capacity)

    def since(self, index: int, call: Symbol, result: Symbol) -> list[int]:
        """Steps at or after ``index`` at which ``call`` returned ``result``, newest first."""
        found = []
        for at in self.calls.occurrences(call):
            if at < index:
                break
            if self.results[at] == result:
                found.append(at)
        return found

    def returned(self, call: Symbol, result: Symbol) -> bool:
        """Whether ``call`` ever returned ``result`` within memory."""
        return result in self.results and any(self.results[at] == result for at in self.calls.occurrences(call))
