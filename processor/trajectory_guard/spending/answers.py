"""The budgets of a collector in its answers to gates, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_guard.spending.budget import Budget, BudgetLevel, BudgetState
from trajectory_guard.spending.ledger import SCOPES, Account
from trajectory_guard.spending.spending import MAX_NAMED, BudgetStatus


def plain_status(status: BudgetStatus) -> dict[str, Any]:
    """A status as JSON-able data: in words for people, and the budget behind it in numbers for gates.

    >>> budget = Budget("service", "usd", 10_000_000)
    >>> state = BudgetState(budget, Account("service", "shop"), 9_600_000)
    >>> plain_status(BudgetStatus(state.level, state))["of"]
    '9.60 of 10.00 USD'
    """
    found = {**status.to_plain(), "is_new": status.is_new}
    if status.state is not None:
        budget, account, spent, unpriced = status.state
        found["budget"] = budget._asdict()
        found["account"] = account._asdict()
        found |= {"spent": spent, "unpriced_here": list(unpriced[:MAX_NAMED])}
    return found


def status_of(plain: Mapping[str, Any]) -> BudgetStatus:
    """Read ``plain_status``.

    Raises:
        KeyError, TypeError, ValueError: the data is no status.
    """
    state = None
    if "budget" in plain:
        budget, account = Budget(**plain["budget"]), Account(**plain["account"])
        if budget.scope not in SCOPES or budget.limit <= 0:
            raise ValueError(f"no budget: {plain['budget']!r}")
        state = BudgetState(budget, account, int(plain["spent"]), _names(plain.get("unpriced_here")))
    unpriced, more = _names(plain.get("unpriced")), int(plain.get("unpriced_more") or 0)
    return BudgetStatus(BudgetLevel(plain["level"]), state, bool(plain["is_new"]), unpriced, more)


def _names(plain: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in plain or ())


def stricter(one: BudgetStatus | None, other: BudgetStatus | None) -> BudgetStatus | None:
    """The stricter of two statuses; a trajectory is new only where both say so."""
    if one is None or other is None:
        return other if one is None else one
    strict = max(one, other, key=lambda status: (status.level.rank, status.state.used if status.state else -1.0))
    unpriced = tuple(dict.fromkeys((*one.unpriced, *other.unpriced)))
    more = max(one.unpriced_more, other.unpriced_more)  # they may be the same models
    return strict._replace(is_new=one.is_new and other.is_new, unpriced=unpriced, unpriced_more=more)
