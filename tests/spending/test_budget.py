"""Levels and alerts of budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.spending.budget import Budget, BudgetLevel, BudgetState, alerts_at, level_at, strictest
from trajectory_guard.spending.ledger import Account, Balance

AMOUNTS = st.integers(0, 10**12)
LIMITS = st.integers(1, 10**12)


@pytest.mark.parametrize(
    ("spent", "level"),
    [
        (0, "normal"), (799_999, "normal"), (800_000, "aggressive"), (949_999, "aggressive"),
        (950_000, "new_sessions_only"), (999_999, "new_sessions_only"), (1_000_000, "blocked"), (10**9, "blocked"),
    ],
)  # fmt: skip
def test_levels(spent: int, level: str) -> None:
    assert level_at(spent, 1_000_000) == BudgetLevel(level)


@given(AMOUNTS, AMOUNTS, LIMITS)
def test_who_spends_more_is_never_at_a_milder_level(one: int, other: int, limit: int) -> None:
    less, more = sorted((one, other))
    assert level_at(less, limit).rank <= level_at(more, limit).rank
    assert alerts_at(more, limit)[: len(alerts_at(less, limit))] == alerts_at(less, limit)


@given(AMOUNTS, LIMITS)
def test_a_budget_is_blocked_exactly_when_it_is_used_up(spent: int, limit: int) -> None:
    assert (level_at(spent, limit) is BudgetLevel.BLOCKED) == (spent >= limit) == (100 in alerts_at(spent, limit))


@pytest.mark.parametrize(
    ("budget", "account"),
    [
        (Budget("trajectory", "usd", 1), Account("trajectory", "t")),
        (Budget("agent", "usd", 1), Account("agent", "a")),
        (Budget("agent", "usd", 1, daily=True), Account("agent", "a", "2026-11-22")),
        (Budget("agent", "usd", 1, name="a"), Account("agent", "a")),
        (Budget("agent", "usd", 1, name="b"), None),
        (Budget("service", "usd", 1), Account("service", "s")),
        (Budget("day", "usd", 1), Account("day", "", "2026-11-22")),
    ],
)
def test_the_account_that_a_budget_limits(budget: Budget, account: Account | None) -> None:
    assert budget.account("t", "a", "s", "2026-11-22") == account


def test_a_caller_without_a_name_has_no_budget_of_that_scope() -> None:
    assert Budget("agent", "usd", 1).account("t", "", "s", "2026-11-22") is None


def test_another_limit_is_another_budget() -> None:
    assert Budget("day", "usd", 1).key != Budget("day", "usd", 2).key != Budget("day", "tokens", 2).key


def test_a_budget_in_tokens_counts_tokens() -> None:
    balance = Balance(1, 70, 30, 5, {})
    assert (Budget("day", "tokens", 1).spent(balance), Budget("day", "usd", 1).spent(balance)) == (100, 5)


def test_the_strictest_budget_decides() -> None:
    mild = BudgetState(Budget("agent", "usd", 100), Account("agent", "a"), 79)
    strict = BudgetState(Budget("day", "usd", 100), Account("day", "", "2026-11-22"), 96)
    assert strictest([mild, strict]) is strict
    assert strictest([]) is None
    assert strict.whose == "all services on 2026-11-22"
