"""Maintained prices, as the ledger and loop costs use them."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from tests.helpers import eventually
from trajectory_guard.spending import prices
from trajectory_guard.spending.budget import Budget, BudgetLevel
from trajectory_guard.spending.ledger import Account, LedgerEntry
from trajectory_guard.spending.prices import PriceTable, UnitPrice, look_up
from trajectory_guard.spending.spending import Spending, today
from trajectory_guard.spending.stores import MemoryStore

genai_prices = pytest.importorskip("genai_prices")


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-mini", "gemini-2.5-pro", "claude-sonnet-4-5"])
def test_an_ordinary_call_costs_what_the_package_says(model: str) -> None:
    """Some models have a higher price for long contexts, which must not be taken for the price of all calls."""
    said = genai_prices.calc_price(genai_prices.Usage(input_tokens=2_000, output_tokens=200), model_ref=model)
    assert look_up(model).cost(2_000, 200) == pytest.approx(float(said.total_price))


def test_a_price_is_known_asked_for_or_unknown() -> None:
    table = PriceTable()
    assert table.known("gpt-4o") is None
    table.known("no-model-of-this-name")
    table.wait(["gpt-4o", "no-model-of-this-name"], 30)
    assert table.known("gpt-4o") is not None
    assert not table.is_asked("no-model-of-this-name")
    assert table.known("no-model-of-this-name") is None


def test_a_model_that_is_not_billed_by_tokens_has_no_price_for_them() -> None:
    table = PriceTable()
    models = ["whisper-1", "mistral-nemo:free"]
    table.wait(models, 30)
    assert [table.known(model) for model in models] == [None, UnitPrice(0.0, 0.0)]


def test_a_wait_for_a_price_that_nobody_has_asked_for_is_one() -> None:
    held, polled = threading.Event(), threading.Event()

    class Watched(PriceTable):
        def is_asked(self, model: str) -> bool:
            polled.set()
            return super().is_asked(model)

    def hold_up_the_look_up() -> None:
        with prices._IMPORT:
            held.set()
            polled.wait(30)

    thread = threading.Thread(target=hold_up_the_look_up)
    thread.start()
    held.wait(30)
    table = Watched()
    table.wait(["gpt-4o"], 30)
    thread.join(30)
    assert table.known("gpt-4o") is not None


def test_the_thread_of_a_table_ends_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stays would keep the table, and its board, for ever."""
    monkeypatch.setattr(prices, "_IDLE_S", 0.01)

    def used() -> weakref.ref[PriceTable]:
        table = PriceTable()
        for model in ("gpt-4o", "gpt-4o-mini"):
            table.wait([model], 30)
            assert table.known(model) is not None
            assert eventually(lambda: table._worker is None)
        return weakref.ref(table)

    table = used()

    def is_freed() -> bool:
        gc.collect()
        return table() is None

    assert eventually(is_freed)


def test_a_name_at_which_the_library_fails_costs_the_price_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(model: str) -> UnitPrice:
        if model == "odd":
            raise ValueError(model)
        return UnitPrice(1.0, 1.0)

    monkeypatch.setattr(prices, "look_up", odd)
    monkeypatch.setattr(prices, "_looked_up", prices._contained)
    table = PriceTable()
    table.wait(["odd", "plain"], 30)
    assert [table.known(model) for model in ("odd", "plain")] == [None, UnitPrice(1.0, 1.0)]
    assert [prices.price(model, 1, 1) for model in ("odd", "plain")] == [0.0, 2.0]


def test_names_without_a_price_make_room_for_models_that_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "_MAX_MODELS", 4)
    monkeypatch.setattr(prices, "look_up", lambda model: UnitPrice(1.0, 1.0) if model[:4] == "sold" else prices.FREE)
    table = PriceTable()
    for at in range(9):
        table.wait([f"made up {at}"], 30)
    for at in range(4):
        table.wait([f"sold {at}"], 30)
    assert all(table.known(f"sold {at}") for at in range(4))
    assert len(table._known) == 4


