"""The table of certainties in the README: at which call ``replay`` reports the first nudge and the stop."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PACKAGE
from trajectory_guard.cli.main import main

README = (PACKAGE.parents[1] / "README.md").read_text(encoding="utf-8")
LONG = "The order 17 was placed on 3 May by Jane Doe, was paid, and left the warehouse."
TABLE = "order | state | left\n------+-------+------\n17    | paid  | 3 May\n18    | open  | -\n(2 rows)"
MAIL = {"to": "a@b.c", "body": "Your refund is on its way."}
QUESTIONS = (
    "return policy", "policy for returns", "what is the return policy", "returns policy", "the policy on returns",
    "return policies", "policy of returns", "returns: policy?", "policies return", "return the policy", "a return policy",
)  # fmt: skip
AGAIN = 40
NONE = "No results found"
SUNNY = "It is nice and sunny in the whole of Berlin today, and it will remain so."
LOOPS: list[tuple[str, str, list[Any], str]] = [
    ("one call of any tool", "get_order", [{"id": 17}] * AGAIN, LONG),
    ("one call of any tool", "run_sql", [{"query": "SELECT 1"}] * AGAIN, TABLE),
    ("one call of any tool", "weather", [{"city": "Berlin"}] * AGAIN, NONE),
    ("`get_order`", "get_order", [{"id": 17}] * AGAIN, "42"),
    ("`query_db`", "query_db", [{"query": "SELECT count(*) FROM orders"}] * AGAIN, "42"),
    ("`send_email`", "send_email", [MAIL] * AGAIN, "ok"),
    ("one look-up with any", "get_weather", [{"city": "Berlin"}] * AGAIN, SUNNY),
    ("other words", "search", [{"query": words} for words in QUESTIONS], NONE),
    ("`run_sql`", "run_sql", [{"query": "SELECT count(*) FROM orders"}] * AGAIN, "42"),
    ("`weather`", "weather", [{"city": "Berlin"}] * AGAIN, "18 C, cloudy"),
    ("`calculator`", "calculator", [{"expression": "17*23"}] * AGAIN, "391"),
    ("an empty one", "run_sql", [{"query": "SELECT 1"}] * AGAIN, ""),
    ("one line, or flat object", "weather", [{"city": "Berlin"}] * AGAIN, SUNNY),
    ("one line, or flat object", "run_sql", [{"query": "SELECT 1"}] * AGAIN, LONG),
    (
        "one line, or flat object",
        "set_zoom",
        [{"level": 2}] * AGAIN,
        '{"ok": true, "message": "The map was zoomed to level 2."}',
    ),
    ("with Enter", "press_key", [{"key": "Enter"}] * AGAIN, "ok"),
    ("Tab or an arrow", "press_key", [{"key": "Tab"}] * AGAIN, "ok"),
    ("`update_record`", "update_record", [{"id": 1, "state": "open"}] * AGAIN, "ok"),
]
"""A text of the row, and what repeats: tool, arguments of each call, result."""


def replayed(capsys: pytest.CaptureFixture[str], file: Path, *options: str) -> dict[str, Any]:
    assert main(["replay", "--json", *options, str(file)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("row", "name", "calls", "result"), LOOPS, ids=[f"{one[1]}: {one[3][:12]}" for one in LOOPS])
def test_the_first_nudge_and_the_stop_come_where_the_table_says(
    row: str, name: str, calls: list[Any], result: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = (
        one for one in README.splitlines() if re.match(r"\| (certain|likely|acknowledged) \|", one) and row in one
    )
    nudges, stop = (cell.strip() for cell in line.strip("| ").rsplit("|", 2)[1:])
    file = tmp_path / "steps.jsonl"
    steps = [{"tool": name, "args": args, "result": result} for args in calls]
    file.write_text(json.dumps({"id": "a", "steps": steps}) + "\n", encoding="utf-8")
    found = replayed(capsys, file)
    assert (found["first_nudge"] + 1, found["first_stop"] + 1) == (int(nudges.split(",")[0]), int(stop))


WORDS = ("juliet", "kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo")
CLOCKS = [f"[2026-01-02T10:00:{second:02d}Z] {LONG}" for second in range(20)]
DENIED = "Error: permission denied"
NAMES = [f"{one}{other}" for one in ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot") for other in WORDS]
EXCEPTIONS: list[tuple[str, list[dict[str, Any]], tuple[int, int | None]]] = [
    ("clocks", [{"tool": "get_order", "args": {"id": 17}, "result": text} for text in CLOCKS], (3, 9)),
    ("text of a success", [{"tool": "run", "args": {"a": 1}, "result": DENIED, "outcome": "success"}] * 20, (3, 9)),
    ("text of an error", [{"tool": "run", "args": {"a": 1}, "result": DENIED}] * 20, (3, 5)),
    ("unknown words", [{"tool": "run", "args": {"a": 1}, "result": "zxqv blip 77", "outcome": "error"}] * 20, (3, 16)),
    ("batch", [{"tool": "update", "args": {"id": 1000 + 7 * at}, "result": DENIED} for at in range(40)], (7, 25)),
    (
        "look-ups",
        [{"tool": "get_page", "args": {"url": f"https://{name}.com/"}, "result": DENIED} for name in NAMES],
        (4, 31),
    ),
    ("waiting", [{"tool": "call_api", "args": {"u": "x"}, "result": "202 Accepted"}] * 200, (9, 192)),
    ("time limit", [{"tool": "call_api", "args": {"u": "x"}, "result": "503 Service Unavailable"}] * 400, (9, None)),
]


@pytest.mark.parametrize(
    ("steps", "nudge_and_stop"), [one[1:] for one in EXCEPTIONS], ids=[one[0] for one in EXCEPTIONS]
)
def test_the_exceptions_come_where_the_page_on_detection_says(
    steps: list[dict[str, Any]],
    nudge_and_stop: tuple[int, int | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text(json.dumps({"id": "a", "steps": steps}) + "\n", encoding="utf-8")
    found = replayed(capsys, file)
    stop = found["first_stop"]
    assert (found["first_nudge"] + 1, None if stop is None else stop + 1) == nudge_and_stop


def test_the_thresholds_of_the_page_of_complaints_delay_a_loop_by_one_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "steps.jsonl"
    steps = [{"tool": "get_order", "args": {"id": 17}, "result": LONG}] * 10
    file.write_text(json.dumps({"id": "a", "steps": steps}) + "\n", encoding="utf-8")
    page = (PACKAGE.parents[1] / "docs" / "tuning.md").read_text(encoding="utf-8")
    assert "`stop_threshold = 4.5` with `nudge_threshold = 3.5`" in page
    found = replayed(capsys, file, "--set", "nudge_threshold=3.5", "--set", "stop_threshold=4.5")
    assert (found["first_nudge"] + 1, found["first_stop"] + 1) == (4, 6)
