"""When are the arguments of two calls the same? Order, spacing and encoding do not matter; values do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.helpers import PACKAGE
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.fingerprints import MAX_DEPTH, args_hash, canonical_bytes, parse_json

words = st.text(st.sampled_from("abcXYZ é-_"), max_size=8).map(str.strip)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | words
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=10
)
objects = st.dictionaries(words, trees, max_size=5)


def reordered(value: Any) -> Any:
    """The same value with the keys of every object in reverse order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def as_floats(value: Any) -> Any:
    """The same value with its small integers written as floats."""
    if isinstance(value, dict):
        return {key: as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    return float(value) if type(value) is int and abs(value) < 2**53 else value


@given(objects)
def test_key_order_does_not_matter_at_any_level(args: dict[str, Any]) -> None:
    assert args_hash(reordered(args)) == args_hash(args) is not None


@given(objects, st.sampled_from([None, 2]))
def test_json_text_is_the_value_it_holds(args: dict[str, Any], indent: int | None) -> None:
    assert args_hash(json.dumps(args, indent=indent)) == args_hash(args)


@given(
    st.dictionaries(
        words, st.lists(leaves, max_size=3) | st.dictionaries(words, leaves, max_size=3), min_size=1, max_size=4
    )
)
def test_json_inside_an_argument_is_the_value_it_holds(args: dict[str, Any]) -> None:
    encoded = {key: f" {json.dumps(value, indent=1)}\n" for key, value in args.items()}
    assert args_hash(encoded) == args_hash(args)


@given(objects)
def test_whole_floats_are_integers(args: dict[str, Any]) -> None:
    assert args_hash(as_floats(args)) == args_hash(args)


@given(objects, objects)
def test_different_values_hash_differently(one: dict[str, Any], other: dict[str, Any]) -> None:
    assume(json.dumps(as_plain(one), sort_keys=True) != json.dumps(as_plain(other), sort_keys=True))
    assert args_hash(one) != args_hash(other)


def as_plain(value: Any) -> Any:
    """``value`` with whole floats as integers, the one difference that does not count."""
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


DIFFERENT: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": "1"}),
    ({"a": 1}, {"a": True}),
    ({"a": 0}, {"a": None}),
    ({"a": ""}, {"a": None}),
    ({"a": []}, {"a": {}}),
    ({"a": float("nan")}, {"a": None}),
    ({"a": float("inf")}, {"a": float("-inf")}),
    ({"a": [1, 2]}, {"a": [2, 1]}),
    ({"a": "x"}, {"b": "x"}),
    ({"a": "x"}, {"a": "X"}),
    ({"n": 2**70}, {"n": 2**70 + 1}),
    ({"n": 3.5}, {"n": 3}),
    ({"s": "\ud800"}, {"s": "\ud801"}),
    ({}, []),
    ("", {}),
]


@pytest.mark.parametrize("one, other", DIFFERENT)
def test_values_that_look_alike_stay_apart(one: Any, other: Any) -> None:
    assert args_hash(one) != args_hash(other)


SAME: list[tuple[Any, Any]] = [
    ({"a": 3.0}, {"a": 3}),
    ({"a": -0.0}, {"a": 0}),
    ({"a": "x "}, {"a": "x"}),
    ({"a": (1, 2)}, {"a": [1, 2]}),
    ({1: "x"}, {"1": "x"}),
    ({"a": '{"b": [1, 2.0]}'}, {"a": {"b": [1, 2]}}),
    ({"a": float("nan")}, {"a": float("nan")}),
    ('{"a": NaN}', {"a": float("nan")}),
]


@pytest.mark.parametrize("one, other", SAME)
def test_spellings_of_one_value_hash_alike(one: Any, other: Any) -> None:
    assert args_hash(one) == args_hash(other) is not None


def test_big_integers_keep_every_digit_when_decoded() -> None:
    one, other = "123456789012345678901234567890", "123456789012345678901234567891"
    assert parse_json(one) == int(one)
    assert args_hash(f'{{"id": {one}}}') != args_hash(f'{{"id": {other}}}')


@pytest.mark.parametrize("before", range(13))
def test_a_big_integer_keeps_every_digit_wherever_it_stands(before: int) -> None:
    for digits in (19, 20, 25):
        text = f'[{" " * before}"word", {"9" * digits}, "{"word " * before}"]'
        assert parse_json(text)[1] == int("9" * digits)


@given(st.lists(st.one_of(st.integers(0, 10**25), st.integers(10**16, 10**20), st.text(max_size=20)), max_size=6))
def test_decoded_json_holds_the_numbers_that_were_written(values: list[Any]) -> None:
    assert parse_json(json.dumps(values, ensure_ascii=False)) == values


def test_unknown_arguments_have_no_hash() -> None:
    assert args_hash(None) is None


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 10_000])
def test_what_is_nested_too_deeply_counts_as_unknown(kind: type, depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else [value]
    assert args_hash({"x": value}) is None


@pytest.mark.parametrize("text", ["[" * 10_000, "[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000])
def test_text_that_nests_too_deeply_does_no_harm(text: str) -> None:
    hashed = args_hash({"x": text})
    assert hashed is None or len(hashed) == 64


@pytest.mark.parametrize("depth", [1, 10, MAX_DEPTH - 4])
def test_ordinary_nesting_is_compared(depth: int) -> None:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    assert args_hash({"x": inner}) is not None


foreign = (
    st.binary(max_size=4) | st.complex_numbers() | st.just(...) | st.frozensets(st.integers(), max_size=3) | st.floats()
)
keys = (
    st.text(st.characters(codec=None, exclude_categories=()), max_size=4)
    | st.integers()
    | st.none()
    | st.tuples(st.integers())
    | st.binary(max_size=2)
)


@given(
    st.recursive(
        leaves | foreign,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_python_value_has_a_hash_or_is_unknown(value: Any) -> None:
    hashed = args_hash(value)
    assert hashed is None or len(hashed) == 64
    assert args_hash(value) == hashed


def test_the_hash_does_not_depend_on_the_process() -> None:
    code = "from trajectory_guard.core.fingerprints import args_hash; print(args_hash({'tags': {'a', 'b', 'c', 'd', 'e'}, 'z': 1.0}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_canonical_form_is_compact_sorted_json() -> None:
    assert canonical_bytes({"b": [1.0, " x "], "a": '{"d": 1, "c": null}'}) == b'{"a":{"c":null,"d":1},"b":[1,"x"]}'


def test_results_are_compared_exactly_except_for_errors() -> None:
    assert result_hash("success", "took 3 s") != result_hash("success", "took 4 s")
    assert result_hash("error", "failed after 3 s") == result_hash("error", "failed after 4 s")
    assert result_hash("success", "x") != result_hash("empty", "x")
    assert result_hash("success", None) is None


def test_long_results_differ_by_their_ends_and_their_length() -> None:
    base = "x" * 200_000
    variants = {result_hash("success", text) for text in (base, base + "x", "y" + base[1:], base[1:] + "y")}
    assert len(variants) == 4
