"""Type II: calls that mean the same, none of which brings anything."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, fired, first_level, record
from trajectory_guard.core.detectors import TYPE_II
from trajectory_guard.core.settings import EngineSettings

REWORDED = [
    "flights from Berlin to Rome",
    "flights Berlin to Rome",
    "Flights from Berlin to Rome?",
    "the flights from Berlin to Rome",
]


def test_fires_at_the_third_empty_answer_to_one_question_in_other_words() -> None:
    assert fired(evaluate(record("search", {"query": text}, "", "empty") for text in REWORDED), TYPE_II) == [2, 3]


def test_fires_when_key_order_and_a_technical_setting_change() -> None:
    steps = [
        record("search", {"query": "late orders", "timeout": n}, "No results found", "empty") for n in (5, 10, 20, 30)
    ]
    assert fired(evaluate(steps), TYPE_II)[:1] == [2]


def test_fires_when_the_agent_announces_the_same_intent_with_other_arguments() -> None:
    thought = "I will look up the manual of the pump once more."
    steps = [
        record("find_page", {"topic": topic}, "not found", "error", thought=thought)
        for topic in ("pump", "user guide", "service booklet", "handbook")
    ]
    assert fired(evaluate(steps), TYPE_II) == [3]  # the first error of a kind is progress, the next three are not


def test_does_not_fire_while_the_answers_are_new() -> None:
    steps = [
        record("search", {"query": text}, f"{n + 1} flights, the first at {n + 6} o'clock")
        for n, text in enumerate(REWORDED)
    ]
    assert fired(evaluate(steps), TYPE_II) == []


def test_does_not_fire_on_look_ups_of_distinct_names_that_are_all_empty() -> None:
    names = ("Berlin", "Paris", "Madrid", "Oslo", "Lisbon", "Vienna", "Dublin")
    steps = [record("lookup_customer", {"name": name}, "[]", "empty") for name in names]
    assert fired(evaluate(steps), TYPE_II) == []


def test_does_not_fire_on_seven_empty_membership_checks() -> None:
    steps = [record("is_member", {"id": n}, "[]", "empty") for n in range(100, 107)]
    assert fired(evaluate(steps), TYPE_II) == []


def test_does_not_fire_on_a_batch_over_items() -> None:
    steps = [record("move_file", {"src": f"src/{n}.ts", "dst": f"lib/{n}.ts"}, f"moved {n}.ts") for n in range(10)]
    assert fired(evaluate(steps), TYPE_II) == []


def test_does_not_fire_when_a_search_is_narrowed() -> None:
    steps = [
        record("search", {"query": "refund"}, "812 hits"),
        record("search", {"query": "refund digital goods"}, "31 hits"),
        record("search", {"query": "refund digital goods EU 2026"}, "2 hits"),
    ]
    assert fired(evaluate(steps), TYPE_II) == []


@pytest.mark.parametrize("outcome", ["error", "empty"])
def test_does_not_fire_on_opposite_requests(outcome: str) -> None:
    texts = ("users who are active", "users who are not active")
    steps = [record("query", {"q": text}, "x", outcome) for text in texts]
    assert fired(evaluate(steps), TYPE_II) == []


def test_does_not_fire_on_equal_calls_alone() -> None:
    assert fired(evaluate(record("search", {"query": "x y z"}, "", "empty") for _ in range(4)), TYPE_II) == []


def test_does_not_fire_on_unknown_arguments() -> None:
    assert fired(evaluate(record("search", None, "", "empty") for _ in range(9)), TYPE_II) == []


def test_calls_outside_the_window_are_forgotten() -> None:
    steps = []
    for text in REWORDED[:3]:
        steps.append(record("search", {"query": text}, "", "empty"))
        steps += [record("read", {"page": len(steps) + n}, f"page {len(steps) + n}, new text") for n in range(10)]
    assert fired(evaluate(steps), TYPE_II) == []


def test_a_weight_of_zero_switches_the_type_off() -> None:
    off = EngineSettings(weights={TYPE_II: 0})
    assert fired(evaluate((record("search", {"query": text}, "", "empty") for text in REWORDED), off), TYPE_II) == []


FOR_ONE_FILE = (
    "find . -name app.config.toml", "find / -name app.config.toml 2>/dev/null", "ls **/app.config.toml",
    "locate app.config.toml", 'find . -iname "*app.config*"', "git ls-files | grep app.config", "grep -rl app.config .",
    "fd app.config",
)  # fmt: skip


def test_commands_that_look_for_one_thing_and_find_nothing_are_a_reformulation() -> None:
    verdicts = evaluate(record("bash", {"command": one}, "", "empty") for one in FOR_ONE_FILE)
    assert first_level(verdicts) is not None
    assert "reformulation" in {finding.rule for one in verdicts if one is not None for finding in one.detections}


@pytest.mark.parametrize(
    "commands",
    [
        [f"grep -n TODO src/{name}.py" for name in ("api", "auth", "cache", "db", "mail", "orders", "pages", "users")],
        [
            f"grep -rn TODO packages/{name}"
            for name in ("api", "auth", "cache", "db", "mail", "orders", "pages", "users")
        ],
        [
            f"find packages/{name} -name '*.test.js'"
            for name in ("api", "auth", "cache", "db", "mail", "orders", "users")
        ],
        [f"cat >> notes.txt <<'E'\nnote {number}\nE" for number in range(9)],
        [f"find {place} -name scratch.tmp -delete" for place in (".", "/", "~", "..", "*", "$HOME", ". -L", "/ -L")],
        [f"ls reports/{month}" for month in ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep")],
        [f"grep -rn {word} src" for word in ("select", "insert", "update", "delete", "truncate", "commit", "begin")],
    ],
)
def test_commands_that_look_for_other_things_or_write_are_none(commands: list[str]) -> None:
    verdicts = evaluate(record("bash", {"command": one}, "", "empty") for one in dict.fromkeys(commands))
    assert first_level(verdicts) is None
