"""The spending of a process: books model calls, reports what is left of the budgets, raises alerts once each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trajectory_guard import telemetry
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.logs import write_entry
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.spending.booked import BookedHere, BookedModel, priced
from trajectory_guard.spending.budget import USD, Budget, BudgetLevel, BudgetState, alerts_at, strictest
from trajectory_guard.spending.days import day_of, today
from trajectory_guard.spending.ledger import (
    MICRO,
    TRAJECTORY,
    Account,
    Balance,
    Change,
    Kind,
    LedgerEntry,
    ModelSum,
    Rate,
    accounts_of,
    added,
    balance_of,
    of_known_scope,
    sum_of,
    writable,
)
from trajectory_guard.spending.outliers import LEAST_TOKENS, THRESHOLD, Baseline, Outlier
from trajectory_guard.spending.prices import PriceTable
from trajectory_guard.spending.stores import LedgerError, SpendingStore

if TYPE_CHECKING:
    from trajectory_guard.config.choices import Mode

MAX_WAITING: Final = 1_000
MAX_NAMED: Final = 20
"""Models without a price that a reply, a status or a log line names; of the others it has the number."""
_AGENTS: Final = 1_024
_RAISED: Final = 65_536
_MODELS: Final = 256
_RETRY_AFTER_S: Final = 1.0
_CLOSING_S: Final = 1.0
_CLOSING_PAUSE_S: Final = 0.05
_PRICES_WAIT_S: Final = 2.0
_log: Final = logging.getLogger(telemetry.LOGGER)


class Alert(NamedTuple):
    """A budget that has reached 50, 80 or 100 %; raised once each.

    Fields:
        percent: which of them.
        state: the budget as it was then.
    """

    percent: int
    state: BudgetState


class Booked(NamedTuple):
    """Alerts and outliers that booked model calls raised.

    Fields:
        alerts: raised by these calls.
        outliers: the calls that are out of the ordinary for their agent.
    """

    alerts: Sequence[Alert] = ()
    outliers: Sequence[tuple[LedgerEntry, Outlier]] = ()


class Waiting(NamedTuple):
    """A change that waits for the store.

    Fields:
        counts: the call is new, and counts in the budgets of this process at once.
    """

    change: Change
    counts: bool


_HIGHEST: Final = {
    "enforce": BudgetLevel.BLOCKED, "nudge": BudgetLevel.AGGRESSIVE, "observe": BudgetLevel.NORMAL,
}  # fmt: skip


class BudgetStatus(NamedTuple):
    """The budgets that concern one caller.

    Fields:
        level: of the budget that is used furthest; ``NORMAL`` if none concerns the caller.
        state: that budget.
        is_new: nothing was spent in the trajectory so far.
        unpriced: models whose calls no budget in USD counts, because they have no price.
        unpriced_more: how many of these a collector has not named.
    """

    level: BudgetLevel = BudgetLevel.NORMAL
    state: BudgetState | None = None
    is_new: bool = True
    unpriced: tuple[str, ...] = ()
    unpriced_more: int = 0

    def within(self, mode: Mode) -> BudgetStatus:
        """With the highest level that ``mode`` lets a caller act on: any, a cheaper model, or nothing."""
        return self._replace(level=min(self.level, _HIGHEST[mode], key=lambda one: one.rank))

    def to_plain(self) -> dict[str, Any]:
        """JSON-able, for ``loop_status`` and logs."""
        found: dict[str, Any] = {"level": str(self.level)}
        if self.state is not None:
            found |= {"used": round(self.state.used, 4), "of": self.state.amount, "whose": self.state.whose}
        return found | _named(self.unpriced, self.unpriced_more) if self.unpriced else found


class Spending:
    """Books model calls in a store and reads the budgets. Thread-safe.

    A call that the store cannot take now is kept and booked with a later one; it counts in the budgets of this process
    at once. At most ``MAX_WAITING`` calls wait; more are lost, and counted.

    Parameters:
        store: where the ledger is kept.
        budgets: limits.
        rates: prices by model that come before those of ``prices``.
        prices: maintained prices, looked up in the background.
        counts: where events are counted.
        outlier_deviations: standard deviations, and outlier_tokens: tokens above the usual from which a call is an
            outlier; 0 deviations compare none.
    """

    def __init__(
        self,
        store: SpendingStore,
        *,
        budgets: Sequence[Budget] = (),
        rates: Mapping[str, Rate] | None = None,
        prices: PriceTable | None = None,
        counts: Counter[str] | None = None,
        outlier_deviations: float = THRESHOLD,
        outlier_tokens: int = LEAST_TOKENS,
    ) -> None:
        self.store, self.budgets = store, tuple(budgets)
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.service = ""  # of the spans seen last
        self._rates, self._prices = dict(rates or {}), prices or PriceTable()
        self._deviations, self._least = outlier_deviations, outlier_tokens
        self._baselines: BoundedTable[tuple[str, str], Baseline] = BoundedTable(_AGENTS)
        self._raised: BoundedTable[tuple[str, Account, int], None] = BoundedTable(_RAISED)
        self._booked_here = BookedHere()
        self._shown: BoundedTable[tuple[str, str, str], BudgetState] = BoundedTable(_AGENTS)
        self._requested: BoundedTable[str, str] = BoundedTable(_MODELS)
        self._named: set[str] = set()
        self._waited_for: set[str] = set()
        self._waiting: dict[str, Waiting] = {}
        self._next_try = 0.0
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    # --- booking -------------------------------------------------------------------------------------------------

    def book(self, entry: LedgerEntry) -> Booked:
        """Book a model call: its alerts, and whether it is out of the ordinary. Raises nothing of the store's."""
        return self.book_all((Change(entry),))

    def book_all(self, changes: Sequence[Change]) -> Booked:
        """Carry out changes of the ledger in one transaction. Raises nothing of the store's.

        Returns:
            The alerts that are due now, and the calls among those booked for the first time that are outliers.
        """
        effects, outliers = self._carry_out(changes), []
        touched: list[LedgerEntry] = []
        with self._lock:
            for change, more in zip(changes, effects, strict=True):
                entry = change.entry
                if more:
                    one = sum_of(entry) if more > 0 else sum_of(entry).negated()
                    self._booked_here.add(entry.model, one)
                self.counts["spending.calls"] += more
                if more > 0:
                    self.service = entry.service or self.service
                elif change.is_first or change.kind is Kind.WITHDRAW:
                    self.counts["spending.duplicates"] += 1
                if more > 0 and change.compared and (found := self._outlier(entry)) is not None:
                    outliers.append((entry, found))
                if more > 0 or change.kind is Kind.REVISE:
                    touched.append(entry)
        return Booked(self._alerts(touched) if self.budgets else (), outliers)

    def compare(self, entry: LedgerEntry) -> Booked:
        """Compare a call whose agent became known after it was booked with the usual ones of that agent."""
        with self._lock:
            found = self._outlier(entry)
        return Booked((), ((entry, found),) if found is not None else ())

    def _carry_out(self, changes: Sequence[Change]) -> list[int]:
        """Carry out changes, or let them wait. Returns for each how many calls more are booked, as far as is known."""
        with self._lock:
            if self._waiting and time.monotonic() < self._next_try:
                return [self._wait(change) for change in changes]
        try:
            self.flush()
            return self.store.add_all(changes)
        except LedgerError as error:
            self.failed(error)
            with self._lock:
                self._next_try = time.monotonic() + _RETRY_AFTER_S
                return [self._wait(change) for change in changes]

    def _wait(self, change: Change) -> int:
        call = change.entry.call_id
        before = self._waiting.get(call)
        if before is not None and change.is_first:
            return 0
        if before is None and len(self._waiting) >= MAX_WAITING:
            self.counts["spending.lost"] += 1
            return int(change.is_first)
        counts = change.is_first if before is None else before.counts and change.kind is not Kind.WITHDRAW
        self._waiting[call] = Waiting(change, counts)
        return int(change.is_first)

    def flush(self) -> None:
        """Carry out the changes that wait. Raises ``LedgerError``."""
        if self._waiting:
            with self._lock:  # whoever reads the ledger meanwhile finds each call in one place
                self.store.add_all([one.change for one in self._waiting.values()])
                self._waiting.clear()

    def save_waiting(self) -> bool:
        """Book the calls that wait, as far as the store takes them; whether none is left."""
        try:
            self.flush()
        except LedgerError as error:
            self._next_try = time.monotonic() + _RETRY_AFTER_S
            self.failed(error)
        return not self._waiting

    def retry(self) -> None:
        """Book the calls that wait if it is time for another attempt."""
        if self._waiting and time.monotonic() >= self._next_try:
            self.save_waiting()

    def close(self) -> None:
        """Book what waits, as far as possible within a second, and release files.

        The store opens them again when it is needed.
        """
        deadline = time.monotonic() + _CLOSING_S
        self.save_waiting()
        while self._waiting and time.monotonic() < deadline:
            time.sleep(_CLOSING_PAUSE_S)  # another process has locked the file
            self.save_waiting()
        self.store.close()

    def failed(self, error: Exception) -> None:
        """Count an error of the store, and log the first one."""
        self.counts["errors.spending"] += 1
        if self.counts["errors.spending"] == 1:
            _log.warning("trajectory_guard: spending cannot be saved or read now (logged once): %s", error)

    def _outlier(self, entry: LedgerEntry) -> Outlier | None:
        if not self._deviations:
            return None
        agent = (entry.tenant, entry.agent)
        baseline = self._baselines.touch(agent)
        if baseline is None:
            baseline = self._baselines[agent] = Baseline()
        found = baseline.check(entry.tokens, self._deviations, self._least)
        if found is not None:
            self.counts["spending.outliers"] += 1
        return found

    # --- budgets -------------------------------------------------------------------------------------------------

    def _alerts(self, entries: Sequence[LedgerEntry]) -> list[Alert]:
        found: list[Alert] = []
        if self._waiting and time.monotonic() < self._next_try:
            return found  # a store that is locked would delay every span: the next call that is booked raises them
        concerned = dict.fromkeys(
            (budget, budget.account(one.trajectory, one.agent, one.service, one.day, one.tenant))
            for budget in self.budgets for one in entries
        )  # fmt: skip
        try:
            for budget, account in concerned:
                if account is None:
                    continue
                state = self._state(budget, account)
                for percent in alerts_at(state.spent, budget.limit):
                    if self._claim(budget, account, percent):
                        self.counts[f"budget_alerts.{percent}"] += 1
                        found.append(Alert(percent, state))
        except LedgerError as error:
            self.failed(error)
        return found

    def _claim(self, budget: Budget, account: Account, percent: int) -> bool:
        key = (budget.key, account, percent)
        if key in self._raised:
            return False
        first = self.store.claim(*key)
        with self._lock:
            self._raised[key] = None
        return first

    def _state(self, budget: Budget, account: Account) -> BudgetState:
        balance = self.balance(account)
        tokens = balance.unpriced if budget.unit == USD else {}
        unpriced = tuple(sorted(tokens, key=lambda model: -tokens[model]))
        self._name_unpriced(unpriced)
        state = BudgetState(budget, account, budget.spent(balance), unpriced)
        if account.scope != TRAJECTORY:  # ids of trajectories would be as many series
            with self._lock:
                self._shown[budget.key, account.tenant, account.name] = state
        return state

    def status(
        self, trajectory: str = "", agent: str = "", service: str | None = None, *, tenant: str = "", wait: bool = False
    ) -> BudgetStatus:
        """The budgets that concern a caller, before it spends.

        Parameters:
            service: by default that of the spans seen last.
            tenant: as in ``LedgerEntry``.
            wait: wait up to two seconds for prices that are being looked up: a process that has just begun knows none.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        day = today(time.time())
        service = self.service if service is None else service
        trajectory, agent, service = (writable(bounded_name(name)) for name in (trajectory, agent, service))
        accounts = [(budget, budget.account(trajectory, agent, service, day, tenant)) for budget in self.budgets]
        concerned = [(budget, account) for budget, account in accounts if account is not None]
        if wait:
            self._wait_for_prices(account for budget, account in concerned if budget.unit == USD)
        states = [self._state(budget, account) for budget, account in concerned]
        worst = strictest(states)
        is_new = not trajectory or not self._sums(Account(TRAJECTORY, trajectory, "", tenant))
        unpriced = tuple(dict.fromkeys(model for state in states for model in state.unpriced))
        return BudgetStatus(worst.level if worst is not None else BudgetLevel.NORMAL, worst, is_new, unpriced)

    def level(self, trajectory: str) -> BudgetStatus | None:
        """The budgets of a trajectory, of the service and of the day; None if the ledger cannot be read now."""
        try:
            return self.status(trajectory)
        except LedgerError as error:
            self.failed(error)
            return None

    def learn_prices(self) -> None:
        """Wait up to two seconds for the prices of the models in the ledger: a process that has just begun knows none.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if any(budget.unit == USD for budget in self.budgets):
            self._prices.wait(
                {model for model in self.store.models() if model and model not in self._rates}, _PRICES_WAIT_S
            )

    def _wait_for_prices(self, accounts: Iterable[Account]) -> None:
        """Wait for maintained prices, once for each model: a look-up that hangs must not delay every call."""
        sums = [self._sums(account) for account in accounts]
        needed = {
            model for one in sums for model, total in one.items()
            if model and model not in self._rates and total.open_input + total.open_output
        }  # fmt: skip
        if new := needed - self._waited_for:
            self._prices.wait(new, _PRICES_WAIT_S)
            if len(self._waited_for) < _MODELS:
                self._waited_for |= new

    def balance(self, account: Account) -> Balance:
        """An account at the prices known now. Raises ``LedgerError``, and ``ValueError`` for an unknown scope."""
        return balance_of(self._sums(of_known_scope(account)), self.rate)

    def _sums(self, account: Account) -> dict[str, ModelSum]:
        if not self._waiting:
            return self.store.sums(account)
        with self._lock:
            waiting = [one.change.entry for one in self._waiting.values() if one.counts]
            concerned = [entry for entry in waiting if account in accounts_of(entry)]
            return added(self.store.sums(account), ((entry.model, sum_of(entry)) for entry in concerned))

    def model_of(self, answered: str, requested: str) -> str:
        """The name under which a call is booked: the one that has a configured price, else that of the answer.

        Parameters:
            answered: the model as its answer names it, often with a date; requested: as the caller named it. Empty if
                unknown.
        """
        if requested and requested != answered and answered not in self._rates:
            if requested in self._rates or not answered:
                return requested
            with self._lock:
                self._requested[answered] = requested
        return answered

    def day_of(self, end: float) -> str:
        """UTC day on which a call counts that ended at this time, in seconds; see ``day_of``."""
        return day_of(end, time.time())

    def rate(self, model: str) -> Rate | None:
        """Price of a model as known now: a configured one, else a maintained one; None if neither is.

        A model without either has the maintained price of the name by which it was requested here last.
        """
        configured = self._rates.get(model)
        if configured is not None or not model:
            return configured
        known = self._prices.known(model)
        requested = self._requested.get(model)  # another thread may book, and let the table forget one
        if known is None and requested is not None and not self._prices.is_asked(model):
            known = self._prices.known(requested)
        return Rate(round(known.input_usd * MICRO * MICRO), round(known.output_usd * MICRO * MICRO)) if known else None

    def _name_unpriced(self, models: Sequence[str]) -> None:
        """Say once a model that a budget in USD cannot count it. A price that is still looked up is no such case."""
        for model in models:
            asked = self._prices.is_asked(model) or self._prices.is_asked(self._requested.get(model) or "")
            if model in self._named or len(self._named) >= _MODELS or asked:
                continue
            if self.rate(model) is not None:  # looked up in the meantime
                continue
            self._named.add(model)
            _log.warning(
                "trajectory_guard: no price is known for model %r: budgets in USD do not count its tokens. Give one "
                "under 'model_prices', or a budget in tokens.", model or "(no name)",
            )  # fmt: skip

    # --- metrics -------------------------------------------------------------------------------------------------

    def booked_here(self) -> list[BookedModel]:
        """The bookings of this process by model."""
        with self._lock:
            sums = self._booked_here.copy()
        return [priced(model, one, self.rate) for model, one in sums]

    def shown(self) -> list[BudgetState]:
        """The budgets of agents, services and days as this process read them last; those of today only."""
        day = today(time.time())
        with self._lock:
            states = list(self._shown.values())
        return [
            state if state.account.day in ("", day)
            else state._replace(account=state.account._replace(day=day), spent=0)
            for state in states
        ]  # fmt: skip


