"""Healthy work whose looks, decisions and empty hours come back in the same words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

NOUNS = [
    "river",
    "stone",
    "lamp",
    "chair",
    "window",
    "garden",
    "apple",
    "bridge",
    "candle",
    "desert",
    "engine",
    "forest",
    "harbour",
    "island",
    "jacket",
]
STATE = '{"branch":"main","clean":true,"ahead":0,"behind":0,"stash":0}'


def timed(steps: Iterator[StepRecord]) -> list[StepRecord]:
    return [step._replace(timestamp=3.0 * at) for at, step in enumerate(steps)]


def stopped(steps: Iterator[StepRecord]) -> int | None:
    return first_level(evaluate(timed(steps)), Level.STOP)


def around_work(look: str, state: str, outcome: str, acknowledgement: str) -> Iterator[StepRecord]:
    for at in range(40):
        yield record(look, {}, state, outcome)
        yield record("write_file", {"path": f"{NOUNS[at % 15]}_{at}.md", "content": f"About {at}"}, acknowledgement)
        yield record(look, {}, state, outcome)


@pytest.mark.parametrize("acknowledgement", ["ok", "Wrote the file.", ""])
@pytest.mark.parametrize(
    ("look", "state", "outcome"),
    [
        ("get_repo_state", STATE, "success"),
        ("whoami", STATE, "success"),
        ("get_cart", "Your cart is empty.", "empty"),
        ("list_alerts", "[]", "empty"),
        ("check_balance", "Balance: 0.00 EUR", "success"),
    ],
)
def test_one_look_behind_a_piece_of_work_and_one_ahead_of_the_next(
    look: str, state: str, outcome: str, acknowledgement: str
) -> None:
    assert stopped(around_work(look, state, outcome, acknowledgement)) is None


def test_looks_without_work_between_them_are_a_loop_all_the_same() -> None:
    def steps() -> Iterator[StepRecord]:
        yield from around_work("get_repo_state", STATE, "success", "ok")
        for _ in range(12):
            yield record("get_repo_state", {}, STATE)

    at = stopped(steps())
    assert at is not None
    assert at >= 120


def records(blank: str, saved: str) -> Iterator[StepRecord]:
    fields = ("name", "email", "street", "city", "zip", "phone")
    for at in range(30):
        yield record("click", {"ref": "e1"}, "Clicked.")
        yield record("snapshot", {}, blank)
        for place, field in enumerate(fields):
            yield record("type_text", {"ref": f"e{place + 3}", "text": f"{field} {NOUNS[at % 15]} {at}"}, "Typed.")
        yield record("click", {"ref": "e12"}, saved)
        yield record("snapshot", {}, blank)


@pytest.mark.parametrize("saved", ["Clicked.", "Customer saved."])
def test_an_empty_form_again_after_each_record(saved: str) -> None:
    blank = '- heading "New customer"\n- textbox "name" [ref=e3]\n- textbox "email" [ref=e4]\n- button "Save" [ref=e12]'
    assert stopped(records(blank, saved)) is None


def test_a_page_that_does_not_take_what_is_typed_is_a_loop() -> None:
    page = '- heading "Sign in"\n- textbox "user" [ref=e3]\n- textbox "password" [ref=e4]\n- button "Go" [ref=e12]'

    def steps() -> Iterator[StepRecord]:
        for _ in range(30):
            yield record("type_text", {"ref": "e3", "text": "ada"}, "Typed.")
            yield record("type_text", {"ref": "e4", "text": "secret"}, "Typed.")
            yield record("click", {"ref": "e12"}, "Clicked.")
            yield record("snapshot", {}, page)

    assert stopped(steps()) is not None


@pytest.mark.parametrize("check", ["msgfmt -c de.po", "tsc --noEmit", "python -m py_compile app.py"])
def test_a_check_that_prints_nothing_after_each_edit(check: str) -> None:
    def steps() -> Iterator[StepRecord]:
        for at in range(80):
            yield record("edit", {"path": "de.po", "text": f"{NOUNS[at % 15]} in its new words, line {at}"}, "Edited.")
            yield record("bash", {"command": check}, "", "empty")

    assert stopped(steps()) is None


@pytest.mark.parametrize("reason", ["Skip", "Not this customer.", "User rejected the tool call"])
def test_a_person_who_rejects_one_proposal_after_another(reason: str) -> None:
    steps = [
        record("send_email", {"to": f"{NOUNS[at % 15]}{at}@example.org", "body": f"Invoice {at}"}, reason, "denied")
        for at in range(60)
    ]
    assert stopped(iter(steps)) is None


def test_one_proposal_that_is_rejected_again_and_again_is_stopped() -> None:
    assert stopped(record("send_email", {"to": "a@example.org"}, "Skip", "denied") for _ in range(6)) == 3


@pytest.mark.parametrize("hits", [set(), {3}, {3, 20, 60, 61, 100}, set(range(5, 168, 24))])
def test_hours_of_which_few_hold_something(hits: set[int]) -> None:
    def steps() -> Iterator[StepRecord]:
        for at in range(118):
            hour = f"2026-03-{1 + at // 24:02d}T{at % 24:02d}"
            found = at in hits
            text = f"1 hit: node-{at} {NOUNS[at % 15]} ran out of memory" if found else "0 hits"
            args = {"from": f"{hour}:00", "to": f"{hour}:59", "query": "OutOfMemory"}
            yield record("search_logs", args, text, "success" if found else "empty")

    assert stopped(steps()) is None
