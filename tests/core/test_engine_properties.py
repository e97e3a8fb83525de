"""Properties of the engine on random trajectories: a failing step leaves no trace, and everything said is true."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_saved_state import build, one_step
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import (
    REGISTRY,
    TYPE_IV,
    DetectionResult,
    Detector,
    detector_of,
    register,
    unregister,
)
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.interventions import args_excerpt, clip
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import StepRecord

plans = st.lists(one_step, min_size=1, max_size=10)


# --- a step that fails ---------------------------------------------------------------------------------------


class Words(Detector):
    """A detector of the user's own, with its memory in ``__dict__``."""

    name, loop_type, weight = "words", TYPE_IV, 1.5

    def __init__(self) -> None:
        self.tools: tuple[str, ...] = ()
        self.seen = 0

    def update(self, seen: Observation) -> DetectionResult | None:
        self.seen += 1
        self.tools = (*self.tools[-5:], seen.tool)
        self.last = seen.index  # an attribute that a new detector does not have
        return self.found(seen, 0.5, "words", count=self.seen) if self.seen % 7 == 0 else None

    def dump(self) -> Any:
        return [self.tools, self.seen, getattr(self, "last", None)] if self.seen else None

    def load(self, data: Any) -> None:
        tools, self.seen, self.last = data
        self.tools = tuple(tools)


class Saboteur(Detector):
    """The last detector of each run: raises after all others have taken the step in, when it is told to."""

    name, loop_type, shared = "saboteur", "TYPE_VII_SABOTAGE", True
    armed = False

    def update(self, seen: Observation) -> None:
        if Saboteur.armed:
            raise ZeroDivisionError("sabotage")


@contextmanager
def registered() -> Iterator[None]:
    register(Words)
    register(Saboteur)
    try:
        yield
    finally:
        Saboteur.armed = False
        unregister(Words.name)
        unregister(Saboteur.name)


@given(plan=plans, seed=st.integers(0, 1_000))
@settings(max_examples=60)
def test_a_step_that_fails_leaves_the_state_as_it_was(plan: list[dict[str, Any]], seed: int) -> None:
    chance = random.Random(seed)
    with registered():
        engine = Engine(GuardConfig(history_steps=12))
        state, undisturbed = engine.new_state("t"), engine.new_state("t")
        for step in build(plan):
            if chance.random() < 0.5:
                before = state.to_bytes()
                counts = step.outcome_type != "interrupted" and engine.load_state(before) is not None
                Saboteur.armed = True
                try:
                    engine.observe(state, step)
                    failed = False
                except ZeroDivisionError:
                    failed = True
                finally:
                    Saboteur.armed = False
                assert state.to_bytes() == before
                assert counts or not failed
            assert engine.observe(state, step) == engine.observe(undisturbed, step)
        assert state.to_bytes() == undisturbed.to_bytes()


@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if not kind.shared])
def test_the_state_is_kept_whichever_detector_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    state = engine.new_state("t")
    plan = [
        {
            "tool": tool, "args": {"q": "late orders"}, "outcome": outcome, "agent": None, "gap": 1.0, "dur": 0.1,
            "batch": None, "turn": None, "usage": None, "thought": "Let me look again.", "repeat": 3, "again": False,
            "run": None, "trace_id": None, "stated": False,
        }
        for tool in ("search", "submit", "transfer_to_sales")
        for outcome in (("error", "KeyError: 'a'"), ("empty", ""))
    ]  # fmt: skip
    *steps, last = build(plan)
    for step in steps:
        engine.observe(state, step)
    before = state.to_bytes()
    update = REGISTRY[name].update

    def fails(self: Detector, seen: Observation) -> None:
        update(self, seen)
        raise ZeroDivisionError

    monkeypatch.setattr(REGISTRY[name], "update", fails)
    with pytest.raises(ZeroDivisionError):
        engine.observe(state, last)
    assert state.to_bytes() == before


