"""The spending of a process as its configuration asks for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from trajectory_guard.config import SECTIONS, ConfigError, GuardConfig, Mistake

if TYPE_CHECKING:
    from trajectory_guard.spending.prices import PriceTable
    from trajectory_guard.spending.spending import Spending

SPENDING_KEYS: Final = SECTIONS["spending"]


def spending_of(config: GuardConfig, prices: PriceTable, counts: Counter[str]) -> Spending | None:
    """The ledger and its budgets; None, and nothing imported, if the configuration has neither.

    Raises:
        ConfigError: the file of the ledger cannot be used.
    """
    if not (config.budgets or config.spending_file or config.track_spending):
        return None
    from trajectory_guard.spending.spending import Spending
    from trajectory_guard.spending.sqlite import SQLiteStore
    from trajectory_guard.spending.stores import LedgerError, MemoryStore, SpendingStore

    store: SpendingStore
    if config.spending_file:
        try:
            store = SQLiteStore(config.spending_file)
        except LedgerError as error:
            raise ConfigError(Mistake("spending_file", str(error))) from None
    else:
        store = MemoryStore(counts)
    return Spending(
        store,
        budgets=[one.budget() for one in config.budgets],
        rates={model: one.rate() for model, one in config.model_prices.items()},
        prices=prices,
        counts=counts,
        outlier_deviations=config.outlier_deviations,
        outlier_tokens=config.outlier_tokens,
    )
