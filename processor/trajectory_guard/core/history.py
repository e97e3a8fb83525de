"""The last steps of a run as rings of 8-byte symbols, and the tokens and USD behind them.

Byte strings keep the history of a run small and make every look-up one ``rfind`` in C; a list of step objects would be
ten times the size and slower to search.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from sys import byteorder
from typing import Any, Final

from trajectory_guard.core.fingerprints import UNKNOWN, Symbol
from trajectory_guard.core.observation import BATCH_MASK, Observation
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.steps import TOO_MANY, ModelTokens, Usage

WIDTH: Final = 8
KEPT_BATCHES: Final = 8
LARGEST: Final = 32
BLANK: Final = b"\0" * WIDTH
"""Stands for an unknown symbol."""
_ONCE: Final = (1, 1, 0)
_COPIES: Final = 7
"""Copies of a call in its model message that may be those of workers that all begin with one guide, or samples."""
_MOST_TOKENS: Final = 2**63
_LOOKED_BACK: Final = 16
_LEAST_CHANGES: Final = 3
_MAX_STAY: Final = 8
"""One value so many times in a row is no chance: eight tosses of a coin show one side in one of 128 cases."""


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
        return UNKNOWN if symbol == BLANK else symbol

    def symbols(self) -> list[Symbol]:
        """The known symbols, oldest first."""
        found = [self.data[at : at + WIDTH] for at in range(0, len(self.data), WIDTH)]
        return [symbol for symbol in found if symbol != BLANK]

    def append(self, symbol: Symbol) -> None:
        """Add the newest symbol, forgetting the oldest when full."""
        data = self.data
        if len(data) < self.size:
            self.data = data + (symbol or BLANK)
        else:
            self.data = data[WIDTH:] + (symbol or BLANK)
            self.start += 1

    def forget(self, symbol: Symbol) -> bool:
        """Blank the newest occurrence of ``symbol``; whether there was one."""
        at = self.last(symbol)
        if at < 0:
            return False
        offset = (at - self.start) * WIDTH
        self.data = self.data[:offset] + BLANK + self.data[offset + WIDTH :]
        return True

    def hides(self, since: int) -> bool:
        """Whether a symbol from the index ``since`` on is unknown."""
        offset = self.data.find(BLANK, max(0, since - self.start) * WIDTH)
        while offset >= 0 and offset % WIDTH:
            offset = self.data.find(BLANK, offset + 1)
        return offset >= 0

    def truncate(self, steps: int) -> None:
        """Drop the newest ``steps`` symbols, and give their indices out again."""
        end = self.start + len(self) - steps
        self.data = self.data[: max(0, end - self.start) * WIDTH]
        self.start = min(self.start, max(0, end))

    def clear(self) -> None:
        """Forget all symbols."""
        self.data = b""

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
    """The last steps of a run, addressed by the index of the step in the run.

    Attributes:
        calls, results: symbols of the call and of its result; forms: symbols of the result without the words of the
        request.
        places: index in the trajectory.
        starts: start in seconds.
        batches: ordinal of the batch, modulo 65,536.
        tallies: of repeats, by index: how often the call had been made by then, how often with this very result, and
            how many further ones of these its batch held (copies, which are not remembered one by one).

    It holds ``capacity`` steps, and beyond them the last ``KEPT_BATCHES`` batches whole, up to ``LARGEST`` times as
    many steps: a batch that is larger than the memory could not be recognised when it comes again.
    """

    __slots__ = ("batches", "calls", "capacity", "forms", "places", "results", "starts", "tallies")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.calls = Ring(capacity)
        self.results = Ring(capacity)
        self.forms = Ring(capacity)
        self.places = array("Q")
        self.starts = array("d")
        self.batches = array("H")
        self.tallies: dict[int, tuple[int, int, int]] = {}

    def append(
        self, call: Symbol, result: Symbol, form: Symbol, place: int, start: float, batch: int,
        made: int = 1, alike: int = 1,
    ) -> None:  # fmt: skip
        """Add the newest step, forgetting the oldest when full. ``made`` and ``alike``: as in ``tallies``."""
        calls, results, forms = self.calls, self.results, self.forms
        self.places.append(place)
        self.starts.append(start)
        self.batches.append(batch & BATCH_MASK)
        if made > 1:
            self.tallies[calls.start + len(self.places) - 1] = (made, alike, 0)
        size, oldest = len(calls.data), 0
        if size >= calls.size:  # all three are equally long
            steady = size == calls.size and (batch - self.batches[0]) & BATCH_MASK >= KEPT_BATCHES
            excess = 1 if steady else self._excess()
            del self.places[:excess], self.starts[:excess], self.batches[:excess]
            if self.tallies:
                for at in range(calls.start, calls.start + excess):
                    self.tallies.pop(at, None)
            calls.start = results.start = forms.start = calls.start + excess
            oldest = excess * WIDTH
        calls.data = calls.data[oldest:] + (call or BLANK)
        results.data = results.data[oldest:] + (result or BLANK)
        forms.data = forms.data[oldest:] + (form or BLANK)

    def _excess(self) -> int:
        """How many of the oldest steps are forgotten, of those beyond the capacity."""
        batches, newest, excess = self.batches, self.batches[-1], len(self.batches) - self.capacity
        forgotten = max(0, len(batches) - LARGEST * self.capacity)
        while forgotten < excess and (newest - batches[forgotten]) & BATCH_MASK >= KEPT_BATCHES:
            forgotten += 1
        return forgotten

    def note_copy(self, index: int) -> None:
        """Count a further call that equals the step at ``index``, with an equal result, in its batch."""
        made, alike, copies = self.tallies.get(index, _ONCE)
        self.tallies[index] = (made + 1, alike + 1, copies + 1)

    def made_at(self, index: int, since: int) -> int:
        """How often the call at ``index`` had been made by then; 0 before ``since``."""
        return self.tallies.get(index, _ONCE)[0] if index >= since else 0

    def tally(self, seen: Observation, equal: Sequence[int], batch: int) -> None:
        """Set ``copy_of`` and ``made_alike`` of a repeat from the ``equal`` steps before it, the newest first."""
        if not equal:
            return
        if seen.same_batch and self.batch_of(equal[0]) == batch:
            seen.copy_of = equal[0]
        if not seen.noisy:
            seen.made_alike += self.tallies.get(equal[0], _ONCE)[1]

    def copies_after(self, index: int) -> int:
        """Number of copies of the steps at or after ``index``, as far as they are remembered."""
        return sum([copies for at, (_, _, copies) in self.tallies.items() if copies and at >= index])

    def surplus_of(self, steps: Sequence[int], newest: int) -> int:
        """Number of copies of ``steps`` beyond those that may be of use. A model that writes one call dozens of times
        into a message repeats itself.

        Parameters:
            newest: the step of which a further copy is being evaluated; -1 if none is.
        """
        copies = [self.tallies.get(at, _ONCE)[2] + (at == newest) for at in steps]
        return sum([max(0, one - _COPIES) for one in copies])

    def start_of(self, index: int) -> float | None:
        """Start time in seconds of a remembered step, None if it is forgotten."""
        offset = index - self.calls.start
        return self.starts[offset] if 0 <= offset < len(self.starts) else None

    def batch_of(self, index: int) -> int:
        """Ordinal (modulo 65,536) of the batch a remembered step belongs to."""
        return self.batches[index - self.calls.start]

    def batches_of(self, indices: Iterable[int]) -> set[int]:
        """Ordinals (modulo 65,536) of the batches that remembered steps belong to."""
        start, batches = self.calls.start, self.batches
        return {batches[index - start] for index in indices}

    def move(self, steps: int) -> None:
        """Count the places in the trajectory from that many steps earlier."""
        self.places = array("Q", [place + steps for place in self.places])

    def places_of(self, indices: tuple[int, ...], newest: int) -> tuple[int, ...]:
        """As ``place_of``, of several steps."""
        start, places, known = self.calls.start, self.places, len(self.places)
        if indices and indices[0] >= start and indices == tuple(range(indices[0], indices[-1] + 1)):
            found = places[indices[0] - start : indices[-1] + 1 - start].tolist()  # in a row, as those of most loops
            return (*found, *[newest] * (len(indices) - len(found)))
        return tuple([places[at - start] if 0 <= at - start < known else self.place_of(at, newest) for at in indices])

    def place_of(self, index: int, newest: int) -> int:
        """Index in the trajectory of a step of this run; ``newest`` for the step that is not remembered yet.

        For a step that is forgotten, the one that is remembered longest stands in.
        """
        offset = index - self.calls.start
        if offset >= len(self.places):
            return newest
        return self.places[max(0, offset)] if self.places else newest

    def since(self, index: int, call: Symbol, result: Symbol) -> list[int]:
        """Steps at or after ``index`` at which ``call`` returned ``result``, newest first."""
        first = self.calls.start
        if not call or call not in self.calls.data:
            return []
        wanted = (int.from_bytes(call, byteorder), int.from_bytes(result, byteorder))
        calls, results = memoryview(self.calls.data).cast("Q"), memoryview(self.results.data).cast("Q")
        offset = max(0, index - first)
        pairs = enumerate(zip(calls[offset:], results[offset:], strict=True), first + offset)
        found = [at for at, pair in pairs if pair == wanted]
        found.reverse()
        return found

    def returned(self, call: Symbol, result: Symbol) -> bool:
        """Whether ``call`` ever returned ``result`` within memory."""
        return result in self.results and any(self.results[at] == result for at in self.calls.occurrences(call))

    def varies(self, call: Symbol, result: Symbol) -> bool:
        """Whether the newest steps, and one more that returns ``result``, are one call with results in no order.

        Several values that come again in no order are readings or draws. One that stays, or two in turns, are none.
        """
        calls, results = self.calls.data, self.results.data
        if results.endswith(result * _MAX_STAY):
            return False  # as in most loops: the rest need not be looked at
        found, size = [result], len(calls)
        for at in range(size - WIDTH, max(0, size - _LOOKED_BACK * WIDTH) - 1, -WIDTH):
            if calls[at : at + WIDTH] != call:
                break
            found.append(results[at : at + WIDTH])
        changes = [now != then for now, then in pairwise(found)]
        stays = changes.index(True) if True in changes else len(changes)
        again = [value for value in set(found) if found.count(value) > 1]
        in_turns = len(again) == 2 and all(changes)
        return len(again) > 1 and sum(changes) >= _LEAST_CHANGES and stays < _MAX_STAY and not in_turns

    def to_plain(self) -> dict[str, Any]:
        """JSON-able. Of places that follow each other, as those of the only run do, the first is enough."""
        places = self.places
        in_a_row = places and places[-1] - places[0] == len(places) - 1
        return {
            "capacity": self.capacity,
            "start": self.calls.start,
            "calls": to_text(self.calls.data),
            "results": to_text(self.results.data),
            "forms": to_text(self.forms.data),
            "places": [places[0]] if in_a_row else list(places),
            "starts": list(self.starts),
            "batches": list(self.batches),
            "tallies": [[at, *tally] for at, tally in self.tallies.items()] if self.tallies else [],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> History:
        """Restore ``to_plain``; raises KeyError where a field is missing."""
        history = cls(data["capacity"])
        for name in ("calls", "results", "forms"):
            setattr(history, name, Ring(data["capacity"], from_text(data[name]), data["start"]))
        places, history.starts = data["places"], array("d", data["starts"])
        if len(places) < len(history.starts):
            places = range(places[0], places[0] + len(history.starts))
        history.places = array("Q", places)
        history.batches = array("H", data["batches"])
        history.tallies = {at: (made, alike, copies) for at, made, alike, copies in data["tallies"]}
        return history


def amounts(usage: Usage | None) -> tuple[int, float]:
    """Tokens and USD, 0 for an amount that cannot be right; never raises."""
    if usage is None:
        return 0, 0.0
    try:
        tokens, cost = usage.tokens, usage.cost_usd
        return int(tokens) if 0 <= tokens < TOO_MANY else 0, float(cost) if 0.0 <= cost < TOO_MANY else 0.0
    except (TypeError, OverflowError):  # the latter only where this is compiled
        return 0, 0.0


class UsageWindow:
    """Tokens and USD of the remembered steps of a run. The window is empty until the telemetry shows usage."""

    __slots__ = ("costs", "start", "tokens", "unpriced")

    def __init__(self) -> None:
        self.start = 0  # index of the first entry
        self.tokens = array("Q")
        self.costs = array("d")
        self.unpriced: tuple[tuple[int, ModelTokens], ...] = ()

    def append(self, index: int, usage: Usage | None, kept: int) -> None:
        """Add the usage before the step ``index``; ``kept`` is the number of steps in the history."""
        if usage is None and not self.tokens:
            return
        tokens, cost = amounts(usage)
        if self.tokens and index < self.start + len(self.tokens):  # a copy, which has no place of its own
            if usage is not None:
                self.tokens[-1] = min(self.tokens[-1] + tokens, _MOST_TOKENS)
                self.costs[-1] += cost
                self.unpriced = (*self.unpriced, *((index, one) for one in usage.unpriced))[-2 * kept :]
            return
        if not self.tokens:
            self.start = index
        self.tokens.append(tokens)
        self.costs.append(cost)
        if usage is not None and usage.unpriced:
            self.unpriced = (*self.unpriced, *((index, one) for one in usage.unpriced))[-2 * kept :]
        excess = len(self.tokens) - kept
        if excess > 0:
            del self.tokens[:excess], self.costs[:excess]
            self.start += excess
            if self.unpriced and self.unpriced[0][0] < self.start:
                self.unpriced = tuple(one for one in self.unpriced if one[0] >= self.start)

    def after(self, index: int) -> tuple[int, float, tuple[ModelTokens, ...]]:
        """Tokens, USD, and tokens without a price, summed over the remembered steps after ``index``."""
        offset = max(0, index + 1 - self.start)
        return (
            sum(self.tokens[offset:]),
            sum(self.costs[offset:]),
            tuple(one for at, one in self.unpriced if at > index),
        )

    def to_plain(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "start": self.start, "tokens": list(self.tokens), "costs": list(self.costs),
            "unpriced": [[at, *one] for at, one in self.unpriced],
        }  # fmt: skip

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> UsageWindow:
        """Restore ``to_plain``."""
        window = cls()
        window.start = data["start"]
        window.tokens, window.costs = array("Q", data["tokens"]), array("d", data["costs"])
        window.unpriced = tuple((at, ModelTokens(*one)) for at, *one in data["unpriced"])
        return window


_KEPT_PAIRS: Final = 32


def with_pair(pairs: bytes, first: Symbol, second: Symbol) -> bytes:
    """Pairs of symbols, with a further one; the oldest goes when there are more than 32."""
    return (pairs + first + second)[-_KEPT_PAIRS * 2 * WIDTH :]


def second_of(pairs: bytes, first: Symbol) -> Symbol:
    """The second symbol of the newest pair that begins with ``first``; ``UNKNOWN`` if there is none."""
    ring = Ring(2 * _KEPT_PAIRS, pairs)
    at = ring.last(first)
    return ring[at + 1] if at >= 0 else UNKNOWN
