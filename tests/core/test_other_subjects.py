"""Whether calls ask for one thing, or each for another: ids of requests, texts to work on, things held by others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.policy import Level

SENTENCES = [
    "Hello there.", "Good luck.", "See you soon.", "How are you?", "Thanks a lot.", "What a day.", "Come on in.",
    "Take your time.", "Well done.", "I am here.", "Not at all.", "So do I.", "You are right.", "Let us go.",
    "This is it.", "Who is there?", "Never mind.", "As you like.", "No way.", "Of course.", "It is me.", "Here we are.",
]  # fmt: skip
QUESTIONS = [
    "return policy", "policy for returns", "what is the return policy", "returns policy", "rules for a return",
    "policy on returned goods", "how do returns work", "returning goods: policy",
]  # fmt: skip


def levels(calls: list[tuple[str, dict[str, Any], str, str]], gap_s: float = 3.0) -> list[Level]:
    steps = [
        record(tool, args, result, outcome, t=at * gap_s)._replace(step_id=f"{at + 1:016x}")
        for at, (tool, args, result, outcome) in enumerate(calls)
    ]
    return [one.level for one in evaluate(steps) if one is not None]


@pytest.mark.parametrize("key", ["request_id", "trace_id", "correlation_id", "idempotency_key", "X-Request-ID"])
@pytest.mark.parametrize(
    ("tool", "args", "result"),
    [
        ("search_kb", {"query": "refund policy"}, "No results found"),
        ("find_flights", {"route": "Berlin to Rome on Friday"}, "[]"),
        ("get_order", {"order_id": "A17"}, '{"order": "A17", "state": "shipped", "items": 3, "carrier": "DHL"}'),
    ],
)
def test_a_new_request_id_makes_no_other_question(tool: str, args: dict[str, Any], result: str, key: str) -> None:
    dice = random.Random(key)
    found = levels([(tool, {**args, key: f"{dice.getrandbits(128):032x}"}, result, "success") for _ in range(24)])
    assert found == levels([(tool, args, result, "success")] * 24)
    assert Level.NUDGE in found
    assert found[-1] is Level.STOP


@pytest.mark.parametrize("tool", ["get_trace", "lookup_logs", "find_request"])
def test_a_look_up_by_the_id_of_a_request_asks_for_another_one_each_time(tool: str) -> None:
    dice = random.Random(tool)
    calls = [
        (tool, {"request_id": f"{dice.getrandbits(64):016x}", "index": "prod"}, "no entry", "success")
        for _ in SENTENCES
    ]
    assert Level.STOP not in levels(calls)


@pytest.mark.parametrize(
    ("tool", "result"),
    [("detect_pii", "[]"), ("extract_dates", "[]"), ("find_profanity", "No matches"), ("check_toxicity", "{}")],
)
@pytest.mark.parametrize("key", ["text", "sentence", "message"])
def test_a_batch_of_short_texts_in_which_nothing_is_found_is_left_alone(tool: str, result: str, key: str) -> None:
    assert set(levels([(tool, {key: one}, result, "success") for one in SENTENCES])) == {Level.OBSERVE}


@pytest.mark.parametrize(("tool", "key"), [("search", "text"), ("ask_docs", "message"), ("find_article", "query")])
def test_questions_in_other_words_are_none(tool: str, key: str) -> None:
    assert Level.NUDGE in levels([(tool, {key: one}, "No results found", "success") for one in QUESTIONS])


HELD: dict[str, Callable[[], str]] = {
    "terraform": lambda: "Error: Error acquiring the state lock\n\nError message: ConditionalCheckFailedException",
    "redis": lambda: "Error acquiring lock 'nightly'",
    "helm": lambda: "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
    "brew": lambda: "Error: Another active Homebrew update process is already in progress.",
    "cloudformation": lambda: "An error occurred: Stack web is in UPDATE_IN_PROGRESS state and can not be updated.",
    "database": lambda: "ERROR: a migration is already running",
}


@pytest.mark.parametrize("outcome", ["success", "error"])
@pytest.mark.parametrize("what", HELD)
def test_what_somebody_else_holds_is_nudged_and_not_stopped_soon(what: str, outcome: str) -> None:
    found = levels([("run", {"cmd": "apply"}, HELD[what](), outcome) for _ in range(14)])
    assert Level.NUDGE in found
    assert Level.STOP not in found
