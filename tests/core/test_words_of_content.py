"""A word for something under way may be a word of what was looked up: that is content, and no wait."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level

CONTENT = (
    (
        "search_catalog",
        {"query": "shoes"},
        "Nike Pegasus 41 running shoes, size 42, 119 EUR, 4.6 stars from 310 reviews",
    ),
    ("find_hotel", {"city": "Ghent"}, "Cash and cards are accepted; check-in starts at 15:00, breakfast is included"),
    ("retrieve_passages", {"about": "theatre"}, "Waiting for Godot, Samuel Beckett, 1952, 109 pages, in two acts"),
    ("get_address", {"of": "ESB"}, "Empire State Building, 350 Fifth Avenue, New York, NY 10118, United States"),
    ("get_room", {"of": "workshop"}, "Room 202 is on the second floor, next to the elevator, seats 24"),
    ("write_todos", {"todos": ["find the file", "fix it"]}, "Updated: find the file (in_progress), fix it (pending)"),
)
STATES = (
    ("get_job", {"id": 7}, "job 7: still running"),
    ("get_build", {"id": 7}, "status: building"),
    ("call_api", {"path": "/export"}, "HTTP/1.1 202 Accepted"),
    ("search_jobs", {"query": "nightly"}, '{"id": 7, "status": "running"}'),
    ("find_order", {"number": 7}, "Order 7: processing"),
)


@pytest.mark.parametrize(("tool", "args", "result"), CONTENT, ids=[case[0] for case in CONTENT])
def test_content_that_holds_a_word_for_a_state_is_no_wait(tool: str, args: dict, result: str) -> None:
    verdicts = evaluate([record(tool, args, result) for _ in range(10)])
    assert first_level(verdicts, Level.NUDGE) == 2
    assert first_level(verdicts, Level.STOP) is not None


@pytest.mark.parametrize(("tool", "args", "result"), STATES, ids=[case[0] for case in STATES])
def test_a_state_is_a_wait_whatever_looks_it_up(tool: str, args: dict, result: str) -> None:
    assert first_level(evaluate([record(tool, args, result) for _ in range(40)]), Level.STOP) is None
