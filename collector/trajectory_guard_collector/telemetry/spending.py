"""The metrics of the ledger, read from it at every scrape; the names are those of the guard in a process."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from trajectory_guard.spending.ledger import MICRO
from trajectory_guard.spending.spending import Spending
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import Metric
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.tenants import escaped

_EVENTS: Final = "spending."
_ALERTS: Final = "budget_alerts."


class SpendingMetrics:
    """Brings the series of spending up to date. Call it in the event loop.

    Parameters:
        spending: the ledger.
        metrics: has the series.
    """

    def __init__(self, spending: Spending, metrics: Metrics) -> None:
        self._spending, self._metrics = spending, metrics
        self._counted: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._unpriced: set[str] = set()

    def __call__(self) -> None:
        """Add what was booked since the last call, and set the gauges."""
        unpriced: dict[str, int] = {}
        for model, sums, micro, open_tokens in self._spending.booked_here():
            self._count(catalogue.SPENDING_TOKENS, model, sums.input_tokens + sums.output_tokens)
            if micro is not None:
                self._count(catalogue.SPENDING_COST, model, micro / MICRO)
            if open_tokens:
                unpriced[model] = open_tokens
        for model in self._unpriced | unpriced.keys():  # a price may have become known
            self._metrics.set(catalogue.SPENDING_UNPRICED, unpriced.get(model, 0), **{catalogue.MODEL: model})
        self._unpriced = set(unpriced)
        for name, count in list(self._spending.counts.items()):
            for prefix, row in ((_EVENTS, catalogue.SPENDING_EVENTS), (_ALERTS, catalogue.BUDGET_ALERTS)):
                if name.startswith(prefix):
                    self._count(row, name.removeprefix(prefix), count)
        for state in self._spending.shown():
            scope, name, _, tenant = state.account
            values = (scope, f"{tenant}/{escaped(name)}" if tenant else escaped(name), state.budget.words)
            self._metrics.set(
                catalogue.BUDGET_RATIO, state.used, **dict(zip(catalogue.BUDGET_RATIO.labels, values, strict=True))
            )

    def _count(self, row: Metric, value: str, total: float) -> None:
        """Bring a counter up to a total. A total that falls, since a call was withdrawn, leaves it as it is."""
        known = self._counted[row.name, value]
        if total > known:
            self._counted[row.name, value] = total
            self._metrics.add(row, total - known, **{row.labels[0]: value})
