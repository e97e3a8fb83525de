"""Transcripts of hostile length are read in linear time."""

from __future__ import annotations

from time import thread_time

import pytest

from trajectory_guard.transcripts.react import read_react
from trajectory_guard.transcripts.reprs import parse_repr

STEP = "Action: a\nAction Input: b\n"


@pytest.mark.parametrize(
    "text",
    [
        "Observation:\n" + STEP * 7_000,
        STEP + "Observation:" + "\n" * 190_000 + "x",
        (STEP + "Observation: seen\n") * 4_000,
        "Observation:" + ("Action:" + " " * 90 + "\n") * 1_900,
        STEP + "Observation:" + "Tool x\n" * 27_000,
    ],
    ids=["no observation", "blank lines", "steps", "actions without a name", "almost tool lists"],
)
def test_react_is_read_in_linear_time(text: str) -> None:
    started = thread_time()
    read_react(text)
    assert thread_time() - started < 1.0


@pytest.mark.parametrize("text", ["[" + "A(a=1)," * 140_000 + "]", "A(" + "-" * 250_000 + "1)", "<A: '" * 50_000])
def test_reprs_are_read_within_a_second(text: str) -> None:
    started = thread_time()
    parse_repr(text)
    assert thread_time() - started < 1.5


def test_an_observation_ends_at_the_next_thought_and_loses_the_glued_tool_list() -> None:
    text = "Thought: t\n Action: `look`\nAction Input: here\nand there\nObservation: a\n\nb\n\nTool x accepts these inputs: y\nThought: done"
    ((call, answer),) = read_react(text)
    assert (call.name, call.arguments, answer.value) == ("look", "here\nand there", "a\n\nb")
