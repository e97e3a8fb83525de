"""Pages that list the same again, names of tools that nobody has, requests that differ in a random id."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate

ROWS = [
    {"id": f"C{at}", "name": name} for at, name in enumerate(("Rossi Srl", "Bianchi SpA", "Verdi & C.", "Neri Snc"))
]
LAST_PAGE: dict[str, str] = {
    "objects": json.dumps({"total": 212, "customers": ROWS}),
    "objects and an id": json.dumps({"request": "16c7e37e-b857-4a67-a960-4ee322f63c63", "customers": ROWS}),
    "lines": "\n".join(f"- {row['name']}" for row in ROWS),
    "HTML in Arabic": "<li>كرسي مكتب</li>\n<li>طاولة طعام</li>\n<li>مصباح</li>",
}


def pages(last: str, *, first: int) -> list[tuple[Any, ...]]:
    """Pages of which the first ones hold something new each, and all others the same."""
    own = [json.dumps([{"name": f"customer {at} {part}"} for part in "abc"]) for at in range(first)]
    return [("list_customers", {"page": at}, result) for at, result in enumerate(own + [last] * 12)]


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("form", LAST_PAGE)
def test_pages_that_list_the_same_are_no_way_forward(form: str, first: int) -> None:
    at = nudged(evaluate(steps(pages(LAST_PAGE[form], first=first))))
    assert at is not None
    assert at <= first + 9


@pytest.mark.parametrize(
    "result", ['[{"status": "updated"}, {"status": "updated"}]', '{"updated": 100, "errors": []}', "ok"]
)
def test_writes_in_rising_order_are_left_alone(result: str) -> None:
    calls = [("migrate", {"offset": at * 100, "limit": 100}, result) for at in range(20)]
    assert nudged(evaluate(steps(calls))) is None


NO_TOOL = {
    "MCP": "MCP error -32602: Tool {} not found",
    "a framework": "Error: {} is not a valid tool, try one of [search, read].",
    "German": "Fehler: Das Werkzeug »{}« gibt es nicht.",
}


@pytest.mark.parametrize("form", NO_TOOL)
def test_names_of_tools_that_are_guessed_are_one_failure(form: str) -> None:
    names = (
        "create_issue",
        "createIssue",
        "issue_create",
        "issues.create",
        "new_issue",
        "open_issue",
        "add_issue",
        "post_issue",
    )
    verdicts = evaluate(steps([(name, {"title": "Crash"}, NO_TOOL[form].format(name), "error") for name in names]))
    assert nudged(verdicts) == 6
    assert stopped(verdicts) is None


def test_three_names_are_no_loop() -> None:
    names = ("create_issue", "createIssue", "issue_create", "issues.create")
    calls = [(name, {"title": "Crash"}, NO_TOOL["MCP"].format(name), "error") for name in names]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize(
    "key", ["newClientOrderId", "client_order_id", "clientRequestToken", "CallerReference", "dedup_id"]
)
def test_the_id_of_a_request_is_not_what_is_asked_for(key: str) -> None:
    random = Random(key)
    alphabet = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789"
    calls = [
        ("place_order", {"symbol": "BTCUSDT", "side": "BUY", key: "".join(random.choices(alphabet, k=22))},
         '{"code": -2019, "msg": "Margin is insufficient."}')
        for _ in range(8)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is not None


def test_orders_of_several_things_are_left_alone() -> None:
    names = ("BTC", "ETH", "SOL", "ADA", "XRP", "DOT", "LTC", "UNI")
    calls = [
        (
            "place_order",
            {"symbol": name, "client_order_id": f"o-{at}"},
            json.dumps({"status": "NEW", "orderId": 71 * at}),
        )
        for at, name in enumerate(names)
    ]
    assert nudged(evaluate(steps(calls))) is None


SNAPSHOT = """### Page state
- Page URL: https://portal.example/claims/new
- generic [ref=e{0}]:
  - textbox "Policy number" [ref=e{1}]{value}
  - button "Continue" [ref=e{2}] [cursor=pointer]"""


def snapshot(at: int, value: str = "") -> str:
    return SNAPSHOT.format(at * 40 + 21, at * 40 + 25, at * 40 + 31, value=value)


def test_clicks_that_change_nothing_but_the_references_of_the_page() -> None:
    """As Playwright's server for MCP shows a page: it numbers the elements again in each snapshot."""
    calls = [
        ("browser_click", {"element": "Continue button", "ref": f"e{at * 40 + 31}"}, snapshot(at + 1))
        for at in range(16)
    ]
    verdicts = evaluate(steps(calls))
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is not None


def test_fields_that_are_filled_change_the_page() -> None:
    calls = [
        ("browser_type", {"element": "Policy number", "ref": f"e{at * 40 + 25}", "text": f"P-{at * 37}"},
         snapshot(at + 1, f": P-{at * 37}"))
        for at in range(12)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None


def test_two_variants_that_are_measured_in_turn_end_no_run() -> None:
    random = Random(3)
    calls: list[tuple[Any, ...]] = []
    for at in range(16):
        state = "on" if at % 2 else "off"
        calls.append(
            ("set_flag", {"flag": "-flto", "state": state}, f"flag {state}; rebuilt in {random.uniform(30, 40):.1f}s")
        )
        ms = random.gauss(400 - 15 * (at % 2), 4)
        calls.append(
            ("bench", {"suite": "json-parse"}, f"json-parse: {ms:.2f} ms ± {random.uniform(2, 5):.2f} ms  (20 runs)")
        )
    assert stopped(evaluate(steps(calls, gap=30.0))) is None
