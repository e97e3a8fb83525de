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


@pytest.mark.parametrize("key", ["request_id", "trace_id", "X-Correlation-ID"])
@pytest.mark.parametrize("result", ['{"state": "settled", "retries": 0}', "no entry"])
def test_the_id_of_a_request_is_the_subject_of_a_look_up(key: str, result: str) -> None:
    random = Random(key)
    calls = [("lookup_logs", {"index": "prod", key: f"{random.getrandbits(64):016x}"}, result) for _ in range(12)]
    assert stopped(evaluate(steps(calls))) is None


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
- generic [ref=s{0}e1]:
  - textbox "Policy number" [ref=s{0}e4]{value}
  - button "Continue" [ref=s{0}e7] [cursor=pointer]"""


def snapshot(at: int, value: str = "") -> str:
    return SNAPSHOT.format(at, value=value)


def test_clicks_that_change_nothing_but_the_references_of_the_page() -> None:
    """As the first versions of Playwright's server for MCP: each snapshot has a number, which its elements carry."""
    calls = [("browser_click", {"element": "Continue button", "ref": f"s{at}e7"}, snapshot(at + 1)) for at in range(16)]
    verdicts = evaluate(steps(calls))
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is not None


def test_fields_that_are_filled_change_the_page() -> None:
    calls = [
        ("browser_type", {"element": "Policy number", "ref": f"s{at}e4", "text": f"P-{at * 37}"},
         snapshot(at + 1, f": P-{at * 37}"))
        for at in range(12)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None


def test_equal_rows_that_are_archived_one_by_one_are_left_alone() -> None:
    """An element keeps its reference as long as it is there."""
    row = '- row "Cron <root@web-1> backup finished" [ref=e{}]'
    calls = [
        ("browser_click", {"element": "Archive", "ref": f"e{at}"},
         "### Page state\n" + "\n".join(row.format(at + further) for further in (1, 2, 3)))
        for at in range(20)
    ]  # fmt: skip
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize("figure", ["price", "free"])
def test_catalogues_that_differ_in_figures_only_are_no_page_again(figure: str) -> None:
    random, names = Random(4), ("coffee", "tea", "milk", "bread", "salt")
    values = (True, False) if figure == "free" else range(9, 99)
    calls = [
        (
            "get_prices",
            {"store": f"x{at}"},
            json.dumps({"orders": [{"item": name, figure: random.choice(values)} for name in names]}),
        )
        for at in range(16)
    ]
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize("heading", ["", "# click response\n", "## Result\n"])
def test_a_heading_above_an_acknowledgement_shows_no_state(heading: str) -> None:
    calls = [("click", {"uid": f"3_{at}"}, f"{heading}Successfully clicked on the element") for at in range(20)]
    assert stopped(evaluate(steps(calls))) is None


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


WALLS = {
    "test for robots": "Just a moment...\nVerifying you are human. This may take a few seconds.\nRay ID: {id}",
    "denial that quotes the address": "Access Denied\nYou have no permission to access {url} on this server.\n#18.{id}",
    "login": "Sign in\nE-mail\nPassword\nForgot your password?\nNew here? Create an account",
    "empty shell": "<html><body><noscript>You need to enable JavaScript to run this app.</noscript></body></html>",
    "Anmeldung": "Bitte melden Sie sich an\nBenutzername\nKennwort\nKennwort vergessen?\nWeiter",
    "同意": "続行する前に\nサービスの提供と改善のために Cookie を使用します。\nすべて拒否\nすべて同意",
}


@pytest.mark.parametrize("wall", WALLS.values(), ids=WALLS)
def test_one_page_before_all_addresses_is_nudged_and_not_stopped(wall: str) -> None:
    chance = Random(3)
    calls = []
    for name in [
        "about",
        "products",
        "pricing",
        "team",
        "jobs",
        "press",
        "blog",
        "contact",
        "terms",
        "privacy",
        "help",
        "faq",
    ]:
        url = f"https://shop.example/{name}"
        calls.append(("fetch", {"url": url}, wall.format(url=url, id=f"{chance.getrandbits(64):016x}")))
    verdicts = evaluate(steps(calls))
    assert nudged(verdicts) in (7, 8)
    assert stopped(verdicts) is None


def test_records_that_are_alike_at_many_addresses_are_left_alone() -> None:
    calls = [
        (
            "fetch",
            {"url": f"https://api.example/buckets/{at}/policy"},
            '{"public": false, "acl": "private", "grants": []}',
        )
        for at in range(20)
    ]
    assert nudged(evaluate(steps(calls))) is None


RECORDS = {
    "no match": ("screen_customer", "customer_id", "no match"),
    "no duplicates": ("find_duplicates", "contactId", '{"matches": [], "count": 0}'),
    "no complaints": ("get_complaints", "order_uuid", "[]"),
}


@pytest.mark.parametrize("form", RECORDS)
def test_records_looked_up_by_ids_in_rising_order_are_a_list(form: str) -> None:
    tool, key, result = RECORDS[form]
    calls = [(tool, {key: 40_000 + at}, result) for at in range(100)]
    assert nudged(evaluate(steps(calls))) is None


def test_empty_hours_in_order_are_nudged_and_not_soon_stopped() -> None:
    calls = [
        (
            "search_logs",
            {"service": "payments", "from": f"2025-03-{1 + at // 24:02}T{at % 24:02}:00"},
            "0 matching lines",
        )
        for at in range(48)
    ]
    verdicts = evaluate(steps(calls))
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is None


def test_the_id_of_a_request_over_json_rpc_is_that_of_no_record() -> None:
    calls = [
        ("list_orders", {"jsonrpc": "2.0", "id": at, "method": "list", "params": {"page": at}}, "[]")
        for at in range(60)
    ]
    assert nudged(evaluate(steps(calls))) is not None