# --- logs --------------------------------------------------------------------------------------------------------


def _named(unpriced: tuple[str, ...], more: int = 0) -> dict[str, Any]:
    """Models without a price, by name up to ``MAX_NAMED``, and the number of the others if there are any."""
    more += len(unpriced[MAX_NAMED:])
    return {"unpriced": list(unpriced[:MAX_NAMED]), **({"unpriced_more": more} if more else {})}


def alert_entry(alert: Alert) -> dict[str, Any]:
    """An alert as a flat JSON-able object."""
    state = alert.state
    return {
        "timestamp": datetime.now(timezone.utc).isoformat(), "event_type": "BUDGET_ALERT",
        "percent": alert.percent, "level": str(state.level), "scope": state.account.scope, "name": state.account.name,
        **({"tenant": state.account.tenant} if state.account.tenant else {}), "day": state.account.day,
        "used": round(state.used, 4), "of": state.amount, **_named(state.unpriced),
    }  # fmt: skip


def outlier_entry(entry: LedgerEntry, outlier: Outlier) -> dict[str, Any]:
    """A model call that is out of the ordinary as a flat JSON-able object."""
    return {
        "timestamp": datetime.now(timezone.utc).isoformat(), "event_type": "SPENDING_OUTLIER",
        "agent": entry.agent, "trajectory_id": entry.trajectory, "model": entry.model,
        "tokens": entry.tokens, "usual_tokens": round(outlier.mean), "deviations": round(outlier.deviations, 1),
    }  # fmt: skip


def log_booked(booked: Booked) -> None:
    """Log alerts at WARNING, those of a used-up budget at ERROR, and calls out of the ordinary at WARNING."""
    for alert in booked.alerts:
        level = logging.ERROR if alert.percent >= 100 else logging.WARNING
        write_entry(level, alert_entry(alert))
    for entry, outlier in booked.outliers:
        write_entry(logging.WARNING, outlier_entry(entry, outlier))
