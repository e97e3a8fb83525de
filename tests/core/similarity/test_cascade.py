from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_model import first_word
from trajectory_guard.core.similarity.cascade import MAX_TEXT_CHARS, Settler, VectorCache, focus, text_key, unit

LINES = st.lists(st.sampled_from(["subject", "hello there", "bye", "one two"]), max_size=4).map("\n".join)
TEXTS = st.one_of(st.text(max_size=40), LINES, st.text(alphabet="ab ", min_size=400, max_size=900))


def test_lines_in_common_are_left_out() -> None:
    assert focus("Report\nplease review", "Report\nsee attached") == ("please review", "see attached")


def test_a_repeated_line_is_left_out_as_often_as_both_have_it() -> None:
    assert focus("x\nx\na", "x\nb") == ("x\na", "b")


def test_a_long_common_beginning_does_not_hide_the_difference() -> None:
    a, b = ("word " * 400 + end for end in ("start the job now", "leave everything alone"))
    left, right = focus(a, b)
    assert left.endswith("start the job now")
    assert right.endswith("leave everything alone")
    assert max(len(left), len(right)) <= MAX_TEXT_CHARS


@given(TEXTS, TEXTS)
def test_focus_is_symmetric_and_bounded(a: str, b: str) -> None:
    left, right = focus(a, b)
    assert focus(b, a) == (right, left)
    assert max(len(left), len(right)) <= MAX_TEXT_CHARS


def test_unit_vectors_are_float32_of_length_one() -> None:
    vector = unit([3.0, 4.0])
    assert vector.dtype == import_module("numpy").float32
    assert vector.tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("vector", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [], [[1.0, 2.0]]])
def test_unusable_vectors_are_refused(vector: list[float]) -> None:
    with pytest.raises(ValueError, match="not a usable embedding"):
        unit(vector)


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache = VectorCache(2)
    keys = [text_key(text) for text in "abc"]
    cache.put(keys[0], "a")
    cache.put(keys[1], "b")
    assert cache.get(keys[0]) == "a"
    cache.put(keys[2], "c")
    assert [key in cache for key in keys] == [True, False, True]
    assert len(cache) == 2


def test_a_cache_too_small_for_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="limit: 1"):
        VectorCache(1)


def test_settles_by_the_threshold() -> None:
    settler = Settler(first_word, 0.8)
    assert settler.settle("refund for a flight", "refund when flights fail") is True
    assert settler.settle("refund for a flight", "weather at the coast") is False


@pytest.mark.parametrize(("a", "b"), [("", ""), ("a", ""), ("same\ntext", "same\ntext"), ("same", "same\nand more")])
def test_nothing_to_compare_is_not_known(a: str, b: str) -> None:
    assert Settler(first_word, 0.8).settle(a, b) is None


def test_each_text_is_embedded_once() -> None:
    asked: list[str] = []

    def embed(text: str) -> list[float]:
        asked.append(text)
        return first_word(text)

    settler = Settler(embed, 0.8)
    for _ in range(3):
        settler.settle("one a", "two b")
        settler.settle("two b", "three c")
    assert asked == ["one a", "two b", "three c"]


@pytest.mark.parametrize("tau", [0.0, -0.1, 1.01, float("nan")])
def test_a_threshold_out_of_range_is_refused(tau: float) -> None:
    with pytest.raises(ValueError, match="tau"):
        Settler(first_word, tau)
