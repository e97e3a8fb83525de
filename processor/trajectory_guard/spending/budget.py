"""Budgets: how much of a limit is used, the level that follows, and the alerts that are due. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from trajectory_guard.spending.ledger import AGENT, DAY, SERVICE, TRAJECTORY, Account, Balance

ALERTS: Final = (50, 80, 100)
"""Per cent of a budget at which an alert is raised, once each."""
USD: Final = "usd"
TOKENS: Final = "tokens"


class BudgetLevel(str, Enum):
    """How far a budget is used, and what is done before the next model call.

    ``NORMAL`` nothing; ``AGGRESSIVE`` (80 %) a cheaper model, where one is given; ``NEW_SESSIONS_ONLY`` (95 %) new
    sessions are refused, too; ``BLOCKED`` (100 %) every model call is.
    """

    NORMAL = "normal"
    AGGRESSIVE = "aggressive"
    NEW_SESSIONS_ONLY = "new_sessions_only"
    BLOCKED = "blocked"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 for the mildest."""
        return _RANKS[self]


_RANKS: Final = {level: rank for rank, level in enumerate(BudgetLevel)}
_LEVELS: Final = (
    (100, BudgetLevel.BLOCKED), (95, BudgetLevel.NEW_SESSIONS_ONLY), (80, BudgetLevel.AGGRESSIVE),
)  # fmt: skip


class Budget(NamedTuple):
    """A limit on the spending of each trajectory, agent or service, or on everything of a day.

    Fields:
        scope: one of ``ledger.SCOPES``.
        unit: ``USD`` or ``TOKENS``.
        limit: in micro-dollars or tokens, above 0.
        daily: the limit holds per UTC day; otherwise for all time.
        name: the only agent or service that it holds for; None: each of them has this limit.
    """

    scope: str
    unit: str
    limit: int
    daily: bool = False
    name: str | None = None

    @property
    def key(self) -> str:
        """Identifies the budget in saved alerts: another limit is another budget, whose alerts are due again."""
        return f"{self.scope}:{self.name or '*'}:{'day' if self.daily else 'total'}:{self.unit}:{self.limit}"

    @property
    def words(self) -> str:
        """The limit in words.

        >>> Budget("service", USD, 10_000_000, daily=True).words
        '10.00 USD per day'
        """
        amount = f"{_usd(self.limit)} USD" if self.unit == USD else f"{self.limit:,} tokens"
        return f"{amount} per day" if self.daily or self.scope == DAY else amount

    def account(self, trajectory: str, agent: str, service: str, day: str, tenant: str = "") -> Account | None:
        """The account that this budget limits for one caller; None if the budget does not concern it."""
        if self.scope == DAY:
            return Account(DAY, "", day, tenant)
        name = {TRAJECTORY: trajectory, AGENT: agent, SERVICE: service}[self.scope]
        if not name or self.name not in (None, name):
            return None
        return Account(self.scope, name, day if self.daily else "", tenant)

    def spent(self, balance: Balance) -> int:
        """The part of a balance that counts, in the unit of the limit."""
        return balance.micro_usd if self.unit == USD else balance.tokens


class BudgetState(NamedTuple):
    """A budget and what one account has used of it.

    Fields:
        spent: micro-dollars or tokens.
        unpriced: models without a price, whose calls a budget in USD cannot count.
    """

    budget: Budget
    account: Account
    spent: int
    unpriced: tuple[str, ...] = ()

    @property
    def level(self) -> BudgetLevel:
        """The level that follows from what is used."""
        return level_at(self.spent, self.budget.limit)

    @property
    def used(self) -> float:
        """Part of the limit that is used; 1.0 is all of it."""
        return self.spent / self.budget.limit

    @property
    def whose(self) -> str:
        """Whose budget it is, in words."""
        scope, name, day, tenant = self.account
        named = f"{scope} {name!r}" if name else "all services"
        named = f"{named} of {tenant!r}" if tenant else named
        return f"{named} on {day}" if day else named

    @property
    def amount(self) -> str:
        """The amount used and the limit, in words.

        >>> budget = Budget(SERVICE, USD, 10_000_000)
        >>> BudgetState(budget, Account(SERVICE, "shop"), 9_600_000).amount
        '9.60 of 10.00 USD'
        """
        if self.budget.unit == TOKENS:
            return f"{self.spent:,} of {self.budget.limit:,} tokens"
        cents = self.budget.limit >= 1_000_000 or not self.spent  # too coarse for a smaller limit
        spent = _usd(self.spent) if cents else f"{self.spent / 1e6:.6f}"
        return f"{spent} of {_usd(self.budget.limit)} USD"


def _usd(micro: int) -> str:
    return f"{micro / 1e6:,.2f}" if micro >= 10_000 or micro == 0 else f"{micro / 1e6:.6f}"


def level_at(spent: int, limit: int) -> BudgetLevel:
    """The level of a budget. Whole numbers only: no limit is missed by a rounding error.

    >>> [str(level_at(spent, 100)) for spent in (79, 80, 95, 100)]
    ['normal', 'aggressive', 'new_sessions_only', 'blocked']
    """
    return next((level for percent, level in _LEVELS if spent * 100 >= limit * percent), BudgetLevel.NORMAL)


def alerts_at(spent: int, limit: int) -> tuple[int, ...]:
    """The alerts of a budget that are due, in per cent.

    >>> alerts_at(85, 100)
    (50, 80)
    """
    return tuple(percent for percent in ALERTS if spent * 100 >= limit * percent)


def strictest(states: Iterable[BudgetState]) -> BudgetState | None:
    """The budget that is used furthest; None without budgets."""
    return max(states, key=lambda state: (state.level.rank, state.used), default=None)
