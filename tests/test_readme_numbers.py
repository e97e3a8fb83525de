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
MAIL = {"to": "a@b.c", "body": "Your refund is on its way."}
QUESTIONS = (
    "return policy", "policy for returns", "what is the return policy", "returns policy", "the policy on returns",
    "return policies", "policy of returns", "returns: policy?", "policies return", "return the policy", "a return policy",
)  # fmt: skip
AGAIN = 40
NONE = "No results found"
LOOPS: list[tuple[str, str, list[Any], str]] = [
    ("one call of any tool", "get_order", [{"id": 17}] * AGAIN, LONG),
    ("one call of any tool", "run_sql", [{"query": "SELECT 1"}] * AGAIN, LONG),
    ("one call of any tool", "weather", [{"city": "Berlin"}] * AGAIN, NONE),
    ("`get_order`", "get_order", [{"id": 17}] * AGAIN, "42"),
    ("`query_db`", "query_db", [{"query": "SELECT count(*) FROM orders"}] * AGAIN, "42"),
    ("`send_email`", "send_email", [MAIL] * AGAIN, "ok"),
    ("other words", "search", [{"query": words} for words in QUESTIONS], NONE),
    ("`run_sql`", "run_sql", [{"query": "SELECT count(*) FROM orders"}] * AGAIN, "42"),
    ("`weather`", "weather", [{"city": "Berlin"}] * AGAIN, "18 C, cloudy"),
    ("`calculator`", "calculator", [{"expression": "17*23"}] * AGAIN, "391"),
    ("or an empty one", "run_sql", [{"query": "SELECT 1"}] * AGAIN, ""),
    ("`press_key`", "press_key", [{"key": "Enter"}] * AGAIN, "ok"),
    ("`update_record`", "update_record", [{"id": 1, "state": "open"}] * AGAIN, "ok"),
]
"""A text of the row, and what repeats: tool, arguments of each call, result."""


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
    assert main(["replay", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first_nudge"] + 1, found["first_stop"] + 1) == (int(nudges.split(",")[0]), int(stop))
