"""The comparator as a whole: its promises on any input, and its accuracy on labelled pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.core.similarity import Comparison, NormalForm, Relation, compare, normalize

DATA = Path(__file__).parents[2] / "data"
WORDS = [
    "the",
    "a",
    "not",
    "without",
    "open",
    "close",
    "create",
    "file",
    "user",
    "5",
    "12",
    "Paris",
    "src/a.py",
    "from",
    "to",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
KEYS = st.sampled_from(["query", "sql", "command", "path", "url", "expression", "selector", "content", "timeout", "x"])
ARGS = st.dictionaries(KEYS, VALUES, max_size=5)


def relation(a: Any, b: Any, tool: str = "t") -> Relation:
    return compare(normalize(tool, a), normalize(tool, b)).relation


@given(ARGS, ARGS)
def test_the_relation_is_symmetric(a: Any, b: Any) -> None:
    assert relation(a, b) == relation(b, a)


@given(KEYS, TEXTS, TEXTS)
def test_the_relation_of_texts_is_symmetric(key: str, a: str, b: str) -> None:
    assert relation({key: a}, {key: b}) == relation({key: b}, {key: a})


def test_a_word_with_two_directions_is_evaluated_alike_from_both_sides() -> None:
    a, b = {"q": "from file to file open"}, {"q": "file from file open to"}
    assert relation(a, b) == relation(b, a)


@pytest.mark.parametrize("text", ["?! ...", "\u2026", "(!)", "\u0301 ?"])
def test_a_text_without_a_word_is_compared(text: str) -> None:
    assert relation({"q": text}, {"q": "opening hours"}) is Relation.DIFFERENT
    assert relation({"q": text}, {"q": text + " "}) is Relation.SAME


def test_a_model_is_given_single_words_too() -> None:
    assert normalize("company_lookup", {"name": "IBM"}).text == "IBM"


@given(ARGS)
def test_key_order_does_not_matter(args: dict[str, Any]) -> None:
    shuffled = dict(reversed(args.items()))
    assert normalize("t", args) == normalize("t", shuffled)
    assert normalize("t", args).digest == normalize("t", shuffled).digest


@pytest.mark.parametrize("count", [100, 5_000])
def test_the_order_of_many_keys_does_not_matter_but_their_values_do(count: int) -> None:
    args = {f"key{number}": number for number in range(count)}
    assert normalize("t", args) == normalize("t", dict(reversed(args.items())))
    assert relation(args, args | {"key99": -1}) is Relation.DIFFERENT


@given(VALUES)
def test_a_call_is_the_same_as_itself(args: Any) -> None:
    assert relation(args, args) is Relation.SAME


@given(VALUES, VALUES)
def test_equal_digests_mean_the_same(a: Any, b: Any) -> None:
    left, right = normalize("t", a), normalize("t", b)
    if left.digest == right.digest:
        assert compare(left, right).relation is Relation.SAME


@given(VALUES)
def test_the_plain_form_survives_json(args: Any) -> None:
    form = normalize("t", args)
    again = NormalForm.from_plain(json.loads(json.dumps(form.to_plain())))
    assert again == form
    assert hash(again) == hash(form)
    assert again.digest == form.digest
    assert again.text == form.text


def _nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = {"a": value} if level % 2 else [value, 1]
    return value


HOSTILE = {
    "deep": _nested(5_000),
    "nan": {"x": float("nan"), "y": float("inf")},
    "huge integer": {"x": 10**5_000},
    "lone surrogate": {"query": "a \ud800 b", "\udfff": "\ud800"},
    "one megabyte": {"query": "word " * 200_000},
    "many keys": {str(number): number for number in range(5_000)},
    "non-text keys": {1: 2, None: 3, (1, 2): 4},
    "foreign object": {"x": object},
    "deep JSON text": {"x": "[" * 3_000 + "]" * 3_000},
    "open quotes": {"command": "'" * 9_000, "sql": "'" * 9_000, "expression": "(" * 300, "selector": "[" * 9_000},
    "bad URL": {"url": "http://[::1"},
    "digits": {"q": "\u0663 \u00b2 \u2075", "date": "\u0662024-01-01"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_never_raises_and_stays_small(name: str) -> None:
    args = HOSTILE[name]
    form = normalize("t", args)
    assert compare(form, normalize("t", args)).relation is Relation.SAME
    assert len(json.dumps(form.to_plain())) < 20_000
    compare(form, normalize("t", {"query": "something else"}))


@pytest.mark.parametrize("args", [None, 3, "plain text", ["a", "b"], {}, True])
def test_any_json_value_is_taken(args: Any) -> None:
    assert relation(args, args) is Relation.SAME
    assert relation(args, {"query": "other"}) is Relation.DIFFERENT


def test_long_texts_are_compared_exactly() -> None:
    long = "alpha beta gamma " * 300
    assert relation({"q": long}, {"q": long + " "}) is Relation.SAME
    assert relation({"q": long}, {"q": long + "delta"}) is Relation.DIFFERENT
    assert sum(len(leaf.value) for leaf in normalize("t", {"q": long}).leaves) <= 2_048


def test_another_tool_is_another_call() -> None:
    assert compare(normalize("read", {}), normalize("write", {})).relation is Relation.DIFFERENT
    assert compare(normalize("Read", {}), normalize("read", {})).relation is Relation.SAME


def test_the_text_is_the_natural_language_alone() -> None:
    form = normalize("t", {"query": "who founded Bosch", "limit": 5, "path": "a/b.py", "thought": "let me look"})
    assert form.text == "who founded Bosch"
    assert normalize("t", {"limit": 5}).text == ""


def test_a_relation_prints_as_its_value() -> None:
    assert [str(relation) for relation in Relation] == ["same", "different", "maybe"]
    assert isinstance(compare(normalize("t", 1), normalize("t", 2)), Comparison)


@pytest.mark.parametrize(
    "plain", [None, [], [9, "t", []], [1, "t", [["a"]]], [1, "t", [["a", "x", 3]]], [1, 2, []], "abc"]
)
def test_a_bad_plain_form_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match="normal form"):
        NormalForm.from_plain(plain)


@pytest.mark.parametrize(
    ("file", "recall"),
    [("similar_calls.jsonl", 0.88), ("similar_calls_own.jsonl", 0.94)],
)
def test_accuracy_on_labelled_pairs(file: str, recall: float) -> None:
    rows = [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["cls"] != "poll"]
    found = [(row, relation(row["a_args"], row["b_args"], row["tool"])) for row in rows]
    assert [row["id"] for row, verdict in found if verdict is Relation.SAME and row["label"] == 0] == []
    repeats = [verdict for row, verdict in found if row["label"] == 1]
    assert sum(verdict is Relation.SAME for verdict in repeats) / len(repeats) >= recall
