"""The calls found do not depend on the order in which spans arrive, nor on how requests cut them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import capture, fewer_examples
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.transcripts.assemble import extract_steps

NAMES = (
    "dual-openllmetry-openinference__stategraph_sync",
    "langfuse-langchain__two_turns",
    "langsmith-langchain__handoff",
    "llamaindex-traceloop__single",
    "mcp-none__calls",
    "openinference-langchain__interrupt_in_tool",
    "openllmetry-langchain__send_fanout",
    "pydantic-ai-native5__main",
)
EXPECTED = {name: extract_steps(capture(name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@fewer_examples(5)
def test_any_order_gives_the_same_steps(name: str, data: Any) -> None:
    spans = data.draw(st.permutations(capture(name)))
    assert extract_steps(spans) == EXPECTED[name]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@fewer_examples(5)
def test_any_split_into_requests_gives_the_same_steps(name: str, data: Any) -> None:
    spans = capture(name)
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(spans), max_size=len(spans)))
    requests: list[list[SpanView]] = [[], [], [], []]
    for span, place in zip(spans, places, strict=True):
        requests[place].append(span)
    assert extract_steps(chain.from_iterable(requests)) == EXPECTED[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_redelivered_capture_adds_nothing(name: str) -> None:
    assert extract_steps([*capture(name), *capture(name)]) == EXPECTED[name]


def test_the_captures_hold_calls_at_all() -> None:
    assert all(EXPECTED.values())
