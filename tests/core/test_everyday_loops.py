"""Loops and long runs as agents of today make them: edits and tests, pages with moving names, errors reported as answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.policy import Level

Call = tuple[Any, ...]
FAILURE = (
    "FAILED tests/test_a.py::test_order - AssertionError: assert ['b', 'a'] == ['a', 'b']\n1 failed, 12 passed in {}s"
)
EDITED = "The file /r/a.py has been updated. Here's the result of running `cat -n` on a snippet of it:\n    33\t{}"
PEOPLE = [
    "ana", "ben", "cleo", "dan", "eva", "finn", "gus", "hana", "ivo", "jo", "kim", "lea", "max", "nia", "otto",
    "pia", "quin", "rosa", "sam", "tea", "udo", "vera",
]  # fmt: skip
WORDS = [
    "sorted", "reversed", "list", "tuple", "set", "dict", "zip", "map", "filter", "min", "max", "sum", "any", "all",
    "iter", "next",
]  # fmt: skip


def rounds(count: int, edit: Callable[[int], Call], test: Callable[[int], Call]) -> list[Call]:
    return [call for at in range(count) for call in (edit(at), test(at))]


# --- work, and one failure after each piece of it ------------------------------------------------------------


def edited(at: int) -> Call:
    text = f"rows = {WORDS[at % 16]}(rows_{at})"
    return ("Edit", {"file_path": "/r/a.py", "old_string": f"rows_{at}", "new_string": text}, EDITED.format(text))


@pytest.mark.parametrize("outcome", ["success", "error"])
def test_a_test_that_fails_as_before_after_each_edit_is_found(outcome: str) -> None:
    """The answer to an edit says that a command was run: that is no wait."""
    calls = rounds(
        16, edited, lambda at: ("Bash", {"command": "pytest -q"}, FAILURE.format(0.5 + at * 7 % 5 / 10), outcome)
    )
    found = evaluate(steps(calls, gap=10))
    assert nudged(found) in range(5, 16)
    assert stopped(found) is not None


def test_a_failure_that_says_something_else_after_each_edit_is_left_alone() -> None:
    def fails(at: int) -> Call:
        return ("Bash", {"command": "pytest -q"}, f"E   NameError: name '{WORDS[at]}_{at}' is not defined", "error")

    assert stopped(evaluate(steps(rounds(14, edited, fails), gap=10))) is None


def test_no_failure_outlives_all_pieces_of_work() -> None:
    """Each edit is progress, so that no loop builds up; it goes on for sixty rounds all the same."""

    def builds(at: int) -> Call:
        text = f'#{at % 7} ERROR: process "/bin/sh -c apt-get install libssl1.1" did not complete: exit code: 100'
        return ("bash", {"command": f"docker build -t app:{at * 37 % 91} ."}, text, "error")

    def edits(at: int) -> Call:
        return ("edit", {"path": "/r/Dockerfile", "text": f"{WORDS[at % 16]} {at}"}, f"Edited lines {at}-{at + 3}")

    verdicts = evaluate(steps(rounds(120, edits, builds), gap=10))
    at = [one for one, verdict in enumerate(verdicts) if verdict is not None and verdict.nudge]
    assert len(at) >= 4
    assert stopped(verdicts) is not None


def test_failures_behind_a_success_of_their_tool_count_from_the_first_of_them() -> None:
    failure = "Error: the release was rejected, the image of the shop has no signature"

    def deploys(at: int) -> Call:
        return ("deploy", {"release": f"shop-{WORDS[at % 16]}"}, f"shop-{at} is live" if at == 7 else failure)

    calls = rounds(
        30, lambda at: ("edit", {"text": f"sign = {WORDS[at % 16]} {at}"}, f"Edited lines {at}-{at + 3}"), deploys
    )
    found = [
        (one.count, one.calls, verdict.step_index)
        for verdict in evaluate(steps(calls, gap=10))
        if verdict is not None
        for one in verdict.detections
        if one.rule == "recurring_failure" and verdict.step_index > 2 * 8
    ]
    assert found
    assert [(count, calls) for count, calls, _ in found] == [(at // 2 - 7, at - 16) for *_, at in found]


# --- pages whose elements get new names ----------------------------------------------------------------------

MONTHS = [
    "March", "April", "May", "June", "July", "August", "September", "October", "November", "December", "January",
    "February",
]  # fmt: skip


def page(first: int, heading: str, rows: int = 3) -> str:
    lines = [f'- heading "{heading} 2026" [ref=e{first}]', f'- button "Next month" [ref=e{first + 1}]']
    lines += [f'- cell "day {WORDS[at % 16]} {WORDS[at // 16 % 16]}" [ref=e{first + 2 + at}]' for at in range(rows)]
    return "- Page URL: https://shop.test/\n" + "\n".join(lines)


@pytest.mark.parametrize(("rows", "first"), [(3, 0), (90, 0), (700, 10_000)])
def test_a_click_without_effect_is_one_whatever_the_elements_are_called(rows: int, first: int) -> None:
    """Of a page that is longer than what is read, the names have to be of one length."""
    firsts = [first + at * 1_000 for at in range(12)]
    calls = [
        ("browser_click", {"element": "Next month", "ref": f"e{one + 1}"}, page(one, "March", rows)) for one in firsts
    ]
    assert nudged(evaluate(steps(calls))) in range(2, 8)


@pytest.mark.parametrize("rows", [3, 90])
def test_a_click_that_shows_another_page_each_time_is_work(rows: int) -> None:
    calls = [
        ("browser_click", {"element": "Next month", "ref": f"e{at * 1_000 + 1}"}, page(at * 1_000, month, rows))
        for at, month in enumerate(MONTHS)
    ]
    assert nudged(evaluate(steps(calls))) is None


def test_filling_in_fields_of_a_page_that_lists_them_without_names_is_work() -> None:
    form = 'RootWebArea "Apply"\n' + "\n".join(f'  textbox "{word} of the applicant"' for word in WORDS)
    calls = [("browser_fill", {"uid": f"1_{at + 4}", "value": f"v{at}"}, form) for at in range(14)]
    assert nudged(evaluate(steps(calls))) is None


def test_what_is_known_of_a_page_is_saved() -> None:
    engine = Engine()
    calls = [
        ("browser_click", {"element": "Next month", "ref": f"e{at * 90}"}, page(at * 90, "March")) for at in range(8)
    ]
    whole, parts = engine.new_state("t"), engine.new_state("t")
    for step in steps(calls):
        expected = engine.observe(whole, step)
        parts = engine.load_state(parts.to_bytes())
        assert engine.observe(parts, step) == expected
    assert parts.to_bytes() == whole.to_bytes()


# --- errors that are reported as answers -------------------------------------------------------------------------

COLUMNS = [
    "customerName", "customername", "customer_name", "cust_name", "client", "name_of_customer", "buyer",
    "purchaser", "holder", "owner",
]  # fmt: skip
REPORTED: dict[str, Callable[[int, str], Call]] = {
    "columns": lambda at, one: (
        "sql_db_query", {"query": f"SELECT {one} FROM orders"},
        f'Error: (psycopg2.errors.UndefinedColumn) column "{one}" does not exist\nLINE 1: SELECT {one} FROM orders\n'
        f'               ^\n\n[SQL: SELECT {one} FROM orders]\n(Background on this error at: https://sqlalche.me/e/20/f405)',
    ),
    "cells of a notebook": lambda at, one: (
        "python", {"code": f"df['a'] = df['amount'].str.replace('{one}', '').astype(float)"},
        f"Cell In[{at + 2}], line 1\nValueError: could not convert string to float: '1,234.50'",
    ),
    "an object with a status": lambda at, one: (
        "update_company", {"id": "99", "properties": {"segment": one}},
        f'{{"status": "error", "message": "{one} was not one of the allowed options", '
        f'"correlationId": "{at + 16:08x}-b3c2-4b1c-9c1e-8f2d3a4b5c6d"}}',
    ),
    "an operation in another spelling": lambda at, one: (
        "aws_cli", {"command": f"iam list-{one.lower()}s-of-team"},
        f"An error occurred (AccessDenied) when calling the List{one.title()}sOfTeam operation: User: bot is not "
        f"authorized to perform: iam:List{one.title()}sOfTeam (RequestId: {at + 160:08x})",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "found"), [("failed", True), ("declined", True), ("created", False)])
def test_a_payment_that_fails_under_ever_other_references_is_found(status: str, found: bool) -> None:
    """The status of what a call makes is that of the call."""
    answer = '{{"id": "pay_{:08x}f{}", "status": "{}", "message": "The issuing bank has answered."}}'
    calls = [
        ("create_payment", {"order": "1", "reference": f"PAY-{at * 7_919 % 89_000}"}, answer.format(at * 65_537, at % 10, status))
        for at in range(1, 16)
    ]  # fmt: skip
    assert (nudged(evaluate(steps(calls, gap=8))) is not None) == found


@pytest.mark.parametrize("status", ["failed", "declined"])
def test_payments_that_failed_may_be_looked_up_one_by_one(status: str) -> None:
    calls = [
        ("get_payment", {"id": f"pay_{at:04x}ab{at}"}, f'{{"id": "pay_{at:04x}ab{at}", "status": "{status}", "amount": {at * 7}}}')
        for at in range(1, 20)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("kind", REPORTED)
def test_errors_that_are_reported_as_answers_count_as_errors_when_they_come_again(kind: str) -> None:
    names = COLUMNS if kind != "an operation in another spelling" else WORDS
    found = evaluate(steps([REPORTED[kind](at, one) for at, one in enumerate(names)], gap=5))
    assert nudged(found) in range(3, 10)


def test_logs_of_many_hosts_that_end_in_one_error_are_new() -> None:
    def log(host: str) -> str:
        lines = [f"10:{at:02}:07 {host} GET /orders/{WORDS[at % 16]}-{host} 200" for at in range(12)]
        return "\n".join([*lines, "ConnectionError: cannot reach the database db-1"])

    calls = [("Bash", {"command": f"kubectl logs web-{name}"}, log(name)) for name in PEOPLE]
    assert nudged(evaluate(steps(calls))) is None


def test_other_errors_that_are_reported_as_answers_are_new() -> None:
    calls = [("python", {"code": f"step_{at}()"}, f"NameError: {one} of {WORDS[-at]}") for at, one in enumerate(WORDS)]
    assert nudged(evaluate(steps(calls, gap=5))) is None


# --- what has ended, and how long ago ------------------------------------------------------------------------


def test_a_deployment_that_has_failed_is_no_wait_however_old_it_grows() -> None:
    calls = [
        ("Bash", {"command": "deploys inspect acme"}, f"  status  ● Error\n  created [{1 + at * 34 // 60}m ago]")
        for at in range(30)
    ]
    found = evaluate(steps(calls, gap=34))
    assert nudged(found) in range(2, 10)
    assert stopped(found) is not None


def test_a_deployment_that_is_under_way_is_waited_for() -> None:
    calls = [
        ("Bash", {"command": "deploys inspect acme"}, f"  status  ● Building\n  created [{1 + at * 34 // 60}m ago]")
        for at in range(30)
    ]
    assert stopped(evaluate(steps(calls, gap=34))) is None


@pytest.mark.parametrize(
    "tool", ["next_order", "siguiente_pedido", "dossier_suivant", "naechste_bestellung", "kovetkezo"]
)
def test_entries_of_a_queue_that_differ_in_a_number_are_work_in_other_languages_too(tool: str) -> None:
    entries = [
        call
        for at in range(12)
        for call in (
            (tool, {}, f"No. {40_000 + at * 7_919 % 50_000}: 1 x coffee"),
            ("mark_sent", {}, "Marked as sent."),
        )
    ]
    assert stopped(evaluate(steps(entries))) is None


def test_a_pause_before_the_first_look_at_something_is_no_rhythm() -> None:
    """A change, a minute, a look, and a look every minute: the answer is one word, in whatever language."""
    for state in ("modifying", "backing-up", "wijzigen"):
        looks = [("aws", {"command": "rds describe-db-instances --query Status"}, state) for _ in range(18)]
        calls = [
            ("aws", {"command": "rds modify-db-instance --class large"}, '{"DBInstanceStatus": "available"}'),
            *looks,
        ]
        assert stopped(evaluate(steps(calls, gap=60))) is None, state


@pytest.mark.parametrize("answer", ['{"DBInstanceStatus": "modifying"}', '{"provisioningState": "Updating"}'])
def test_states_by_any_name_are_waited_for(answer: str) -> None:
    calls = [("describe", {"name": "orders"}, answer) for _ in range(18)]
    assert stopped(evaluate(steps(calls, gap=15))) is None


def things(count: int) -> list[str]:
    random = Random(3)
    return [f"{random.getrandbits(64):016x}" for _ in range(count)]


@pytest.mark.parametrize(
    ("tool", "key", "call", "answer"),
    [
        ("gmail_modify", "message_id", {"add_labels": ["経理/2026"]}, '{"ok": true, "labelIds": ["Label_17"]}'),
        ("cancel", "id", {"reason": "moved"}, '{"status": "canceled", "refund": "none", "reason": "moved"}'),
        ("resolve_alert", "alertId", {"note": "known"}, '{"open": 0, "note": "known", "queue": "Ops-1"}'),
    ],
)
def test_one_thing_after_the_other_is_done_whatever_is_the_same_for_all(
    tool: str, key: str, call: dict[str, Any], answer: str
) -> None:
    calls = [(tool, {key: one, **call}, answer) for one in things(18)]
    assert stopped(evaluate(steps(calls))) is None


def test_one_message_is_sent_again_and_again_whatever_number_it_gets() -> None:
    calls = [
        ("send_message", {"ticket": "T-7", "text": "Please send us the serial number."}, f'{{"ok": true, "message_id": {one}}}')
        for one in range(30_000, 70_000, 1_001)
    ]  # fmt: skip
    assert stopped(evaluate(steps(calls, gap=8))) is not None


# --- look-ups that find nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("date", ["2026-03-04", "2026-03-04T09:00:00Z", "4.3.2026"])
def test_people_who_are_all_free_on_one_day_are_a_list(date: str) -> None:
    calls = [("get_busy", {"person": name.title(), "day": date}, '{"busy": []}') for name in PEOPLE]
    assert nudged(evaluate(steps(calls))) is None


def test_words_that_are_looked_up_in_vain_may_be_a_list() -> None:
    calls = [("search_inventory", {"query": name}, "[]") for name in PEOPLE]
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize("tools", [("Grep", "Glob"), ("crm_search", "mail_search", "notes_search")])
def test_several_tools_that_find_nothing_for_sixteen_turns_are_found(tools: tuple[str, ...]) -> None:
    random = Random(7)
    names = [f"{random.choice(WORDS)}{random.choice(WORDS).title()}Registry" for _ in range(24)]
    calls = [(tools[at % len(tools)], {"pattern": name}, "No files found") for at, name in enumerate(names)]
    at = nudged(evaluate(steps(calls)))
    assert at is not None
    assert at <= 20


def test_a_list_that_is_looked_up_with_one_tool_is_left_to_the_other_rules() -> None:
    calls = [("find_user", {"mail": f"{name}@acme.test"}, "[]") for name in PEOPLE]
    found = [one for one in evaluate(steps(calls)) if one is not None]
    assert all(detection.rule != "only_failures" for one in found for detection in one.detections)
    assert Level.STOP not in {one.level for one in found}
