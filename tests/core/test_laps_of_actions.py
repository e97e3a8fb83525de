"""Laps of actions that only say that they were done: drawing, filling a table, a machine that works off its parts.

Found by trying: a turtle that draws a circle was stopped at the sixth side, and a survey at its sixth page.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate

Call = tuple[str, dict[str, Any], str]
ACTIONS: dict[str, list[Call]] = {
    "turtle": [("forward", {"steps": 10}, "ok"), ("right", {"degrees": 10}, "ok")],
    "survey": [
        ("browser_click", {"element": "Agree", "ref": "e22"}, "Clicked radio 'Agree'"),
        ("browser_click", {"element": "Next", "ref": "e30"}, "Clicked button 'Next'"),
    ],
    "cells of a table": [("type_text", {"text": "8"}, "Typed 8"), ("press_key", {"key": "Tab"}, "Pressed key Tab")],
    "robot": [("pick", {}, "picked"), ("place", {"bin": "left"}, '{"ok": true}')],
    "relay": [("relay", {"on": True}, ""), ("relay", {"on": False}, "")],
    "Spanish": [("girar_llave", {"puerta": 3}, "Hecho."), ("empujar", {"puerta": 3}, "Hecho.")],
}
LOOKS: dict[str, list[Call]] = {
    "an action and a look": [
        ("add_water", {"ml": 100}, "ok"),
        ("get_level", {}, "The level is low, the pump is off, and the valve is open."),
    ],
    "a door and a place": [
        ("move", {"to": "east"}, "Kitchen. An empty table stands here."),
        ("move", {"to": "west"}, "Hall. A broken clock hangs here."),
    ],
    "commands that find nothing": [
        ("bash", {"command": "find / -name a.cfg"}, ""),
        ("bash", {"command": "grep -r port /etc"}, ""),
    ],
    "mails": [
        ("send_mail", {"to": "a@b.example", "text": "Could you please send the report?"}, "sent"),
        ("send_mail", {"to": "c@b.example", "text": "Has the report been sent to you?"}, "sent"),
    ],
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_lap_of_actions_is_nudged_and_stopped_late(name: str) -> None:
    at = stopped(evaluate(steps(ACTIONS[name] * 30)))
    assert at is not None
    assert at >= 22
    assert nudged(evaluate(steps(ACTIONS[name] * 18))) is not None


@pytest.mark.parametrize("name", LOOKS)
def test_a_lap_with_a_step_that_shows_more_is_stopped_as_ever(name: str) -> None:
    at = stopped(evaluate(steps(LOOKS[name] * 10)))
    assert at is not None
    assert at <= 12


# Found: what browser-use says of a click was certain evidence, and the fifth click on "Load more" was stopped.
@pytest.mark.parametrize("said", ["🖱️  Clicked button with index 57: Load more", "Clicked element with index 57"])
def test_a_click_that_names_its_element_is_acknowledged(said: str) -> None:
    assert stopped(evaluate(steps([("click_element_by_index", {"index": 57}, said)] * 16))) is None


@pytest.mark.parametrize("way", ["next", "redirect_uri", "return_to", "RelayState", "continue"])
def test_a_login_that_quotes_the_way_back_is_one_page(way: str) -> None:
    page = "Sign in - Example SSO\nhttps://sso.example.com/login?{}=%2F{}\nPlease sign in with your company account."
    places = ("reports", "reports/2024", "board", "people", "rooms", "invoices", "wiki/start", "holidays", "cars")
    calls = [("browser_navigate", {"url": f"https://intra.example.com/{one}"}, page.format(way, one)) for one in places]
    at = nudged(evaluate(steps(calls)))
    assert at is not None
    assert at <= 8


NUMBERS = [at * 7_919 % 89_989 + 10_000 for at in range(1, 31)]
QUEUES = {
    "invoices": ("get_next_invoice", '{{"invoice_no": {}, "vendor": "Telekom", "amount": 39.95}}', "post_invoice"),
    "orders": ("next_order", "Order {}: 1 x mug, 9.90 EUR", "ship_current"),
    "a list in memory": ("lpop", "job:{}:resize", "run_job"),
    "returns": ("open_next_return", '{{"return_id": {}, "reason": "too small"}}', "approve_return"),
}


# Found: entries of a queue that differed in a number of five digits were taken for one, and the eighth was the last.
@pytest.mark.parametrize("name", QUEUES)
def test_entries_of_a_queue_that_differ_in_a_number_are_entries(name: str) -> None:
    fetch, entry, act = QUEUES[name]
    calls: list[Call] = []
    for number in NUMBERS:
        calls += [(fetch, {}, entry.format(number)), (act, {"account": "6805"}, "ok")]
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize("name", QUEUES)
def test_a_queue_that_gives_one_entry_again_is_a_loop_whatever_the_clock_says(name: str) -> None:
    fetch, entry, act = QUEUES[name]
    calls: list[Call] = []
    for at in range(30):
        said = f"{entry.format(48_213)} at 2026-03-01T10:{at:02}:07Z"
        calls += [(fetch, {}, said), (act, {"account": "6805"}, "ok")]
    assert stopped(evaluate(steps(calls))) is not None


def test_the_next_entry_of_a_queue_may_be_answered_as_the_one_before() -> None:
    """Found: the fifth request that was approved with `approve_next` was the last, since its answer has a figure."""
    calls = [("approve_next", {}, "Approved. 1 request removed from the queue.")] * 15
    assert stopped(evaluate(steps(calls))) is None


ROUNDS: dict[str, list[Call]] = {
    "shelves": [
        ("advance", {}, "arrived"),
        ("look", {}, "shelf front, dusty"),
        ("wipe", {}, "done"),
    ],
    "cameras, in Korean": [("다음_카메라", {}, "전환됨"), ("보기", {}, "원활")],
    "parcels, in Turkish": [("ilerle", {}, "tamam"), ("tara", {}, "12 koli")],
    "parts": [("次へ送る", {}, "到着"), ("撮影", {}, "傷なし"), ("判定", {"結果": "良品"}, "記録")],
}
IN_PLACE: dict[str, list[Call]] = {
    "undo and redo": [
        ("undo", {}, "ok"),
        ("inspect", {}, "Title: 44 pt, black"),
        ("redo", {}, "ok"),
        ("inspect", {}, "Title: 32 pt, red"),
    ],
    "one page": [("press_ok", {}, "sent"), ("screen", {}, "Home screen. Advert: try the new plan. Press any key.")],
    "one record": [("takeoff", {}, "ack"), ("telemetry", {}, '{"alt_m": 0.0, "armed": false, "mode": "STABILIZE"}')],
    "one name": [("back", {}, "ok"), ("open", {"name": "Invoice 12"}, "Invoice 12: amount missing")],
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_over_places_that_no_call_names_is_stopped_late(name: str) -> None:
    """Found: a robot that goes from shelf to shelf was stopped at the fourth, for all of them look alike."""
    verdicts = evaluate(steps(ROUNDS[name] * 40))
    assert (at := nudged(verdicts)) is not None
    assert at >= 17 * len(ROUNDS[name])
    assert stopped(verdicts) is not None


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_lap_in_place_is_nudged_soon(name: str) -> None:
    verdicts = evaluate(steps(IN_PLACE[name] * 12))
    assert (at := nudged(verdicts)) is not None
    assert at <= 4 * len(IN_PLACE[name])
    assert stopped(verdicts) is not None


def test_a_key_that_is_pressed_again_while_the_display_moves_on_is_left_alone() -> None:
    calls: list[Call] = []
    for room in range(1, 6):
        calls.append(("choose_room", {"number": room}, "ok"))
        for degrees in range(28 - room % 3, 20, -1):
            calls += [("press", {"key": "TEMP_DOWN"}, "ok"), ("display", {}, f"{degrees}°C")]
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize("entries", [3, 4, 5, 7])
@pytest.mark.parametrize("arguments", [{}, {"key": "DOWN"}], ids=["none", "a key"])
def test_a_menu_that_goes_round_is_not_turned_for_ever(arguments: dict[str, str], entries: int) -> None:
    names = ("Radio", "Clock", "Summer", "Winter", "Timer", "Sound", "Help")[:entries]
    lap = [call for name in names for call in (("press", arguments, "ok"), ("display", {}, name))]
    verdicts = evaluate(steps(lap * 40))
    assert (at := nudged(verdicts)) is not None
    assert at < 100
    assert stopped(verdicts) is not None
