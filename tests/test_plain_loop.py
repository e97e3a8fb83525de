"""The example of an agent without a framework: nudged once, and stopped if it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_guard import runtime, shared_board, uninstrument

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "plain_loop", raising=False)
    import plain_loop  # type: ignore[import-not-found]

    yield plain_loop
    sys.modules.pop("plain_loop", None)
    uninstrument()


def nudges(messages: list[dict[str, Any]]) -> int:
    return sum("[Trajectory guard]" in one.get("content", "") for one in messages)


def test_a_sensible_model_is_nudged_once_and_answers(example: Any) -> None:
    seen: list[int] = []

    def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append(nudges(messages))
        return dict(example.sensible(messages))

    answer = example.run_agent("one", "How do I return a parcel?", model)
    assert answer.startswith("I found no page")
    assert seen[-1] == 1
    assert len(seen) < 10


def test_a_stubborn_model_is_stopped_and_was_nudged_before(example: Any) -> None:
    seen: list[int] = []

    def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append(nudges(messages))
        return dict(example.stubborn(messages))

    answer = example.run_agent("two", "How do I return a parcel?", model)
    assert answer.startswith("I could not finish this: search(")
    assert 1 <= max(seen) <= 2
    assert len(seen) < example.MAX_TURNS


@pytest.mark.parametrize(("mode", "nudged"), [("nudge", True), ("observe", False)])
def test_the_mode_limits_what_a_loop_is_handed(
    mode: str, nudged: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_MODE", mode)
    example = request.getfixturevalue("example")
    seen: list[int] = []

    def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append(nudges(messages))
        return dict(example.stubborn(messages))

    answer = example.run_agent("three", "How do I return a parcel?", model)
    assert "could not finish" not in answer
    assert len(seen) == example.MAX_TURNS
    assert bool(max(seen)) is nudged
    assert shared_board().read("three").steps == example.MAX_TURNS  # recorded all the same