def test_a_detector_of_the_users_own_is_put_back_too() -> None:
    with registered():
        engine = Engine()
        state = engine.new_state("t")
        Saboteur.armed = True
        with pytest.raises(ZeroDivisionError):
            engine.observe(state, StepRecord("1", "t", "search"))
        Saboteur.armed = False
        engine.observe(state, StepRecord("2", "t", "search"))
        assert state.run is not None
        (words,) = [one for one in state.run.detectors if isinstance(one, Words)]
        assert (words.seen, words.last) == (1, 0)


@given(plan=plans)
@settings(max_examples=40)
def test_saving_after_every_step_keeps_detectors_of_the_users_own(plan: list[dict[str, Any]]) -> None:
    with registered():
        engine = Engine(GuardConfig(history_steps=12))
        state, restored = engine.new_state("t"), engine.new_state("t")
        for step in build(plan):
            assert engine.observe(restored, step) == engine.observe(state, step)
            restored = engine.load_state(restored.to_bytes())


# --- what is said --------------------------------------------------------------------------------------------

_QUOTED = re.compile(r'"([^"]*)"')
_COUNTS = (
    re.compile(r"was called (\d+) times"),
    re.compile(r"was proposed (\d+) times"),
    re.compile(r"have repeated (\d+) times"),
    re.compile(r"gone round (\d+) times"),
    re.compile(r"declared done (\d+) times"),
    re.compile(r"was written (\d+) times"),
    re.compile(r"attempt number (\d+)"),
    re.compile(r"^(\d+) different calls in a row"),
    re.compile(r"^(\d+) of the last calls"),
)


def sayings(steps: list[StepRecord], config: GuardConfig) -> Iterator[tuple[Verdict, list[StepRecord]]]:
    """Verdicts with a finding, each with the steps that counted so far."""
    engine = Engine(config)
    state = engine.new_state("t")
    counted: list[StepRecord] = []
    for step in steps:
        verdict = engine.observe(state, step)
        if verdict is not None:
            counted.append(step)
            if verdict.detections:
                yield verdict, list(counted)


def batches(steps: list[StepRecord], places: tuple[int, ...]) -> int:
    """At least so many model turns the steps at ``places`` belong to."""
    labels = [steps[at].batch for at in places]
    return sum(label is None or label != before for label, before in zip(labels, [None, *labels], strict=False))


def shown(step: StepRecord) -> set[str]:
    """What a text may quote of a step."""
    return {clip(step.result or "")}


@given(plan=plans)
@settings(max_examples=150)
def test_counts_tools_and_quotations_are_true_of_the_steps_that_the_finding_names(plan: list[dict[str, Any]]) -> None:
    for verdict, steps in sayings(build(plan), GuardConfig()):
        main, current = verdict.detections[0], steps[-1]
        assert verdict.nudge is None or verdict.reason in verdict.nudge
        told = [int(count) for pattern in _COUNTS for count in pattern.findall(verdict.reason)]
        assert all(count == main.count for count in told)
        own = [one for one in steps if True]
        assert verdict.first_step <= main.first_step <= verdict.step_index
        for at in main.steps:
            assert 0 <= at <= verdict.step_index
        if main.rule in ("same_call_same_result", "denied_again"):
            named = [own[at] for at in main.steps]
            assert {one.tool_name.casefold() for one in named} == {current.tool_name.casefold()}
            assert {one.tool_args_hash for one in named} == {current.tool_args_hash}
        said = verdict.reason
        for name in main.names:
            assert name.casefold() in {one.tool_name.casefold() for one in steps} | {one.agent_id for one in steps}
        quoted = _QUOTED.findall(said.replace(args_excerpt(current.args), ""))
        answers = {clip(one.result or "") for one in steps}
        attempts = set(main.attempts)
        for text in quoted:
            assert text in answers or text in attempts or any(text in answer for answer in answers)
