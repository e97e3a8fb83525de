"""An action that says in the fields of an object that it was done says as much as the same sentence as plain text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

Call = tuple[str, dict[str, Any], Any]


def stop_of(calls: Iterable[Call]) -> int | None:
    """Ordinal of the call at which the run is stopped, from 1; None if it is not."""
    steps = (as_step(at, call) for at, call in enumerate(calls))
    return next((at for at, one in enumerate(evaluate(steps), 1) if one is not None and one.level is Level.STOP), None)


def as_step(at: int, call: Call) -> StepRecord:
    tool, args, result = call
    text = result if isinstance(result, str) else json.dumps(result)
    outcome = "empty" if text in ("[]", '{"faces": []}', "No matches", "not found") else "success"
    return record(tool, args, text, outcome, step_id=f"{at + 1:016x}", t=at * 2.0)


LIKED = "Post liked, showing the next post in the feed."
FORMS = [
    LIKED,
    {"success": True, "message": LIKED},
    {"ok": True, "detail": LIKED},
    {"result": LIKED},
    {"status": "success", "message": LIKED},
    {"éxito": True, "mensaje": "Se ha marcado la publicación; se muestra la siguiente."},
    {"result": "成功", "message": "一つ目の投稿に「いいね」を付けました。次の投稿を表示しています。"},
    {"success": True, "message": "50 ml were dispensed into the next well.", "total_ml": 50, "warnings": []},
    {"processed": 100, "errors": 0, "message": "The batch of 100 records was processed."},
]


@pytest.mark.parametrize("answer", FORMS, ids=[str(at) for at in range(len(FORMS))])
def test_one_action_is_stopped_as_late_in_every_form_of_its_answer(answer: Any) -> None:
    assert stop_of([("like_current_post", {}, answer)] * 40) == 21


@pytest.mark.parametrize(
    "call",
    [
        ("get_order", {"id": 7}, {"id": 7, "customer": "Ann Miller", "street": "4 Mill Road"}),
        ("run_report", {"year": 2024}, {"rows": [{"month": 1, "sum": 4.5}, {"month": 2, "sum": 9.1}], "page": "first"}),
        ("list_orders", {"page": 1}, {"orders": [{"id": 1, "total": 10}, {"id": 2, "total": 20}], "has_more": True}),
    ],
    ids=["a look-up", "a table", "the same page again"],
)
def test_an_object_that_shows_something_is_stopped_as_soon_as_before(call: Call) -> None:
    assert stop_of([call] * 40) == 5


@pytest.mark.parametrize(
    "answer",
    [
        {"loaded": 20, "has_more": True, "message": "20 more results were appended to the list."},
        {"fetched": 50, "hasNextPage": True},
        {"geladen": 20, "has_more": True, "hinweis": "20 weitere Treffer stehen jetzt in der Liste."},
    ],
    ids=["a sentence", "a count", "another language"],
)
@pytest.mark.parametrize("tool", ["load_more_results", "fetch_more"])
def test_a_tool_that_keeps_the_place_and_says_that_there_is_more_is_not_stopped_soon(tool: str, answer: Any) -> None:
    stop = stop_of([(tool, {}, answer)] * 60)
    assert stop is not None
    assert stop >= 21


def turns(*calls: Call, times: int = 80) -> list[Call]:
    return list(islice(cycle(calls), times))


@pytest.mark.parametrize(
    "calls",
    [
        [
            ("pick", {}, "Object was grasped and lifted by the gripper."),
            ("place_on_belt", {}, "Object was placed on the conveyor belt."),
        ],
        [
            ("pick", {}, {"success": True, "message": "Object was grasped and lifted."}),
            ("place_on_belt", {}, {"success": True, "message": "Object was placed on the belt."}),
        ],
        [
            ("saisir_piece", {}, "La pièce a été saisie par la pince."),
            ("deposer_piece", {}, "La pièce a été posée sur le tapis."),
        ],
        [
            ("stamp", {}, "The sheet was stamped."),
            ("turn_page", {}, "The next sheet lies on the table."),
            ("wipe", {}, "Wiped."),
        ],
    ],
    ids=["robot", "in fields", "in French", "three in turns"],
)
def test_actions_in_turns_that_say_that_they_were_done_have_nine_laps_and_more(calls: list[Call]) -> None:
    stop = stop_of(turns(*calls))
    assert stop is None or stop > 18 * len(calls)


@pytest.mark.parametrize(
    ("move", "look"),
    [
        (("next_page", {}, "ok"), ("search_page", {"text": "invoice 77"}, "No matches")),
        (("scroll_down", {}, "scrolled"), ("find_text", {"text": "Imprint"}, "not found")),
        (("advance_frame", {}, "ok"), ("detect_faces", {"threshold": 0.8}, {"faces": []})),
        (("scroll", {"direction": "down"}, "ok"), ("find_text", {"text": "Imprint"}, "[]")),
        (("siguiente_pagina", {}, "ok"), ("search_page", {"text": "factura 77"}, "[]")),
    ],
    ids=["pages", "scrolling", "frames", "scrolling by arguments", "in Spanish"],
)
def test_going_on_and_looking_for_something_by_its_name_has_eighteen_laps(move: Call, look: Call) -> None:
    stop = stop_of(turns(move, look, times=120))
    assert stop is None or stop > 2 * 18


def test_a_look_that_finds_the_same_again_between_moves_counts_as_before() -> None:
    found = (
        "search_page",
        {"text": "invoice 77"},
        "Invoice 77 of 3 May: 120 euros, unpaid, see the note of the buyer.",
    )
    stop = stop_of(turns(("next_page", {}, "ok"), found))
    assert stop is not None
    assert stop <= 12


@pytest.mark.parametrize(
    ("take", "done"),
    [
        (
            ("open_next", {}, {"supplier": "Office Depot", "amount": "12.90", "po_match": True}),
            ("approve", {}, "approved"),
        ),
        (("next_ticket", {}, "Ticket: the printer on floor 2 is out of paper"), ("close_ticket", {}, "closed")),
        (("pop_task", {}, {"task": "wipe the table", "room": "kitchen"}), ("put_away", {}, {"ok": True})),
    ],
    ids=["invoices", "tickets", "tasks"],
)
def test_equal_entries_of_a_queue_that_are_dealt_with_one_by_one_have_nine_laps(take: Call, done: Call) -> None:
    stop = stop_of(turns(take, done))
    assert stop is None or stop > 18
