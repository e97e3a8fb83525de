"""Model calls that repeat: which of them the engine takes for steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import REPLACES_CODE
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings, ToolSettings
from trajectory_guard.core.state import MAX_BUSY_RUNS, TrajectoryState
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.model_calls import TOOL_NAME, Newest, advance

ANSWER = "The draft is fine as it is."


def call(
    name: str, at: float, *, asked: str = "a", said: str | None = ANSWER, dur: float = 0.5, scope: str = "lib", **more: Any
) -> StepRecord:  # fmt: skip
    """A model call; ``asked`` stands for the digest of its input."""
    return StepRecord(
        name.encode().hex().rjust(16, "0"), "t", TOOL_NAME, asked, said, timestamp=at, duration=dur, result=said,
        args={"prompt": asked}, model_scope=scope, **more,
    )  # fmt: skip


def used_tool(name: str, at: float, **more: Any) -> StepRecord:
    return StepRecord(
        name.encode().hex().rjust(16, "0"), "t", "search", name, name, timestamp=at, duration=0.5, args={"q": name},
        result=f"found {name}", **more,
    )  # fmt: skip


def observed(*steps: StepRecord, settings: EngineSettings | None = None) -> list[Verdict | None]:
    engine = Engine(settings)
    state = engine.new_state("t")
    return [engine.observe(state, step) for step in steps]


def counted(*steps: StepRecord) -> int:
    """How many steps the engine counts."""
    engine = Engine()
    state = engine.new_state("t")
    for step in steps:
        engine.observe(state, step)
    return state.index


# --- what is a repeat ----------------------------------------------------------------------------------------------


def test_the_first_call_becomes_a_step_together_with_the_second() -> None:
    first, second, third = observed(*(call(str(at), at) for at in range(3)))
    assert first is None
    assert second is not None
    assert third is not None
    assert [second.step_index, third.step_index] == [1, 2]
    assert (second.first_step, third.first_step) == (0, 0)
    assert (second.level, third.level) == (Level.OBSERVE, Level.NUDGE)
    assert third.reason == f'The model was asked the same thing 3 times and gave the same answer: "{ANSWER}"'


@pytest.mark.parametrize(
    "steps",
    [
        [call(str(at), at, asked=f"history of {at}") for at in range(9)],
        [call(str(at), at, said=f"draft {at}") for at in range(9)],
        [call(str(at), at, asked="ab"[at % 2]) for at in range(9)],
        [call(str(at), at, said=None) for at in range(9)],
        [call(str(at), 0.01 * at, dur=9.0) for at in range(9)],
        [call(str(at), 0.9 * at, dur=1.0) for at in range(9)],
    ],
    ids=["growing input", "new answers", "two prompts", "requests tools", "parallel", "a pool of workers"],
)
def test_calls_that_are_no_repeats_are_no_steps(steps: list[StepRecord]) -> None:
    assert counted(*steps) == 0


def test_a_tool_step_in_between_begins_again() -> None:
    steps = [one for at in range(8) for one in (call(f"m{at}", at), used_tool(f"t{at}", at + 0.6))]
    assert counted(*steps) == 8


def test_a_tool_step_of_another_agent_does_not() -> None:
    steps = [one for at in range(4) for one in (call(f"m{at}", at, run="a"), used_tool(f"t{at}", at + 0.6, run="b"))]
    assert counted(*steps) == 8
    assert counted(*(call(str(at), at, run="ab"[at % 2]) for at in range(4))) == 4


def test_a_batch_that_is_asked_again_counts_once() -> None:
    """Three samples of one prompt, again and again, with one and the same answer."""
    steps = [call(f"{at} {place}", at + 0.01 * place) for at in range(4) for place in range(3)]
    assert counted(*steps) == 4


def test_samples_that_differ_are_no_repeat() -> None:
    steps = [call(f"{at} {said}", at + 0.01, said=said) for at in range(6) for said in ("yes", "no", "yes")]
    assert counted(*steps) == 0


@pytest.mark.parametrize("inner_first", [True, False])
def test_two_instrumentations_count_once(inner_first: bool) -> None:
    pairs = [
        (
            call(f"i{at}", at, dur=0.5, scope="client"),
            call(f"o{at}", at - 0.1, dur=0.7, scope="framework", asked="other"),
        )
        for at in range(1, 8)
    ]
    steps = [one for pair in pairs for one in (pair if inner_first else pair[::-1])]
    assert counted(*steps) == 7


def test_calls_of_two_libraries_in_turn_are_no_repeat() -> None:
    """A router that is asked the same, and a worker whose input grows."""
    steps = [
        one
        for at in range(6)
        for one in (
            call(f"r{at}", at, scope="router"),
            call(f"w{at}", at + 0.6, dur=0.2, asked=f"{at}", scope="worker"),
        )
    ]
    assert counted(*steps) == 0


# --- what is done about it -----------------------------------------------------------------------------------------


def test_evidence_is_likely_two_nudges_come_before_a_stop() -> None:
    verdicts = [one for one in observed(*(call(str(at), at) for at in range(12))) if one is not None]
    assert [one.step_index for one in verdicts if one.nudge] == [2, 5]
    assert [one.step_index for one in verdicts if one.stop_due] == [8]
    assert {str(one.certainty) for one in verdicts} == {"likely"}
    assert {one.rule for one in verdicts} == {"same_model_call"}
    assert {tuple(one.types) for one in verdicts} == {("TYPE_VI_MONOLOGUE",)}


def test_a_tool_step_with_progress_ends_the_loop() -> None:
    steps = [*(call(str(at), at) for at in range(4)), used_tool("x", 5), used_tool("y", 6)]
    last = observed(*steps)[-1]
    assert last is not None
    assert last.recovered


def test_the_same_answer_to_a_new_question_is_a_loop_of_its_own() -> None:
    """The nudge itself changes the input: an answer that stays as it was is no progress."""
    steps = [*(call(str(at), at) for at in range(3)), *(call(f"n{at}", 4 + at, asked="with nudge") for at in range(3))]
    last = observed(*steps)[-1]
    assert last is not None
    assert "3 times" in last.reason
    assert not last.recovered


def test_setting_ignore_for_the_tool_name_switches_it_off() -> None:
    settings = EngineSettings(tools={TOOL_NAME: ToolSettings(ignore=True)})
    assert observed(*(call(str(at), at) for at in range(9)), settings=settings) == [None] * 9


def test_a_redacted_reason_quotes_nothing() -> None:
    last = observed(*(call(str(at), at) for at in range(3)), settings=EngineSettings(redact=True))[-1]
    assert last is not None
    assert last.reason == "The model was asked the same thing 3 times and gave the same answer."
    assert ANSWER not in str(last)


# --- memory --------------------------------------------------------------------------------------------------------


def test_a_healthy_run_is_saved_as_before() -> None:
    engine, other = Engine(), Engine()
    state, without = engine.new_state("t"), other.new_state("t")
    for at in range(5):
        engine.observe(state, call(f"m{at}", at, asked=str(at)))
        engine.observe(state, used_tool(f"t{at}", at + 0.6))
        other.observe(without, used_tool(f"t{at}", at + 0.6))
    assert state.to_bytes() == without.to_bytes()


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_saved_state_goes_on_counting(cut: int) -> None:
    engine = Engine()
    state, steps = engine.new_state("t"), [call(str(at), at) for at in range(8)]
    found = []
    for at, step in enumerate(steps):
        if at == cut:
            state = engine.load_state(state.to_bytes())
        found.append(engine.observe(state, step))
    assert found == observed(*steps)
    assert ANSWER.encode() not in state.to_bytes()


@REPLACES_CODE
def test_an_error_leaves_the_newest_calls_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    state = engine.new_state("t")
    engine.observe(state, call("0", 0))
    before = state.to_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "_evaluate", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.observe(state, call("1", 1))
    assert state.to_bytes() == before
    again = engine.observe(state, call("1", 1))
    assert again is not None
    assert again.step_index == 1


def test_memory_is_bounded() -> None:
    newest: Newest = ()
    for at in range(100):
        newest, _ = advance(newest, call(str(at), 0.0, scope=f"lib {at}", dur=1_000.0))
    assert len(newest) <= 4
    engine = Engine()
    state: TrajectoryState = engine.new_state("t")
    for at in range(100):
        engine.observe(state, call(str(at), at, run=str(at)))
    assert len(state.model_calls) == MAX_BUSY_RUNS
