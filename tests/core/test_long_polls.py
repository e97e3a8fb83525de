"""A call that asks to wait, and finds nothing, is a poll: it is nudged late with the advice to wait, and not stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate, record

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
    verdicts = evaluate(steps([POLLS[name]] * 25, gap))
    assert stopped(verdicts) is None
    assert (nudged(verdicts) or 25) >= 4


@pytest.mark.parametrize("args", [{"q": "x", "wait": 0}, {"q": "x", "wait_for": "#list"}, {"q": "x", "wait": True}])
def test_a_search_that_asks_for_no_wait_is_stopped(args: dict[str, Any]) -> None:
    assert stopped(evaluate(steps([("search", args, "[]")] * 8, 0.7))) is not None


def test_a_call_that_asks_to_wait_and_returns_one_page_again_is_stopped() -> None:
    page = "Cart: 1 item. Please choose a size to continue."
    assert (
        stopped(evaluate(steps([("goto", {"url": "https://x.example", "wait_ms": 500}, page)] * 10, 0.7))) is not None
    )


def test_the_advice_for_repeated_acknowledgements_fits_looks_too() -> None:
    verdicts = evaluate(steps([("check_desk", {}, "no new visitors")] * 14, 0.7))
    text = next(one.nudge for one in verdicts if one is not None and one.nudge)
    assert "wait longer before the next look" in text


SLEEPING: dict[str, tuple[str, str]] = {
    "CI run": ("sleep 30; gh run view 139 --json status", '{"conclusion":"","status":"in_progress"}'),
    "name service": ("sleep 60; dig +short app.example.fr @9.9.9.9", "203.0.113.8"),
    "job": ("sleep 45 && squeue -j 90114 -h -o %T", "PENDING"),
    "file": ("sleep 40; ls out", ""),
    "lock": ("sleep 20; apt-get install -y jq", "E: Could not get lock /var/lib/dpkg/lock-frontend"),
}


@pytest.mark.parametrize("name", SLEEPING)
def test_a_command_that_sleeps_first_has_paused(name: str) -> None:
    command, result = SLEEPING[name]
    outcome = "error" if result.startswith("E:") else "success"
    polls = [record("bash", {"command": command}, result, outcome, t=66.0 * n, dur=62.0) for n in range(40)]
    verdicts = evaluate(polls)
    assert stopped(verdicts) is None
    assert (nudged(verdicts) or 40) >= 7


WORKED: dict[str, tuple[str, dict[str, Any], str]] = {
    "gripper": ("gripper", {"action": "close"}, "closed, width 18 mm"),
    "tests": ("bash", {"command": "pytest -q"}, "64 passed in 2.07s"),
    "save": ("press", {"key": "ctrl+s"}, "saved"),
    "commit": ("bash", {"command": "git add -A && git commit -qm wip"}, "[main] wip"),
    "Umschalter": ("schalter", {"stellung": "ein"}, "eingeschaltet"),
}


@pytest.mark.parametrize("name", WORKED)
def test_an_action_between_pieces_of_work_is_left_alone(name: str) -> None:
    calls = [
        call
        for n in range(9)
        for call in (
            ("edit", {"path": f"part-{n}.py", "text": f"step {n} of the plan"}, "The file was updated."),
            WORKED[name],
        )
    ]
    assert nudged(evaluate(steps(calls, 4.0))) is None


@pytest.mark.parametrize("name", WORKED)
def test_the_same_action_without_any_work_is_a_loop(name: str) -> None:
    assert nudged(evaluate(steps([WORKED[name]] * 16, 4.0))) is not None


STATES: dict[str, tuple[str, dict[str, Any], str]] = {
    "git": ("git_status", {}, "On branch main\nnothing to commit, working tree clean"),
    "shipment": ("get_order_status", {"id": 7}, '{"state": "returned to sender"}'),
    "estado": ("estado_pedido", {"pedido": 7}, '{"estado": "parado"}'),
}


@pytest.mark.parametrize("name", STATES)
def test_a_status_that_is_looked_up_in_haste_is_stopped_some_day(name: str) -> None:
    verdicts = evaluate(steps([STATES[name]] * 90, 2.0))
    assert nudged(verdicts) is not None
    assert 40 <= (stopped(verdicts) or 0) < 60


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("gap_s", [6.0, 30.0, 200.0])
def test_one_that_is_looked_up_at_leisure_is_not(name: str, gap_s: float) -> None:
    assert stopped(evaluate(steps([STATES[name]] * 120, gap_s))) is None


def test_nor_is_one_that_says_that_something_is_under_way() -> None:
    assert stopped(evaluate(steps([("job_status", {"job": 7}, '{"status": "running"}')] * 120, 2.0))) is None


@pytest.mark.parametrize(("every_s", "stops"), [(2.0, True), (60.0, False), (90.0, False)])
def test_a_look_that_finds_nothing_once_a_minute_waits_for_something(every_s: float, *, stops: bool) -> None:
    verdicts = evaluate(steps([("list_new_orders", {"shop": "garden"}, "[]")] * 60, every_s))
    assert (stopped(verdicts) is not None) is stops
