"""Type VI: the same message again, or one claim to be done after the other."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, fired, record
from trajectory_guard.core.detectors import TYPE_VI


@pytest.mark.parametrize("tool", ["submit", "finish", "task_done", "final_answer", "attempt_completion", "Task-Done"])
def test_fires_at_the_third_claim_to_be_done(tool: str) -> None:
    steps = []
    for n in range(4):
        steps += [record(tool, {"answer": f"try {n}"}, f"noted {n}"), record("check", {"n": n}, f"fresh output {n}")]
    assert fired(evaluate(steps), TYPE_VI)[:1] == [4]


@pytest.mark.parametrize(
    "fetch", [("next_ticket", {}), ("get_question", {"exam": 7}), ("receive", {"queue": "mail-in"})]
)
def test_does_not_fire_where_the_next_piece_of_work_is_fetched_before_each_claim(fetch: tuple[str, dict]) -> None:
    tool, args = fetch
    steps = []
    for n in range(30):
        steps += [record(tool, args, f"case {n}: {n * 7919 % 997} of them"), record("task_complete", {}, "ok")]
    assert not fired(evaluate(steps), TYPE_VI)


def test_fires_on_claims_between_commands_whose_results_change() -> None:
    steps = []
    for n in range(6):
        steps += [record("bash", {"command": "pytest -q"}, f"{n * 7919 % 997} passed"), record("finish", {}, "go on")]
    assert fired(evaluate(steps), TYPE_VI)[:1] == [5]


def test_a_claim_that_sends_a_request_is_a_claim() -> None:
    steps = []
    for n in range(6):
        request = {"method": "POST", "url": "/answers", "answer": f"try {n}"}
        steps += [record("submit", request, f"noted {n}"), record("check", {"n": n}, f"fresh output {n}")]
    assert fired(evaluate(steps), TYPE_VI)[:1] == [6]


def test_fires_at_the_third_equal_message_over_one_call_that_brings_nothing_new() -> None:
    steps = [
        record("read", {"n": 1}, "the same line of the log", thought="Let me check the logs again.") for n in range(4)
    ]
    assert fired(evaluate(steps), TYPE_VI) == [2, 3]


def test_fires_at_the_fifth_equal_message_over_changing_calls() -> None:
    """An agent that works off a list may comment on each item alike: weak evidence, and acknowledged at most."""
    steps = [record("read", {"n": n}, None, thought="Let me check the logs again.") for n in range(6)]
    verdicts = evaluate(steps)
    assert fired(verdicts, TYPE_VI) == [4, 5]
    assert {str(verdict.certainty) for verdict in verdicts[4:]} == {"acknowledged"}


def test_does_not_fire_on_two_claims() -> None:
    steps = [record("submit", {"answer": n}, f"grader says {n}") for n in range(2)]
    assert fired(evaluate(steps), TYPE_VI) == []


def test_does_not_fire_on_claims_that_failed() -> None:
    steps = [record("submit", {"answer": n}, f"ValueError: field {'abcd'[n]} is missing", "error") for n in range(4)]
    assert fired(evaluate(steps), TYPE_VI) == []


def test_does_not_fire_on_equal_messages_with_progress_in_between() -> None:
    steps = [
        record("read", {"page": n}, f"chapter {'abcdefgh'[n]} of the report", thought="I will read the next page.")
        for n in range(8)
    ]
    assert fired(evaluate(steps), TYPE_VI) == []


def test_does_not_fire_on_short_or_missing_messages() -> None:
    assert fired(evaluate(record("read", {"n": n}, None, thought="ok") for n in range(5)), TYPE_VI) == []
    assert fired(evaluate(record("read", {"n": n}, None) for n in range(5)), TYPE_VI) == []


def test_does_not_fire_on_tools_that_merely_sound_final() -> None:
    steps = [record("submit_order", {"n": n}, f"order number {n}") for n in range(5)]
    assert fired(evaluate(steps), TYPE_VI) == []
