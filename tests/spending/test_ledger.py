"""The ledger: sums are exact, prices apply on reading, and a model without a price is named."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spending.entries import DAY, entry
from trajectory_guard.spending.ledger import (
    Account,
    LedgerEntry,
    ModelSum,
    Rate,
    accounts_of,
    added,
    balance_of,
    nano_usd,
    sum_of,
)
from trajectory_guard.spending.spending import Spending
from trajectory_guard.spending.stores import MemoryStore

TOKENS = st.integers(0, 2_000_000)
RATES = {"large": Rate.from_usd(2.5, 10.0), "small": Rate.from_usd(0.15, 0.6), "odd": Rate(333_333, 777_777)}
ENTRIES = st.lists(
    st.builds(
        entry, model=st.sampled_from(["large", "small", "odd", "unknown", ""]), input_tokens=TOKENS,
        output_tokens=TOKENS, nano_usd=st.none() | st.integers(0, 10**9),
    ),
    max_size=20,
)  # fmt: skip


@given(ENTRIES)
def test_money_is_what_an_exact_sum_says_rounded_once(entries: list[LedgerEntry]) -> None:
    balance = balance_of(added({}, ((one.model, sum_of(one)) for one in entries)), RATES.get)

    exact = Fraction(sum(one.nano_usd for one in entries if one.nano_usd is not None), 1_000)
    for one in entries:
        if one.nano_usd is None and one.model in RATES:
            rate = RATES[one.model]
            exact += Fraction(one.input_tokens * rate.input + one.output_tokens * rate.output, 1_000_000)
    assert abs(balance.micro_usd - exact) <= Fraction(1, 2)
    assert balance.tokens == sum(one.tokens for one in entries)
    assert balance.calls == len(entries)


@given(ENTRIES)
def test_no_token_without_a_price_goes_unnamed(entries: list[LedgerEntry]) -> None:
    balance = balance_of(added({}, ((one.model, sum_of(one)) for one in entries)), RATES.get)

    unpriced = [one for one in entries if one.nano_usd is None and one.model not in RATES]
    assert sum(balance.unpriced.values()) == sum(one.tokens for one in unpriced)
    assert balance.unpriced.keys() == {one.model for one in unpriced if one.tokens}


@given(ENTRIES, st.randoms())
def test_the_order_of_calls_and_second_deliveries_change_nothing(entries: list[LedgerEntry], random: object) -> None:
    one, other = MemoryStore(), MemoryStore()
    for each in entries:
        one.add(each)
    again = [*entries, *entries]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert sum(other.add(each) for each in again) == len(entries)

    for account in {account for each in entries for account in accounts_of(each)}:
        assert one.sums(account) == other.sums(account)


def test_a_price_that_becomes_known_holds_for_calls_made_before() -> None:
    store = MemoryStore()
    store.add(entry(model="new"))
    sums = store.sums(Account("day", "", DAY))

    before, after = balance_of(sums, lambda model: None), balance_of(sums, lambda model: Rate.from_usd(1.0, 10.0))

    assert (before.micro_usd, before.unpriced) == (0, {"new": 1100})
    assert (after.micro_usd, after.unpriced) == (2000, {})


def test_a_model_that_costs_nothing_has_a_price() -> None:
    balance = balance_of({"local": ModelSum(1, 10, 10, 10, 10)}, {"local": Rate(0, 0)}.get)

    assert (balance.micro_usd, balance.unpriced) == (0, {})


def test_a_call_is_booked_to_trajectory_agent_service_and_day() -> None:
    assert accounts_of(entry()) == (
        Account("trajectory", "t"),
        Account("agent", "researcher"), Account("agent", "researcher", DAY),
        Account("service", "shop"), Account("service", "shop", DAY),
        Account("day", "", DAY),
    )  # fmt: skip


def test_what_nobody_is_named_for_counts_for_the_day() -> None:
    assert accounts_of(entry(trajectory="", agent="", service="")) == (Account("day", "", DAY),)


@pytest.mark.parametrize(
    ("usd", "nano"), [(0.0, 0), (0.0000003, 300), (1.0000004, 1_000_000_400), (12.345678, 12_345_678_000)]
)
def test_money_of_the_telemetry_in_nano_dollars(usd: float, nano: int) -> None:
    assert nano_usd(usd) == nano


def test_calls_that_cost_less_than_a_micro_dollar_add_up() -> None:
    sums = added({}, (("tiny", sum_of(entry(model="tiny", nano_usd=nano_usd(0.0000003)))) for _ in range(1_000)))
    assert balance_of(sums, RATES.get).micro_usd == 300


def test_the_balance_of_an_unknown_scope_is_a_mistake_and_not_0() -> None:
    with pytest.raises(ValueError, match=r"unknown scope 'agnt' \(did you mean 'agent'\?\); known: trajectory, agent"):
        Spending(MemoryStore()).balance(Account("agnt", "x"))
