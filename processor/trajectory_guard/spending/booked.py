"""The bookings of this process, by model: the sums behind its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trajectory_guard.spending.ledger import ModelSum, Rate, balance_of

_MAX_MODELS: Final = 4_096
OTHER: Final = "other"
"""The name for all models beyond the first ``_MAX_MODELS``: sums that were forgotten would begin again, and a counter
of them would fall or stand still."""


class BookedModel(NamedTuple):
    """The bookings of one model.

    Fields:
        sums: calls and tokens.
        micro_usd: money in micro-dollars, without the calls that have no price; None while none has one.
        unpriced: tokens of the calls that have no price.
    """

    model: str
    sums: ModelSum
    micro_usd: int | None
    unpriced: int


class BookedHere:
    """Sums by model, which are never forgotten. Not thread-safe."""

    def __init__(self) -> None:
        self._sums: dict[str, ModelSum] = {}

    def add(self, model: str, one: ModelSum) -> None:
        """Add a call, or take it back."""
        name = model if model in self._sums or len(self._sums) < _MAX_MODELS else OTHER
        self._sums[name] = (self._sums.get(name) or ModelSum()).plus(one)

    def copy(self) -> list[tuple[str, ModelSum]]:
        """The sums as they are now."""
        return list(self._sums.items())


def priced(model: str, sums: ModelSum, rate_of: Callable[[str], Rate | None]) -> BookedModel:
    """The bookings of a model at the price known now; ``rate_of``: None if it is unknown."""
    balance = balance_of({model: sums}, rate_of)
    unpriced = balance.unpriced.get(model, 0)
    return BookedModel(model, sums, balance.micro_usd or None if unpriced else balance.micro_usd, unpriced)
