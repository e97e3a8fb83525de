"""The work behind a step, counted in calls: unlike times, they are the same on a busy machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from tests.bench import shapes
from tests.bench.gate import Bench
from tests.helpers import profiled
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.content.masking import _NOISE, mask_noise
from trajectory_guard.core.detectors.entry_lists import _ADDRESS, address_in
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.otel.processor import TrajectoryGuardProcessor


def calls_of(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls, those in C included."""
    return profiled(work, lambda frame, event: event in ("call", "c_call"))


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


@pytest.mark.parametrize(("step_at", "most"), [(shapes.healthy, 337), (shapes.repeated, 490), (shapes.reworded, 1_217)])
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


def test_requests_without_an_address_are_not_searched_for_one() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajectory_guard.core.detectors.entry_lists._ADDRESS", None)  # a search would fail
        assert address_in("python manage.py test shop.orders --tag slow") == ""
        assert address_in("ping -c 1 10.0.0.7") == "10.0.0.7"


@given(st.text(alphabet="a1.@:/-_é٣ \n", max_size=40))
def test_addresses_are_those_of_the_full_search(text: str) -> None:
    found = _ADDRESS.search(text)
    assert address_in(text) == ("" if found is None else found[0])


def test_a_result_that_changed_is_searched_for_noise_once() -> None:
    class Noise:
        searched: ClassVar[list[str]] = []

        finditer = _NOISE.finditer

        def sub(self, replacement: Callable[[Any], str], text: str) -> str:
            self.searched.append(text)
            return _NOISE.sub(replacement, text)

    engine = Engine()
    state = engine.new_state("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajectory_guard.core.content.masking._NOISE", Noise())
        for index in range(4):
            text = f"The export of the orders is under way since {index + 3}s, shard {index} of 9 is written."
            engine.observe(state, shapes.step(index, number=0, result=text))
    assert Noise.searched
    assert len(Noise.searched) == len(set(Noise.searched))


def test_two_words_before_a_number_are_still_looked_at() -> None:
    for name in ("attempt 7", "Request id: 7", "pid=(7", "session no. 7", "seed #.7"):
        assert mask_noise(f"the build of {name} failed") == "the build of <count> failed"
    for name in ("total 7", '"pid": 7', "attempt, 7"):
        assert mask_noise(f"the build of {name} failed") == f"the build of {name} failed"


# --- from span to step -----------------------------------------------------------------------------------------


class SpanRun:
    """Guarded spans of one shape in one conversation, below live spans."""

    def __init__(self, shape: Callable[[str, int], shapes.SpanShape]) -> None:
        provider = TracerProvider()
        self.guard = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig()), tracer_provider=TracerProvider())
        provider.add_span_processor(self.guard)
        self.tracer, self.shape, self.context, self.number = provider.get_tracer("app"), shape, Context(), 0
        for name, attributes in shape("c", 0).above:
            span = self.tracer.start_span(name, self.context, attributes=dict(attributes))
            self.context = trace.set_span_in_context(span, self.context)

    def spans(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            one = self.shape("c", self.number)
            self.tracer.start_span(one.name, self.context, attributes=dict(one.attributes)).end()


def guard_calls(run: SpanRun, count: int = 20) -> tuple[float, set[str]]:
    """Calls of the guard's own code for a span, C functions included and the engine left out, and its files."""
    calls, inside = 0, 0
    files: set[str] = set()
    evaluate = Engine.observe.__code__
    entrances = (TrajectoryGuardProcessor.on_start.__code__, TrajectoryGuardProcessor.on_end.__code__)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls, inside
        code = frame.f_code
        if code is evaluate:
            inside += {"call": -1_000, "return": 1_000}.get(event, 0)
        elif code in entrances:
            inside += {"call": 1, "return": -1}.get(event, 0)
        if inside > 0 and event in ("call", "c_call"):
            calls += 1
            files.add(code.co_filename)

    run.spans(40)
    sys.setprofile(profile)
    try:
        run.spans(count)
    finally:
        sys.setprofile(None)
    return calls / count, {name for name in files if f"{os.sep}trajectory_guard{os.sep}" in name}


@pytest.mark.parametrize(
    ("shape", "most"),
    [(shapes.semconv, 161), (shapes.openllmetry, 214), (shapes.openinference, 224), (shapes.large, 166)],
)
def test_a_tool_span_is_read_with_few_calls_across_few_files(
    shape: Callable[[str, int], shapes.SpanShape], most: float
) -> None:
    calls, files = guard_calls(SpanRun(shape))
    assert calls <= most
    outside = {name for name in files if f"{os.sep}core{os.sep}" not in name}
    assert len(outside) <= 15, sorted(outside)


def test_a_span_that_is_none_of_the_guards_costs_a_few_look_ups() -> None:
    calls, files = guard_calls(SpanRun(shapes.http))
    assert calls <= 7
    assert len(files) <= 1


def test_a_model_span_without_content_is_not_searched_for_any() -> None:
    calls, _ = guard_calls(SpanRun(shapes.chat))
    assert calls <= 109


# --- the gate --------------------------------------------------------------------------------------------------


@pytest.mark.newest
def test_a_gate_walks_over_its_messages_a_few_times() -> None:
    bench = Bench(spans=True)
    turn, *others = bench.turns()
    for one in others:
        bench.call(one)
    assert calls_of(lambda: bench.call(turn)) <= 837
