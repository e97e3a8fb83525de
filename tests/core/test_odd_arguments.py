"""Arguments that no model should send, and some do: integers of thousands of digits, keys that are no text, objects."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import evaluate, fewer_examples, first_level, record
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.content.result_text import values_of
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.explain.interventions import args_excerpt
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.policy import Level
from trajectory_guard.core.recall import recall
from trajectory_guard.core.similarity import normalize
from trajectory_guard.core.text import text_of

DIGITS = (700, 4_400, 5_000, 20_000)
TOO_LARGE = "Error: number too large to be factored by this tool, use a smaller one"


class Unwritten:
    """An object that cannot be written."""

    def __repr__(self) -> str:
        raise RuntimeError("it is not open")


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("answer", [TOO_LARGE, "the number could be factored, here is the long result of it: 1 and 1"])
def test_a_loop_with_an_integer_of_thousands_of_digits_is_found(digits: int, answer: str) -> None:
    outcome = "error" if answer is TOO_LARGE else "success"
    verdicts = evaluate([record("get_factors", {"n": 10**digits}, answer, outcome) for _ in range(6)])
    assert first_level(verdicts) == 2
    assert first_level(verdicts, Level.STOP) == 4


def test_other_integers_of_thousands_of_digits_are_other_calls() -> None:
    assert args_hash({"n": 10**5_000}) != args_hash({"n": 10**5_000 + 1})
    assert args_hash({"n": [10**5_000]}) == args_hash({"n": [10**5_000]})
    assert args_hash({"n": {10**5_000}}) != args_hash({"n": {10**5_000 + 1}})
    assert values_of({"n": 10**5_000}) == (hex(10**5_000),)


def test_an_integer_is_written_as_python_writes_it_as_long_as_it_does() -> None:
    assert args_hash({"n": 10**4_000}) == sha256(b'{"n":1' + b"0" * 4_000 + b"}").hexdigest()
    assert text_of(10**600) == "1" + "0" * 600


def test_a_command_without_an_answer_is_found_beside_keys_that_are_no_text() -> None:
    board = FlagBoard(GuardConfig())
    for at in range(6):
        board.observe(record("run", {1: "touch a", "command": "touch a"}, "", "empty", t=9.0 * at))
    assert board.read("t").level is not Level.OBSERVE
    for at in range(5):
        board.observe(record("run", {1: f"x y z {at}"}, "", "empty", trajectory="other"))
    assert board.read("other").steps == 5


def test_how_long_a_call_should_have_waited_is_no_number_beyond_all_floats() -> None:
    assert evaluate([record("sleep_until", {"n": 10**5_000}, "", t=100.0 * at, dur=9.0) for at in range(3)])[-1]


_integers = st.sampled_from(DIGITS).map(lambda digits: 10**digits - 1) | st.integers()
_leaves = st.one_of(
    _integers, st.floats(), st.text(max_size=8), st.binary(max_size=8), st.none(), st.booleans(), st.complex_numbers(),
    st.builds(object), st.builds(Unwritten), st.frozensets(_integers, max_size=2), st.just("half \ud800"),
    st.sampled_from(("0x" + "f" * 5_000, "9" * 6_000 + "+1", '{"a": ' + "9" * 6_000 + "}", "2026-03-01T10:00:00Z")),
)  # fmt: skip
_keys = st.one_of(
    st.sampled_from(
        ("q", "command", "path", "to", "expression", "now", "timeout", "sql", "url", "method", "headers", "text", "input")
    ),
    _integers, st.text(max_size=4), st.none(), st.booleans(), st.floats(allow_nan=False), st.binary(max_size=3),
    st.tuples(st.integers()), st.builds(Unwritten), st.just("\udc00"),
)  # fmt: skip
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)
_tools = st.sampled_from(
    ("search", "bash", "calculator", "transfer_to_agent", "final_answer", "wait", "click", "http_request", "write_file")
)
_answers = st.sampled_from((("error", TOO_LARGE), ("success", "ok"), ("success", "0 results"), ("empty", "")))


@fewer_examples(1)
@given(_tools, st.lists(st.dictionaries(_keys, _values, max_size=4) | _values, min_size=1, max_size=2), _answers)
def test_no_argument_costs_a_step(tool: str, given: list[Any], answer: tuple[str, str]) -> None:
    engine = Engine()
    state = engine.new_state("t")
    outcome, result = answer
    for at in range(6):
        args = given[at % len(given)]
        step = record(tool, args, result, outcome, t=10.0 * at, dur=4.0 * (at % 2), agent="ab"[at % 2])
        assert engine.observe(state, step) is not None
        recall(state, "", tool, args)
    normalize(tool, given[0])
    assert all(isinstance(value, str) for value in values_of(given[0]))
    args_excerpt(given[0]).encode()
    assert engine.load_state(state.to_bytes()).index == state.index == 6


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python writes integers of any length")
def test_a_lower_limit_of_digits_costs_no_step() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        verdicts = evaluate([record("factor", {"n": 10**1_000}, TOO_LARGE, "error") for _ in range(6)])
    finally:
        sys.set_int_max_str_digits(before)
    assert first_level(verdicts) == 2
