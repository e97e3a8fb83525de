"""A command that fails once more after each edit: in the same words, or with something that moves."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.alike_failures import AlikeFailures

WANDERING = (11, 4, 23, 9, 17, 2, 31, 8, 14, 5)
STUCK: dict[str, Callable[[int], tuple[str, str]]] = {
    "addresses, lines and goroutines": lambda at: (
        f"// guard {at}",
        f"WARNING: DATA RACE\nWrite by goroutine {WANDERING[at]}:\n  cache.evict() lru.go:{90 + WANDERING[at]}\n"
        f"--- FAIL: TestEvict ({WANDERING[at]}.79s)\nexit status 1",
    ),
    "the version that was just written": lambda at: (
        f"implementation 'com.acme:sync:1.{at}.0'",
        f"FAILURE: Build failed with an exception.\n> Could not find com.acme:sync:1.{at}.0.",
    ),
    "ids and seconds in Japanese": lambda at: (
        f"試行 {at}",
        f"エラー: 接続先の証明書が無効です (要求 {WANDERING[at] * 7919 % 100003:05d}、{WANDERING[at]}秒)",
    ),
    "name of a pod": lambda at: (
        f"limits: {at}",
        f"error: pod worker-7f{WANDERING[at]}c{at}d8 exited with code 137 at attempt {WANDERING[at]}",
    ),
    "column of one error in Spanish": lambda at: (
        f"-- prueba {at}",
        f"ERROR: no existe la columna «importe», línea 3, posición {40 + WANDERING[at]}",
    ),
}
WORKING: dict[str, Callable[[int], tuple[str, str]]] = {
    "fewer failures": lambda at: (f"# fix {at}", f"FAILED: {12 - at} failed, {80 + at} passed in {WANDERING[at]}.1s"),
    "the next place": lambda at: (
        f"// semicolon {at}", f"app.ts:{10 * at + 7}: error TS1005: ';' expected ({WANDERING[at]} ms)",
    ),
    "another name": lambda at: (
        f"let {'abcdefghij'[at]}", f"main.c:{WANDERING[at]}: error: '{'abcdefghij'[at] * 3}' undeclared here",
    ),
    "fewer failures, with steps back": lambda at: (
        f"# fix {at}", f"FEHLGESCHLAGEN: {(14, 11, 12, 9, 10, 8, 9, 6, 7, 4)[at]} Prüfungen",
    ),
    "noisy gains": lambda at: (
        f"dropout = 0.{WANDERING[at]}", f"失敗: 精度 0.{(71, 74, 69, 75, 72, 77, 76, 79, 75, 81)[at]} < 0.90",
    ),
    "rows that are mended one by one": lambda at: (
        f"DELETE customer {131 * WANDERING[at - 1]}", f"ERROR: duplicate key (customer)=({131 * WANDERING[at]})",
    ),
    "a part number each time": lambda at: (f"alias {at}", f"import failed: unknown part {CODES[at]} in the price list"),
    "a colour each time": lambda at: (f"fix {at}", f"lint: colour {WANDERING[at]:02x}a{at}f{at} is none of the palette"),
    "towards a value from both sides": lambda at: (
        f"gain = {WANDERING[at]}", f"calibration failed: {(80, 30, 61, 40, 52, 46, 51, 48, 51, 49)[at]}.2 V, want 50 V",
    ),
    "slow progress": lambda at: (f"lr = 0.{at}", f"FAILED: accuracy 0.{70 + at // 3} is below 0.90, seed {WANDERING[at]}"),
}  # fmt: skip


CODES = (
    "7HX9K2M1",
    "9QQ4B7T2",
    "K3L8P0Z5",
    "1DD2W9X8",
    "B7N6V5C4",
    "5TT0R1Y3",
    "H2J8M6Q9",
    "8ZC3X4L1",
    "P9W5K7D2",
    "3FG6N1V0",
)


def laps(report: Callable[[int], tuple[str, str]]) -> list[tuple[Any, ...]]:
    """An edit and a failing build, ten times."""
    calls: list[tuple[Any, ...]] = []
    for at in range(10):
        edit, failure = report(at)
        calls.append(("write_file", {"path": "src/unit", "content": edit}, "written"))
        calls.append(("run", {"command": "make check"}, failure, "error"))
    return calls


@pytest.mark.parametrize("kind", STUCK)
def test_failures_that_differ_in_figures_which_go_up_and_down_are_one(kind: str) -> None:
    at = nudged(evaluate(steps(laps(STUCK[kind]), gap=9.0)))
    assert at is not None
    assert at <= 15  # the eighth failure


@pytest.mark.parametrize("kind", WORKING)
def test_failures_of_which_something_moves_in_one_direction_are_work(kind: str) -> None:
    verdicts = evaluate(steps(laps(WORKING[kind]), gap=9.0))
    assert (nudged(verdicts), stopped(verdicts)) == (None, None)


@pytest.mark.parametrize("text", ["x" * 4_096, "/a/b-c.d" * 512, "1" * 4_096, "X" * 3_000 + "1" * 1_000, "错" * 4_096])
def test_a_failure_that_is_one_long_word_is_read_in_linear_time(text: str) -> None:
    started = thread_time()
    for _ in range(20):
        AlikeFailures().with_failure(text, ())
    assert thread_time() - started < 1.0


def test_a_queue_whose_links_name_other_records_is_worked_through() -> None:
    calls = [("next_ticket", {}, f"https://tracker.example/?t={10480211 + at * 917}") for at in range(12)]
    assert nudged(evaluate(steps(calls))) is None


def test_a_cart_whose_sum_moves_beside_an_empty_list_says_something() -> None:
    calls: list[tuple[Any, ...]] = []
    for at in range(9):
        calls.append(("add", {"sku": at}, "added"))
        cart = f'{{"currency": "EUR", "total": "{3 * at + 2}.90", "items": [], "coupon": "SPRING"}}'
        calls.append(("cart", {}, cart))
    assert nudged(evaluate(steps(calls))) is None
