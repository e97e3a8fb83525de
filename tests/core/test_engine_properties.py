"""Properties of the engine on random trajectories: a failing step leaves no trace, and everything said is true."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.test_saved_state import build, one_step
from tests.helpers import REPLACES_CODE, fewer_examples, record
from trajectory_guard.core import visits
from trajectory_guard.core.detectors import (
    REGISTRY,
    TYPE_IV,
    DetectionResult,
    Detector,
    Stagnation,
    register,
    unregister,
)
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.explain.interventions import args_excerpt
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import Certainty, StepRecord
from trajectory_guard.core.text import clip
from trajectory_guard.core.tools import is_handoff

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


class RelaySaboteur(Detector):
    """The last detector of the sequence of agents: as ``Saboteur``, when a visit has ended."""

    name, loop_type, shared = "relay_saboteur", "TYPE_VII_SABOTAGE", True
    armed = False

    def update(self, seen: Observation) -> None:
        if RelaySaboteur.armed:
            raise ZeroDivisionError("sabotage")


@contextmanager
def registered() -> Iterator[None]:
    register(Words)
    register(Saboteur)
    of_relays = visits.relay_detectors
    visits.relay_detectors = lambda: (*of_relays(), RelaySaboteur())
    try:
        yield
    finally:
        visits.relay_detectors = of_relays
        Saboteur.armed = RelaySaboteur.armed = False
        unregister(Words.name)
        unregister(Saboteur.name)


def copies_in(state: TrajectoryState) -> int:
    """Steps that no detector is asked about, since their batch held an equal one."""
    return sum(run.history.copies_after(0) for run in state.runs.values())


@given(plan=plans, seed=st.integers(0, 1_000))
@pytest.mark.parametrize("saboteur", [Saboteur, RelaySaboteur])
def test_a_step_that_fails_leaves_the_state_as_it_was(
    saboteur: type[Saboteur] | type[RelaySaboteur], plan: list[dict[str, Any]], seed: int
) -> None:
    chance = random.Random(seed)
    with registered():
        engine = Engine(EngineSettings(history_steps=12))
        state, undisturbed = engine.new_state("t"), engine.new_state("t")
        for step in build(plan):
            if chance.random() < 0.5:
                before, copied = state.to_bytes(), copies_in(state)
                counts = step.outcome_type != "interrupted" and engine.load_state(before) is not None
                saboteur.armed = True
                try:
                    disturbed = engine.observe(state, step)
                    failed = False
                except ZeroDivisionError:
                    failed = True
                finally:
                    saboteur.armed = False
                if failed or disturbed is None:
                    assert state.to_bytes() == before
                    assert counts or not failed
                else:  # no visit ended with this step, or its batch held the call already: it has counted
                    assert saboteur is RelaySaboteur or copies_in(state) > copied
                    assert engine.observe(undisturbed, step) == disturbed
                    continue
            assert engine.observe(state, step) == engine.observe(undisturbed, step)
        assert state.to_bytes() == undisturbed.to_bytes()


@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_a_reported_finding_that_fails_leaves_the_state_as_it_was(earlier: int) -> None:
    """The nudge that it would have made due is due at the next one, and not swallowed."""
    engine = Engine()
    state, undisturbed = engine.new_state("t"), engine.new_state("t")
    found = DetectionResult("TYPE_VI_MONOLOGUE", 1.0, Stagnation.rules[0], Certainty.LIKELY, 4)
    measured = {"signal_values": [0.1, 0.05], "threshold": 0.2}
    for at in range(earlier):
        step = record("write", {"at": at}, f"chapter {at}", step_id=f"{at:016x}", run="stagnation:write", t=float(at))
        assert engine.report(state, step, None, {}) == engine.report(undisturbed, step, None, {})
    before = state.to_bytes()
    step = record("write", {"at": 9}, "chapter 9", step_id=f"{9:016x}", run="stagnation:write", t=9.0)
    with pytest.raises(KeyError):
        engine.report(state, step, found, {"signal_values": [0.1]})
    assert state.to_bytes() == before
    verdict = engine.report(state, step, found, measured)
    assert verdict == engine.report(undisturbed, step, found, measured)
    assert verdict.nudge is not None
    assert state.to_bytes() == undisturbed.to_bytes()


@REPLACES_CODE
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
        for outcome in (("empty", ""), ("error", "KeyError: 'a'"))
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
@fewer_examples(2)
def test_saving_after_every_step_keeps_detectors_of_the_users_own(plan: list[dict[str, Any]]) -> None:
    with registered():
        engine = Engine(EngineSettings(history_steps=12))
        state, restored = engine.new_state("t"), engine.new_state("t")
        for step in build(plan):
            assert engine.observe(restored, step) == engine.observe(state, step)
            restored = engine.load_state(restored.to_bytes())


# --- what is said --------------------------------------------------------------------------------------------

PAGE = "Cart: 1 item. Size not selected. Please choose a size to continue."
QUOTED = re.compile(r'"([^"]*)"')
COUNT = re.compile(
    r"(?:was (?:called|proposed)|have repeated|gone round|declared done) (?:at least )?(\d+) times"
    r"|^(?:At least )?(\d+) (?:different calls|of the last)|attempt number (\d+)"
    r"|^(?:The|At least the) last (\d+) calls (?:led|failed)"
)
NOT_NOW = ("denied", "not now")
OF_WHATEVER_CAME = {"known_lines", "only_failures", "recurring_failure", "standstill"}
OF_ONE_CALL = ("same_call_same_result", "recurring_result")
loops = st.fixed_dictionaries(
    {
        "tools": st.lists(
            st.sampled_from(["search", "read", "submit", "click", "transfer_to_sales", "transfer_to_support"]),
            min_size=1,
            max_size=7,
        ),
        "args": st.sampled_from(["same", "numbered", "each"]),
        "outcome": st.sampled_from(
            [("success", PAGE), ("success", "noted"), ("empty", ""), ("error", "KeyError: 'a'"), ("denied", "not now"),
             ("error", "503 unavailable"), ("success", "page {n} of a long, long report about nothing at all")]
        ),
        "repeat": st.integers(1, 8),
        "thought": st.sampled_from([None, "Let me look again at the orders."]),
    }
)  # fmt: skip


def unfold(plan: list[dict[str, Any]]) -> list[StepRecord]:
    """Steps of loops: some tools in turn, with equal or changing arguments, and one kind of result."""
    steps: list[StepRecord] = []
    for loop in plan:
        for _ in range(loop["repeat"]):
            for at, tool in enumerate(loop["tools"]):
                args = {"same": {"q": "hours"}, "numbered": {"q": f"part {at}"}, "each": {"n": len(steps)}}[
                    loop["args"]
                ]
                outcome, result = loop["outcome"]
                steps.append(record(tool, args, result.format(n=at), outcome, thought=loop["thought"]))
    return steps


def true_count(found: DetectionResult, steps: list[StepRecord]) -> int:
    """How often it was, counted from the steps."""
    newest = steps[-1]
    if found.rule in ("same_call_same_result", "denied_again"):
        same = [
            one
            for one in steps
            if (one.tool_name, one.args, one.result) == (newest.tool_name, newest.args, newest.result)
        ]
        return len(same)
    if found.rule in ("same_state", "same_effect"):
        series = list(itertools.takewhile(lambda one: one.result == newest.result, reversed(steps)))
        return len({(one.tool_name, one.tool_args_hash) for one in series})
    if found.rule == "same_answer":  # of one tool in a row; the answers differ in what they quote of the request
        series = list(itertools.takewhile(lambda one: one.tool_name == newest.tool_name, reversed(steps)))
        return len({one.tool_args_hash for one in series})
    if found.rule == "claims_done":
        return sum(one.tool_name == "submit" for one in steps)
    if found.rule in ("only_thoughts", "only_plans"):
        return len(list(itertools.takewhile(lambda one: one.tool_name == newest.tool_name, reversed(steps))))
    if found.rule == "same_message":
        return [one.thought for one in steps if one.thought][-10:].count(newest.thought)
    if found.rule == "cycle":
        lap, laps = [(one.tool_name, one.args, one.result) for one in steps[-found.period :]], 0
        calls = [(one.tool_name, one.args, one.result) for one in steps]
        while calls and calls[-found.period :] == lap[-len(calls) :]:
            laps += len(calls) >= found.period
            calls = calls[: -found.period]
        assert found.names == tuple(one.tool_name for one in steps[-found.period :])
        return laps
    return len(found.steps)


def lap(*tools: str, outcome: tuple[str, str], args: str = "same", repeat: int = 1) -> dict[str, Any]:
    return {"tools": tools, "args": args, "outcome": outcome, "repeat": repeat, "thought": None}


# Found: a call that was allowed once in between was said to be refused each time; a hand-over that comes back in a lap
# of six calls counted as a seventh.
@example(
    plan=[lap("search", outcome=one) for one in (NOT_NOW, ("success", PAGE))]
    + [lap("search", outcome=NOT_NOW, repeat=2)]
)
@example(
    plan=[
        lap("transfer_to_sales", outcome=("success", "noted")),
        lap(*["search"] * 5, "transfer_to_sales", args="numbered", outcome=("success", PAGE), repeat=3),
    ]
)
@given(plan=st.lists(loops, min_size=1, max_size=3))
def test_counts_tools_and_quotations_are_true_of_the_steps_that_the_finding_names(plan: list[dict[str, Any]]) -> None:
    engine = Engine()
    state = engine.new_state("t")
    steps: list[StepRecord] = []
    for step in unfold(plan):
        steps.append(step)
        verdict = engine.observe(state, step)
        assert verdict is not None
        if not verdict.detections:
            continue
        found, said = verdict.detections[0], verdict.reason
        assert verdict.nudge is None or said in verdict.nudge
        assert verdict.first_step <= found.first_step <= verdict.step_index
        if found.rule in OF_WHATEVER_CAME:  # they name a number of turns, and no call or result of them
            assert str(found.count) in said
            assert len(found.steps) <= found.count <= len(steps)
            continue
        (reported,) = [int("".join(groups)) for groups in COUNT.findall(said)]
        if len(steps) > EngineSettings().history_steps:
            if found.rule in OF_ONE_CALL:  # a call that has left the memory is counted anew when it comes back
                true = len([one for one in steps if (one.tool_name, one.args) == (step.tool_name, step.args)])
                assert reported == true or (found.at_least and reported < true)
            continue
        if found.rule in OF_ONE_CALL:
            same = [one for one in steps if (one.tool_name, one.args) == (step.tool_name, step.args)]
            assert found.count <= reported == found.calls == len(same)
            alike = len([one for one in same if one.result == step.result])
            assert found.alike == alike or (is_handoff(step.tool_name) and found.alike <= alike)
            continue
        assert reported == found.count
        if found.rule == "nothing_new":
            continue  # a walk names no steps, calls or agents: only its length
        assert reported <= true_count(found, steps), (said, true_count(found, steps))
        assert found.rule == "handoffs" or len(found.steps) <= reported
        one_tool = {steps[at].tool_name for at in found.steps} <= {step.tool_name}
        assert one_tool or found.rule not in ("same_call_same_result", "denied_again")
        if found.rule == "same_error" and not one_tool:  # then nothing but this error came, whatever was called
            assert {one.outcome_type for one in steps[found.first_step :]} == {step.outcome_type}
        if found.rule not in ("claims_done", "only_thoughts", "only_plans", "same_message", "handoffs"):
            assert {steps[at].result for at in found.steps} <= {step.result}
            assert {steps[at].outcome_type for at in found.steps} <= {step.outcome_type}
        # of the whole series; the first step is the first one that the run still remembers
        assert set(found.names) <= {one.tool_name for one in steps}
        for text in QUOTED.findall(said.replace(args_excerpt(step.args), "")):
            assert text == clip(step.result or "") or text in found.attempts
        for text in found.attempts:
            assert any(text.removesuffix("…") in str(steps[at].args) for at in found.steps)


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ([record("submit", {"answer": "four"}, "noted")] * 20, "claims_done"),
        ([record("read", {"n": 1}, None, thought="Let me look again at the orders.")] * 20, "same_message"),
        ([record("think", {"thought": "a " * n}, "ok") for n in range(50)], "only_thoughts"),
        ([record("click", {"on": n % 7}, PAGE) for n in range(20)], "same_state"),
        ([record("search", {"q": "hours"}, PAGE)] * 60, "same_call_same_result"),
    ],
)
def test_counts_are_true_beyond_what_is_remembered(steps: list[StepRecord], rule: str) -> None:
    engine = Engine()
    state = engine.new_state("t")
    seen: list[StepRecord] = []
    reported = 0
    for at, step in enumerate(steps):
        seen.append(step)
        verdict = engine.observe(state, step._replace(step_id=f"{at:016x}"))
        assert verdict is not None
        for found in verdict.detections:
            if found.rule == rule:
                reported = found.count
                assert reported == true_count(found, seen)
    assert reported


def test_a_step_that_is_written_by_hand_needs_no_fingerprints() -> None:
    """Without them nothing was found, and the evidence was called full."""
    engine = Engine()
    state = engine.new_state("t")
    steps = [StepRecord(str(at), "t", "search", args={"q": "x"}, result="", outcome_type="empty") for at in range(5)]
    by_hand = [engine.observe(state, step) for step in steps]
    state = engine.new_state("t")
    full = [engine.observe(state, record("search", {"q": "x"}, "", "empty", step_id=str(at))) for at in range(5)]
    assert [one and one.level.name for one in by_hand] == ["OBSERVE", "OBSERVE", "NUDGE", "NUDGE", "STOP"]
    assert [one and one.score for one in by_hand] == [one and one.score for one in full]
