"""Arguments that are kept for a replay: as long as they would be when written out, not as long as their JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import record
from trajectory_guard.core.calls import truncate_for_replay

MOST_CHARS = 2_048
texts = st.one_of(st.text(max_size=40), st.text(st.sampled_from("\x00\x7f\x80\u2028\U0001f600'\"\\ é"), max_size=600))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=40) | st.dictionaries(texts, inner, max_size=6), max_leaves=40
)


@given(st.dictionaries(texts, trees, max_size=6))
def test_arguments_are_kept_if_they_are_short_when_written_out(args: dict[str, Any]) -> None:
    kept = truncate_for_replay(record(args=args)).args
    assert kept is args or kept == {}
    if len(str(args)) > MOST_CHARS:
        assert kept == {}


def test_usual_arguments_are_kept_and_long_ones_are_not() -> None:
    for args, keeps in (({"query": "late orders", "page": 3}, True), ({"text": "\x7f" * 510}, False)):
        assert bool(truncate_for_replay(record(args=args)).args) == keeps
    for chars, keeps in ((2_000, True), (2_100, False)):
        assert bool(truncate_for_replay(record(args={"text": "a" * chars})).args) == keeps
