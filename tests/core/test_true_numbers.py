"""The numbers in reasons and nudges equal the numbers counted from the steps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord

CALLED = re.compile(r"^(?P<call>.*?\)) was called (?P<least>at least )?(?P<calls>\d+) times")
ALIKE = re.compile(r" times(?: among other calls)?, and (?P<least>at least )?(\d+) times it returned ")
EACH = re.compile(r", and returned .* each of the last (\d+) times\.$")
FAILED = re.compile(r"^(?:(?:The|At least the) last (\d+)|(\d+) of the last (\d+)) calls failed")
LEAST = re.compile(r"(?i)\bat least\b")
NUMBERS = {
    "same_error": re.compile(r"^(?:The|At least the) last (\d+) calls failed"),
    "same_meaning": re.compile(r" is (?:at least )?attempt number (\d+) at "),
    "same_answer": re.compile(r"^(?:At least )?(\d+) different calls in a row"),
    "same_call_same_result": re.compile(r" was called (?:at least )?(\d+) times"),
    "handoffs": re.compile(r"^The work has gone round (?:at least )?(\d+) times"),
    "same_state": re.compile(r"^(?:At least )?(\d+) different calls in a row"),
}
LAPS = re.compile(r"^The calls .* have repeated (\d+) times")
NAMES = ("anna", "berta", "clara", "dora", "emma", "frida", "greta", "hanna", "ida", "julia")


def text_of(name: str) -> str:
    return f"The file of {name} says that the valley is green, and that it rains there on most days."


loops = st.fixed_dictionaries(
    {
        "period": st.integers(1, 5),
        "laps": st.integers(2, 14),
        "outcome": st.sampled_from(["success", "error", "empty"]),
        "batch": st.sampled_from([1, 1, 2, 3]),
        "copies": st.integers(1, 3),
        "filler": st.integers(0, 4),
        "prefix": st.integers(0, 3) | st.integers(30, 45),
        "before": st.integers(0, 2),
    }
)


def unfold(plan: dict[str, Any]) -> list[StepRecord]:
    """Laps of some calls in model turns, with copies in a turn and every so often a call that brings something new."""
    turns: list[list[StepRecord]] = [[record("read", {"who": NAMES[0]}, text_of(NAMES[0]))]] * plan["before"]
    turns += [[record("list", {"page": at}, text_of("x" * at))] for at in range(plan["prefix"])]
    for lap in range(plan["laps"]):
        names = NAMES[: plan["period"]]
        calls = [
            record("read", {"who": name}, "" if plan["outcome"] == "empty" else text_of(name), plan["outcome"])
            for name in names
        ]
        size = plan["batch"]
        turns += [calls[at : at + size] * plan["copies"] for at in range(0, len(calls), size)]
        if plan["filler"] and lap % plan["filler"] == 0:
            turns.append([record("look", {"at": f"hill {lap}"}, text_of("hill" + "l" * lap))])
    return [
        step._replace(step_id=f"{turn:08x}{at:08x}", batch=str(turn), timestamp=float(turn))
        for turn, steps in enumerate(turns)
        for at, step in enumerate(steps)
    ]


def check(said: str, steps: list[StepRecord]) -> None:
    """The numbers of a sentence about the newest of ``steps``."""
    newest = steps[-1]
    same = [one for one in steps if (one.tool_name, one.args) == (newest.tool_name, newest.args)]
    if (found := CALLED.match(said)) is not None:
        stated = int(found["calls"])
        assert stated < len(same) if found["least"] and stated != len(same) else stated == len(same), said
        answer = (newest.result, newest.outcome_type)
        alike = len([one for one in same if (one.result, one.outcome_type) == answer])
        if (partly := ALIKE.search(said)) is not None:
            assert int(partly[2]) == alike < len(same) or (partly["least"] and int(partly[2]) < alike), said
        elif (lately := EACH.search(said)) is not None:
            assert all((one.result, one.outcome_type) == answer for one in same[-int(lately[1]) :]), said
        elif said.endswith("each time."):
            assert alike == len(same), said
    if (found := FAILED.match(said)) is not None:
        calls = int(found[1] or found[3])
        turns = list(dict.fromkeys((one.batch, one.tool_name, str(one.args), one.outcome_type) for one in steps))[
            -calls:
        ]
        failed = [turn for turn in turns if turn[3] == "error"]
        assert len(failed) == int(found[1] or found[2]), said
    if (found := LAPS.match(said)) is not None:
        assert int(found[1]) >= 2


@given(plan=loops)
def test_the_numbers_in_a_reason_are_those_of_the_steps(plan: dict[str, Any]) -> None:
    steps = unfold(plan)
    for at, verdict in enumerate(evaluate(steps)):
        if verdict is not None and verdict.reason:
            check(verdict.reason, steps[: at + 1])


def said_of(steps: list[StepRecord]) -> list[str]:
    """The reasons of all nudges and stops."""
    verdicts = evaluate([step._replace(step_id=f"{at:016x}", timestamp=at * 1.0) for at, step in enumerate(steps)])
    return [one.reason for one in verdicts if isinstance(one, Verdict) and one.intervenes]


@pytest.mark.parametrize("period", [1, 2, 3, 4, 5])
def test_the_first_call_of_a_lap_counts_too(period: int) -> None:
    laps = [record("read", {"who": name}, text_of(name)) for name in NAMES[:period]] * 9

    reported = [int(found["calls"]) for one in said_of(laps) if (found := CALLED.match(one)) is not None]

    assert reported[0] == 3


def test_a_call_that_returned_other_things_before_is_reported_so() -> None:
    steps = [record("read", {"who": "anna"}, text_of(name)) for name in ("anna", "berta", "clara")]
    steps += [record("read", {"who": "anna"}, text_of("clara"))] * 4

    (first, *_) = said_of(steps)

    assert "was called 5 times, and 3 times it returned" in first


def test_failures_beside_other_calls_are_reported_with_the_calls_they_are_among() -> None:
    columns = ("user", "users", "user_id", "id", "uid")
    failures = [record("run", {"column": name}, f"KeyError: '{name}'", "error") for name in columns]
    steps = [*failures[:2], record("look", {"at": "hill"}, text_of("the hill")), *failures[2:]]

    first = next(one.reason for one in evaluate(steps) if one is not None and one.rule == "same_error")

    assert first.startswith("3 of the last 4 calls failed in the same way; ")


def test_one_message_with_parallel_calls_is_one_message() -> None:
    steps = [
        record("look", {"at": name}, None, "error", batch=str(turn), thought="I will look at the garden once more.")
        for turn in range(2)
        for name in NAMES[:4]
    ]

    assert not [one for one in evaluate(steps) if one is not None and one.rule == "same_message"]


def test_parallel_calls_that_show_one_state_are_all_counted() -> None:
    page = "Cart: 1 item. Please choose a size to continue."
    steps = [
        record(tool, {"at": f"size {turn}"}, page, batch=str(turn))
        for turn in range(4)
        for tool in ("click", "scroll", "press")
    ]

    reasons = {
        at: one.reason for at, one in enumerate(evaluate(steps)) if one is not None and "different calls" in one.reason
    }

    assert reasons
    for at, said in reasons.items():
        assert said.startswith(f"{at + 1} different calls in a row"), said


WORDS = [
    "anchor",
    "basket",
    "candle",
    "desert",
    "engine",
    "feather",
    "garden",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "magnet",
    "needle",
    "orange",
]
QUESTIONS = (
    "acme api rate limit", "acme rate limits api docs", "how many requests per minute acme api", "acme api quota",
    "acme throttling limits", "acme api request limits per minute",
)  # fmt: skip
HITS = '[{"title": "Acme API overview", "url": "https://acme.dev/api"}, {"title": "Acme pricing", "url": "https://acme.dev/p"}]'
LOOPS: dict[str, Any] = {
    "errors as text": lambda at: record("bash", {"cmd": f"cat /root/{WORDS[at % 15]}{at}.txt"}, f"cat: /root/{WORDS[at % 15]}{at}.txt: Permission denied"),
    "errors as JSON": lambda at: record("get_customer", {"id": at}, '{"error": {"code": 401, "message": "Invalid API key"}}'),
    "errors": lambda at: record("get_customer", {"id": at}, "PermissionError: 401 Invalid API key", "error"),
    "one of two dates": lambda at: record("book", {"date": ("1.5.2026", "May 1")[at % 2]}, "Invalid date. Please use YYYY-MM-DD."),
    "reworded": lambda at: record("web_search", {"q": QUESTIONS[at % 6]}, HITS),
    "reworded, nothing found": lambda at: record("web_search", {"q": QUESTIONS[at % 6]}, "No results", "empty"),
    "cache busting": lambda at: record("fetch", {"url": f"https://x.org/stock?sku=7&_={1700000000 + at * 17}"}, '{"sku": 7, "stock": 0}'),
    "settings": lambda at: record("ocr", {"image": "scan.png", "dpi": 100 + 50 * at}, "[]", "empty"),
    "settings, a text": lambda at: record("ocr", {"image": "scan.png", "dpi": 100 + 50 * at}, "The picture seems to hold no text at all, or none that I can read."),
    "one call": lambda at: record("search", {"q": "refund"}, "The shop takes goods back within thirty days."),
    "two desks": lambda at: record(f"transfer_to_{('billing', 'support')[at % 2]}", {"why": WORDS[at % 15] + str(at)}, "done"),
    "one page": lambda at: record(("click", "scroll", "press")[at % 3], {"at": f"size {at}"}, "Cart: 1 item. Please choose a size to continue."),
}  # fmt: skip
"""Loops in which every call belongs to the loop, by the number of the call."""
LOOPS["forty calls, one page"] = lambda at: LOOPS["one page"](at % 40)
LOOPS["forty settings"] = lambda at: LOOPS["settings"](at % 40)
DIFFERENT = {"one page": 100, "settings": 100, "forty calls, one page": 40, "forty settings": 40}
ROUNDS_A_CALL = {"two desks": 2}


@pytest.mark.parametrize("healthy", [0, 5, 50])
@pytest.mark.parametrize("name", LOOPS)
def test_a_number_that_is_not_the_number_of_calls_is_a_lower_bound_and_says_so(name: str, healthy: int) -> None:
    before = [record("list", {"page": at}, text_of("x" * (at + 1))) for at in range(healthy)]
    steps = [*before, *(LOOPS[name](at) for at in range(100))]
    verdicts = evaluate([step._replace(step_id=f"{at:016x}", timestamp=at * 1.0) for at, step in enumerate(steps)])
    checked = 0
    for at, verdict in enumerate(verdicts):
        if verdict is None or not verdict.intervenes:
            continue
        looped = steps[healthy : at + 1]
        if verdict.rule == "cycle":
            continue
        rule = {"reformulation": "same_meaning", "same_effect": "same_state"}.get(verdict.rule, verdict.rule)
        found = NUMBERS[rule].search(verdict.reason)
        if found is None:
            continue
        equal = [one for one in looped if one.args == looped[-1].args]
        true = len(equal) if rule == "same_call_same_result" else len(looped) / ROUNDS_A_CALL.get(name, 1)
        true = min(true, DIFFERENT.get(name, true))
        stated, bound = int(found[1]), LEAST.search(verdict.reason)
        assert stated <= true, verdict.reason
        assert bound or true - stated < 1, verdict.reason
        checked += 1
    assert checked


def test_a_loop_whose_beginning_is_forgotten_says_nothing_of_each_time() -> None:
    steps = [record("read", {"who": "anna"}, text_of("anna"))] * 2
    steps += [record("list", {"page": at}, text_of("x" * (at + 1))) for at in range(60)]
    steps += [record("read", {"who": "anna"}, text_of("berta"))] * 4

    first = said_of(steps)[0]

    assert "was called at least 3 times, and returned " in first
    assert first.endswith(" each of the last 3 times.")


def test_failures_that_fill_the_window_are_a_lower_bound() -> None:
    steps = [record("run", {"column": f"col{at}"}, "PermissionError: not allowed", "error") for at in range(30)]

    said = said_of(steps)

    assert said[0].startswith("The last ")
    assert said[-1].startswith("At least the last 10 calls failed")


@pytest.mark.parametrize("length", [5, 31, 33, 60, 200])
def test_the_seconds_of_a_loop_are_those_since_it_began_or_was_found(length: int) -> None:
    steps = [
        record("search", {"q": "refund"}, "Back within thirty days.", step_id=f"{at:016x}", t=100.0 + at * 5.0)
        for at in range(length)
    ]

    spent = [one.spent for one in evaluate(steps) if one is not None and one.detections][-1]

    true = 5.0 * (length - 1)
    assert spent.steps == length - 1
    assert true - 10.0 <= spent.seconds <= true


@pytest.mark.parametrize("apart", ["a new trace for each call", "a long pause before each call"])
def test_calls_on_both_sides_of_an_uncertain_boundary_are_counted(apart: str) -> None:
    """The reason said "was called 1 times and returned … each time"."""
    steps = [
        record("health", {"of": "backup"}, "The last backup has been verified and is complete.") for _ in range(40)
    ]
    if apart.startswith("a new trace"):
        steps = [step._replace(trace_id=f"{at:032x}") for at, step in enumerate(steps)]
    else:
        steps = [step._replace(timestamp=200.0 * at) for at, step in enumerate(steps)]
    nudges = [verdict.reason for verdict in evaluate(steps) if verdict.nudge is not None]
    assert nudges
    for reason in nudges:
        found = CALLED.match(reason)
        assert found is None or int(found["calls"]) > 1, reason
