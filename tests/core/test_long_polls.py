"""A call that asks to wait, and finds nothing, is a poll: it is nudged late, told to wait, and not stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import judge

POLLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "queue": ("receive_message", {"queue": "q", "wait_time_seconds": 20}, "[]"),
    "queue, camel case": ("ReceiveMessage", {"QueueUrl": "https://q.example/1", "WaitTimeSeconds": 10}, '{"messages": []}'),
    "stream": ("xread", {"stream": "s", "wait_ms": 5000}, ""),
    "fractions of a second": ("pop", {"name": "jobs", "max_wait": 0.5}, "null"),
    "mailbox": ("postfach", {"ordner": "Eingang", "pause_s": 15}, "[]"),
    "consumer": ("consume", {"topic": "t", "delay": 3}, '{"records": []}'),
}  # fmt: skip


@pytest.mark.parametrize("gap", [0.7, 6.0, 25.0])
@pytest.mark.parametrize("name", POLLS)
def test_an_empty_long_poll_is_not_stopped(name: str, gap: float) -> None:
    verdicts = judge(steps([POLLS[name]] * 25, gap))
    assert stopped(verdicts) is None
    assert (nudged(verdicts) or 25) >= 4


@pytest.mark.parametrize("args", [{"q": "x", "wait": 0}, {"q": "x", "wait_for": "#list"}, {"q": "x", "wait": True}])
def test_a_search_that_asks_for_no_wait_is_stopped(args: dict[str, Any]) -> None:
    assert stopped(judge(steps([("search", args, "[]")] * 8, 0.7))) is not None


def test_a_call_that_asks_to_wait_and_returns_one_page_again_is_stopped() -> None:
    page = "Cart: 1 item. Please choose a size to continue."
    assert stopped(judge(steps([("goto", {"url": "https://x.example", "wait_ms": 500}, page)] * 10, 0.7))) is not None


def test_the_advice_for_repeated_acknowledgements_fits_looks_too() -> None:
    verdicts = judge(steps([("check_inbox", {}, "no new messages")] * 14, 0.7))
    text = next(one.nudge for one in verdicts if one is not None and one.nudge)
    assert "wait longer before the next look" in text
