"""The work behind a step, counted in calls: unlike times, they are the same on a busy machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.bench import shapes
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.masking import mask_noise
from trajectory_guard.core.steps import StepRecord


def calls_of(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls, those in C included."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_of_a_step(step_at: Callable[[int], StepRecord], length: int = 100, steps: int = 32) -> float:
    """Calls behind a step, on an average over some steps after ``length`` of them."""
    engine = Engine()
    state = engine.new_state("t")
    for index in range(length):
        engine.observe(state, step_at(index))
    records = [step_at(length + index) for index in range(steps)]

    def work() -> None:
        for record in records:
            engine.observe(state, record)

    return calls_of(work) / steps


@pytest.mark.parametrize(("step_at", "most"), [(shapes.healthy, 200), (shapes.repeated, 330), (shapes.reworded, 1_850)])
def test_a_step_costs_no_more_calls_than_it_should(step_at: Callable[[int], StepRecord], most: float) -> None:
    assert calls_of_a_step(step_at) <= most


def test_reading_a_result_without_long_numbers_does_not_search_it_for_them() -> None:
    text = shapes.answer(1_234)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajectory_guard.core.fingerprints._LONG_INTEGER", None)  # a search would fail
        assert parse_json(text)["customer"] == "customer 1234"


def test_members_of_json_are_not_looked_at_one_by_one_before_masking() -> None:
    text = "".join(map(shapes.answer, range(10)))
    assert calls_of(lambda: mask_noise(text)) <= 100


def test_two_words_before_a_number_are_still_looked_at() -> None:
    for name in ("attempt 7", "Request id: 7", "pid=(7", "session no. 7", "seed #.7"):
        assert mask_noise(f"the build of {name} failed") == "the build of <count> failed"
    for name in ("total 7", '"pid": 7', "attempt, 7"):
        assert mask_noise(f"the build of {name} failed") == f"the build of {name} failed"
