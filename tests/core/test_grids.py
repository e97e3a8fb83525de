"""Calls that go through the combinations of several lists in order, as nested loops do, and such as do not."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.grids import Grid
from trajectory_guard.core.policy import Level

NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=8), min_size=2, max_size=5, unique=True)


def grid_of(rows: list[tuple[str, ...]]) -> Grid:
    grid = Grid()
    for row in rows:
        grid = grid.after("book", row)
    return grid


@given(NAMES, NAMES, NAMES, st.integers(0, 3))
def test_nested_loops_are_walked_in_order_whatever_the_order_of_the_arguments(
    outer: list[str], middle: list[str], inner: list[str], missed: int
) -> None:
    rows = list(product(outer, middle, inner))[missed:]  # the first of them were new
    assert grid_of(rows).is_walked
    assert grid_of([(row[2], row[0], row[1]) for row in rows]).is_walked


@given(NAMES, NAMES)
def test_a_price_beside_the_lists_is_none_of_them(outer: list[str], inner: list[str]) -> None:
    rows = [(*row, f"{100 + at}.50") for at, row in enumerate(product(outer, inner))]
    assert grid_of(rows).is_walked or len(rows) < 5


@given(
    st.lists(st.tuples(*[st.sampled_from(("a", "b", "2025-06-01", "7", "seven words that say something else"))] * 3))
)
def test_a_table_survives_being_saved(rows: list[tuple[str, ...]]) -> None:
    grid = grid_of(rows)
    saved = Grid.from_plain(json.loads(json.dumps(grid.to_plain())))
    assert (saved, saved.is_walked) == (grid, grid.is_walked)


@pytest.mark.parametrize(
    "rows",
    [
        [("a", "x"), ("b", "x"), ("b", "y"), ("a", "y"), ("a", "x")],  # to and fro
        [("a", "x"), ("a", "x"), ("b", "x"), ("b", "x")],
        [("a",), ("b",), ("a",), ("b",)],
        [(f"{one / 10}", f"{other}") for one in range(4) for other in range(3)],  # settings
        [(f"where is parcel number {at // 2} now", ("web", "wiki")[at % 2]) for at in range(8)],
        [(f"{at}", "x") for at in range(9)],
    ],
    ids=["to and fro", "repeats", "one list", "numbers", "questions to two sources", "one column"],
)
def test_other_calls_are_no_walk_through_a_grid(rows: list[tuple[str, ...]]) -> None:
    assert not grid_of(rows).is_walked


def levels(calls: list[tuple[dict[str, Any], str]], tool: str) -> list[Level | None]:
    verdicts = evaluate([record(tool, args, result) for args, result in calls])
    return [verdict.level if verdict is not None else None for verdict in verdicts]


DAYS = [f"2025-06-{day:02}" for day in range(2, 14)]


@pytest.mark.parametrize(
    ("tool", "lists", "result"),
    [
        ("find_slot", {"room": ("Elbe", "Isar", "Spree"), "date": DAYS}, "No room is free."),
        ("空き確認", {"日": DAYS, "拠点": ("大手町", "品川", "梅田", "博多")}, "ご指定の日に空いている会議室はありません。"),
        ("definir_tarif", {"chambre": ("A", "B"), "saison": ("basse", "haute"), "formule": ("nuit", "demi", "tout")},
         '{"statut":"succès","message":"Tarif enregistré."}'),
        ("grant", {"group": ("sales", "it", "law"), "app": ("crm", "erp"), "role": ("read", "write")}, "Granted."),
        ("price_check", {"cabin": ("eco", "flex"), "date": DAYS}, '{"offers": [], "message": "No offers"}'),
    ],
)  # fmt: skip
def test_a_grid_of_calls_with_one_answer_is_left_alone(tool: str, lists: dict[str, Any], result: str) -> None:
    calls = [(dict(zip(lists, row, strict=True)), result) for row in product(*lists.values())]
    assert len(calls) >= 12
    assert set(levels(calls, tool)) == {Level.OBSERVE}


def test_settings_that_are_turned_in_order_are_still_nudged() -> None:
    rows = product((0.1, 0.3, 0.5, 0.7, 0.9), (1, 5))
    calls = [({"file": "call.wav", "denoise": one, "beam": beam}, '{"text": "", "words": 0}') for one, beam in rows]
    assert Level.NUDGE in levels(calls, "transcribe")


def test_pages_past_the_end_are_nudged_whatever_their_ids() -> None:
    page = {"items": [{"id": 7, "name": "Ladoga"}, {"id": 8, "name": "Meridian"}]}
    calls: list[tuple[dict[str, Any], str]] = []
    for at in range(1, 20):
        found = (
            {"items": [{"id": at * 10 + one, "name": f"firm {at} {one}"} for one in range(3)]}
            if at < 4
            else {**page, "items": []}
        )
        answer = {"request_id": f"{at:08x}-ba06-458d-ab73-a20f01301d{at:02}", "page": at, **found}
        calls.append(({"url": f"https://api.example.org/firms?page={at}&size=8"}, json.dumps(answer)))
    found_levels = levels(calls, "http_get")
    assert Level.NUDGE in found_levels
    assert Level.STOP not in found_levels


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("step", "Simulation advanced by one step. All agents have been updated. Use get_state() to look at them."),
        ("ターン終了", "ターンを終了しました。他国の行動が処理されました。特に報告すべき出来事はありません。"),
        ("weiter", "Der Monat wurde abgeschlossen und der nächste Monat ist jetzt geöffnet"),
    ],
)
def test_an_action_in_a_row_that_is_acknowledged_in_sentences_is_not_stopped_soon(tool: str, result: str) -> None:
    found = levels([({}, result)] * 12, tool)
    assert Level.STOP not in found


def test_a_look_in_a_row_that_returns_sentences_is_stopped_as_before() -> None:
    verdicts = evaluate(
        [record("get_policy", {}, "Parcels may be returned within a month of delivery.") for _ in range(5)]
    )
    assert first_level(verdicts, Level.STOP) == 4
