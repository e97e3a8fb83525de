"""Type VI: thoughts that are written down one after the other, and nothing else."""

from __future__ import annotations

from itertools import product

import pytest

from tests.core.test_lists_and_limits import nudged, stopped
from tests.helpers import evaluate, record
from trajectory_guard.core.steps import StepRecord

WORDS = product(
    ("I should", "Perhaps I can", "Maybe we need to", "It would be good to"),
    ("check", "reconsider", "compare", "verify"),
    ("the plan", "the question", "the numbers", "all limits"),
)
THOUGHTS = [" ".join(one) for one in WORDS]
COUNTED = [f"Step {at}: let me think about it once more." for at in range(64)]


def think(thought: str, result: str | None = "ok", tool: str = "think") -> StepRecord:
    return record(tool, {"thought": thought}, result)


@pytest.mark.parametrize("tool", ["think", "think_tool", "sequential_thinking", "reflect"])
@pytest.mark.parametrize("thoughts", [THOUGHTS, COUNTED], ids=["other words", "a counter"])
def test_thirty_thoughts_in_a_row_are_nudged_and_then_stopped(thoughts: list[str], tool: str) -> None:
    verdicts = evaluate([think(one, tool=tool) for one in thoughts])
    assert nudged(verdicts) == 29
    assert stopped(verdicts) == 47
    (rule,) = {one.rule for verdict in verdicts for one in verdict.detections}
    assert rule == "only_thoughts"
    assert "30 thoughts in a row were written down" in verdicts[29].reason


def test_a_tool_that_echoes_thoughts_adds_nothing_to_them() -> None:
    assert nudged(evaluate([think(one, one) for one in THOUGHTS])) == 29


def test_thoughts_whose_content_is_not_recorded_count() -> None:
    hidden = [record("think", None, None) for _ in range(64)]
    assert any(found.rule == "only_thoughts" for one in evaluate(hidden) for found in one.detections)


def test_thoughts_between_steps_of_work_are_left_alone() -> None:
    steps = []
    for at, one in enumerate(THOUGHTS):
        steps += [think(one), record("read", {"file": f"part_{at}.py"}, f"class Part{at * 7919 % 997}")]
    assert nudged(evaluate(steps)) is None


def test_twenty_thoughts_before_each_piece_of_work_are_left_alone() -> None:
    steps = []
    for at, one in enumerate(THOUGHTS):
        steps.append(think(one))
        if at % 20 == 19:
            steps.append(record("write", {"file": f"part_{at}.md", "text": one * 3}, f"wrote part_{at}.md"))
    assert nudged(evaluate(steps)) is None


def test_a_tool_that_answers_a_thought_with_something_new_does_work() -> None:
    steps = [
        think(one, f"The answer to this is {at * 7919 % 997} of {at * 31 % 113}.") for at, one in enumerate(THOUGHTS)
    ]
    assert nudged(evaluate(steps)) is None


@pytest.mark.parametrize("tool", ["plan_route", "reason_about_case", "think_of_names"])
def test_tools_that_name_an_object_do_work(tool: str) -> None:
    steps = [record(tool, {"stop": f"{one} {at * 7919 % 997}"}, "ok") for at, one in enumerate(THOUGHTS)]
    assert not any(found.rule == "only_thoughts" for one in evaluate(steps) for found in one.detections)
