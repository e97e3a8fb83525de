"""Where a ledger is kept: the protocol of stores, and the store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.spending.ledger import (
    TRAJECTORY,
    Account,
    Change,
    Differences,
    Kind,
    Known,
    LedgerEntry,
    Mark,
    ModelSum,
    added,
    changed,
)

_CALLS_KNOWN: Final = 65_536
_ACCOUNTS: Final = 65_536


class LedgerError(Exception):
    """A store cannot be read or written now; the caller keeps the entry and tries again."""


class LockedError(LedgerError):
    """The ledger is locked by another process at the moment."""


class SpendingStore(Protocol):
    """A ledger and the alerts that were raised on it. Thread-safe."""

    def add(self, entry: LedgerEntry) -> bool:
        """Book a model call to all its accounts at once; False if it was booked before. Raises ``LedgerError``."""

    def add_all(self, changes: Sequence[Change]) -> list[int]:
        """Carry out changes, all at once or none.

        Returns:
            For each change how many calls more are booked: 1, 0 or -1.

        Raises:
            LedgerError: none was carried out.
        """

    def sums(self, account: Account) -> dict[str, ModelSum]:
        """The consumption of an account, by model; empty if nothing. Raises ``LedgerError``."""

    def models(self) -> set[str]:
        """The models in the ledger. Raises ``LedgerError``."""

    def claim(self, budget: str, account: Account, percent: int) -> bool:
        """Claim an alert; True for the first who does, in whatever process. Raises ``LedgerError``."""

    def close(self) -> None:
        """Release files."""


class MemoryStore:
    """The ledger of one process. It is bounded: accounts of trajectories are evicted, and counted.

    Parameters:
        counts: where evicted accounts are counted, as ``spending.forgotten``.
        limit: accounts of trajectories; there are as many of agents, services and days.
    """

    def __init__(self, counts: Counter[str] | None = None, limit: int = _ACCOUNTS) -> None:
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._calls: BoundedTable[str, Known] = BoundedTable(_CALLS_KNOWN)
        self._trajectories: BoundedTable[Account, dict[str, ModelSum]] = BoundedTable(limit, on_evicted=self._forgot)
        self._others: BoundedTable[Account, dict[str, ModelSum]] = BoundedTable(limit, on_evicted=self._forgot)
        self._claimed: BoundedTable[tuple[str, Account, int], None] = BoundedTable(limit)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    def _forgot(self, sums: object) -> None:
        self._counts["spending.forgotten"] += 1

    def _table(self, account: Account) -> BoundedTable[Account, dict[str, ModelSum]]:
        return self._trajectories if account.scope == TRAJECTORY else self._others

    def add(self, entry: LedgerEntry) -> bool:
        """As ``SpendingStore.add``."""
        return self.add_all((Change(entry),)) == [1]

    def add_all(self, changes: Sequence[Change]) -> list[int]:
        """As ``SpendingStore.add_all``."""
        differences, counts = Differences(), []
        with self._lock:
            for change in changes:
                call = change.entry.call_id
                known = self._calls.get(call, Mark.UNKNOWN)
                after = changed(known, change)
                counts.append(differences.count(known, after))
                if after is not known:
                    self._calls[call] = Mark.FINAL if change.kind is Kind.FINAL else after
            for account, model, one in differences.rows():
                table = self._table(account)
                table[account] = added(table.get(account) or {}, [(model, one)])
        return counts

    def sums(self, account: Account) -> dict[str, ModelSum]:
        """As ``SpendingStore.sums``."""
        with self._lock:
            return self._table(account).get(account) or {}

    def models(self) -> set[str]:
        """As ``SpendingStore.models``."""
        with self._lock:
            return {model for sums in self._others.values() for model in sums}

    def claim(self, budget: str, account: Account, percent: int) -> bool:
        """As ``SpendingStore.claim``."""
        key = (budget, account, percent)
        with self._lock:
            if key in self._claimed:
                return False
            self._claimed[key] = None
        return True

    def close(self) -> None:
        """Nothing to release."""