def test_no_made_up_name_costs_a_model_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names arrive faster than they are looked up: a budget in USD that is used up would be none any more."""
    goes_on = threading.Event()

    def slow(model: str) -> UnitPrice:
        if model == "made up 0":
            goes_on.wait(30)
        return UnitPrice(1.0, 1.0) if model[:4] == "sold" else prices.FREE

    monkeypatch.setattr(prices, "look_up", slow)
    table = PriceTable()
    table.wait(["sold first"], 30)
    spending = Spending(MemoryStore(), budgets=[Budget("day", "usd", 1)], prices=table)
    spending.book(LedgerEntry("a", "t", "a", "s", today(time.time()), "sold first", 1, 1))
    for at in range(prices._MAX_MODELS + 100):
        table.known(f"made up {at}")
        assert table.known("sold first") == UnitPrice(1.0, 1.0)
    assert spending.status("t").level is BudgetLevel.BLOCKED
    goes_on.set()
    assert eventually(lambda: table.known("sold late") == UnitPrice(1.0, 1.0))
    assert table.known("sold first") == UnitPrice(1.0, 1.0)


def test_a_price_makes_room_only_where_all_models_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "_MAX_MODELS", 2)
    monkeypatch.setattr(prices, "look_up", lambda model: UnitPrice(1.0, 1.0))
    table = PriceTable()
    for model in ("one", "two", "three"):
        table.wait([model], 30)
    assert list(table._known) == ["two", "three"]


def test_a_look_up_that_hangs_delays_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    table = PriceTable()
    monkeypatch.setattr(table, "wait", lambda models, timeout: waits.append(timeout))
    monkeypatch.setattr(prices, "look_up", lambda model: UnitPrice(1.0, 1.0))
    spending = Spending(MemoryStore(), budgets=[Budget("day", "usd", 1)], prices=table)
    spending.book(LedgerEntry("a", "t", "a", "s", today(time.time()), "some-model", 1, 1))
    for _ in range(3):
        spending.status("t", wait=True)
    assert len(waits) == 1
    assert spending.balance(Account("trajectory", "t")).calls == 1


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("anthropic/claude-sonnet-4-20250514", "claude-sonnet-4-20250514"),
        ("anthropic:claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku-20240307"),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku-20240307"),
        ("bedrock/converse/us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku-20240307"),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku-20240307"),
        ("azure/gpt-4o", "gpt-4o"),
        ("azure/eu/gpt-4o-2024-08-06", "gpt-4o"),
        ("openrouter/openai/gpt-4o-mini", "gpt-4o-mini"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("vertex_ai/gemini-2.5-flash", "gemini-2.5-flash"),
    ],
)  # fmt: skip
def test_a_provider_before_the_name_changes_no_price(written: str, model: str) -> None:
    assert look_up(model) is not prices.FREE
    assert look_up(written) == look_up(model)


@pytest.mark.parametrize("model", ["ollama/deepseek-r1", "hosted_vllm/mistral-small", "home/gpt-4o", "llama3.1:8b", "a.b.c", "/", "models/"])  # fmt: skip
def test_a_model_of_a_provider_without_prices_has_none(model: str) -> None:
    assert look_up(model) is prices.FREE


def test_a_model_that_answers_under_an_unknown_name_has_the_price_of_the_requested_one() -> None:
    spending = Spending(MemoryStore())
    assert spending.model_of("gpt-4o-of-our-gateway", "gpt-4o") == "gpt-4o-of-our-gateway"
    assert eventually(lambda: spending.rate("gpt-4o-of-our-gateway") is not None)
    assert spending.rate("gpt-4o-of-our-gateway") == spending.rate("gpt-4o")
    assert spending.model_of("", "gpt-4o") == "gpt-4o"
