"""A result with a clock or a uuid is known again at the second call: what differs is only when it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.core.test_lists_and_limits import nudged, steps
from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.policy import Level

Result = Callable[[int, str], str]
"""The result of a call: how often it was made, and what it says besides."""
DATED: dict[str, Result] = {
    "headers": lambda n, text: json.dumps({
        "status": 200, "headers": {"Server": "nginx", "Date": f"Fri, 17 Apr 2026 05:{n:02}:59 GMT"}, "body": text,
    }),
    "curl": lambda n, text: f"HTTP/1.1 200 OK\nDate: Fri, 17 Apr 2026 05:{n:02}:59 GMT\n\n{text}",
    "log": lambda n, text: f"[2026-04-17T05:{n:02}:59.123Z] INFO {text}",
    "lines": lambda n, text: "".join(
        json.dumps({"took": 0.3 + n / 77, "event": event, "timestamp": f"2026-04-17T05:{n:02}:59Z"}) + "\n"
        for event in ("start", text)
    ),
    "bericht": lambda n, text: f"Stand 05:{n:02}:59 Uhr\n{text}",
    "seconds": lambda n, text: json.dumps({"ts": 1795000000.25 + 61 * n, "text": text}),
    "request": lambda n, text: json.dumps({"request": f"0ec0c22e-5421-4838-8e6c-{n:012x}", "text": text}),
}  # fmt: skip
PAGE = "The refund policy of 2021 applies: within 30 days, with receipt, to the card that paid."


@pytest.mark.parametrize("name", DATED)
def test_the_third_call_is_nudged_as_without_a_clock(name: str) -> None:
    calls = [("get_page", {"url": "/refunds"}, DATED[name](n, PAGE)) for n in range(4)]
    assert nudged(evaluate(steps(calls))) == 2


@pytest.mark.parametrize("name", DATED)
def test_what_changes_besides_the_clock_is_progress(name: str) -> None:
    calls = [
        ("get_page", {"url": "/log"}, DATED[name](n, f"{PAGE} Entry {n} by {'abcdefgh'[n]}lex.")) for n in range(8)
    ]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("name", DATED)
def test_pages_that_are_asked_for_in_turns_are_known_however_many_they_are(name: str) -> None:
    """Nine of them: more than there are profiles of learned noise."""
    pages = [f"/page/{at}" for at in "abcdefghi"]
    calls = [
        ("get_page", {"url": page}, DATED[name](9 * lap + at, f"{PAGE} This is {page}."))
        for lap in range(4)
        for at, page in enumerate(pages)
    ]
    nudge = nudged(evaluate(steps(calls)))
    assert nudge is not None
    assert nudge < 3 * len(pages)


def test_a_saved_trajectory_knows_them_too() -> None:
    engine = Engine()
    state, levels = engine.new_state("t"), []
    for n in range(4):
        verdict = engine.observe(state, record("get_page", {"url": "/"}, DATED["headers"](n, PAGE), t=100.0 + 2 * n))
        levels.append(verdict.level if verdict is not None else None)
        state = engine.load_state(state.to_bytes())
    assert levels.index(Level.NUDGE) == 2
