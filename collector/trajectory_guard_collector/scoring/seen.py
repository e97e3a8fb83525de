"""Spans whose steps can no longer be put in order, to recognise second deliveries of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from trajectory_guard_collector.scoring.items import FIRST, Order

WIDTH: Final = 8
_CHUNK: Final = 1_024 * WIDTH
_CACHED: Final = 64
SAVED: Final = 1_024
"""Span ids that are saved with a trajectory."""


class SavedExtent(NamedTuple):
    """Extent of a saved trajectory.

    Fields:
        row: id of the newest row of the write-ahead log whose steps it had when it was saved, 0 if unknown.
        floor: order of the newest of these steps that was evaluated.
    """

    row: int = 0
    floor: Order = FIRST

    def covers(self, order: Order, row: int) -> bool:
        """Whether the saved state holds an item that is read again from a row; ``row``: 0 if it comes from a sender."""
        return 0 < row <= self.row and order <= self.floor


class SeenSpans:
    """The span ids added last, eight bytes each.

    A batch that is sent again has its spans in one stretch, so the ids are kept as bytes, and looked up in sets that
    are made when they are needed.

    Parameters:
        limit: ids that are kept at least; up to 1,023 more are.
        ids: those added before, joined.
    """

    __slots__ = ("_full", "_newest", "limit")

    def __init__(self, limit: int, ids: bytes = b"") -> None:
        self.limit = limit
        self._full: list[bytes] = [ids[at : at + _CHUNK] for at in range(0, len(ids), _CHUNK)]
        self._newest = self._full.pop() if self._full and len(self._full[-1]) < _CHUNK else b""

    def __len__(self) -> int:
        return (len(self._full) * _CHUNK + len(self._newest)) // WIDTH

    def __contains__(self, span_id: bytes) -> bool:
        at = self._newest.find(span_id)
        while at % WIDTH and at >= 0:
            at = self._newest.find(span_id, at + 1)
        return at >= 0 or any(span_id in _ids(chunk) for chunk in self._full)

    def append(self, span_id: bytes) -> None:
        """Add an id, and forget the oldest beyond the limit."""
        self._newest += span_id
        if len(self._newest) >= _CHUNK:
            self._full.append(self._newest)
            self._newest = b""
            while (len(self._full) - 1) * _CHUNK >= self.limit * WIDTH:
                del self._full[0]

    def newest(self, count: int) -> bytes:
        """The ids added last, joined."""
        return b"".join([*self._full[-1 - count * WIDTH // _CHUNK :], self._newest])[-count * WIDTH :]

    def shed(self) -> None:
        """Forget all but the newest, to free memory."""
        del self._full[:-1]


@lru_cache(maxsize=_CACHED)
def _ids(chunk: bytes) -> frozenset[bytes]:
    return frozenset(chunk[at : at + WIDTH] for at in range(0, len(chunk), WIDTH))
