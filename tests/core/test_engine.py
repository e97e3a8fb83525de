"""One step in, one verdict out: duplicates, unknowns, policies, batches, episodes, what a loop cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.detectors import TYPE_I, TYPE_II, TYPE_III
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings, ToolSettings
from trajectory_guard.core.state import MAX_RUNS, TrajectoryState
from trajectory_guard.core.steps import REFUSED_BY_GUARD, Evidence, StepRecord, Usage

HOURS = "Closed on Mondays. Open from Tuesday to Sunday, nine to five."
SAME: dict[str, Any] = {"tool": "search", "args": {"q": "hours"}, "result": HOURS}


def loop(times: int, **fields: Any) -> list[StepRecord]:
    return [record(**{**SAME, **fields}) for _ in range(times)]


def levels(verdicts: list[Verdict | None]) -> list[str]:
    return [str(verdict.level) if verdict is not None else "-" for verdict in verdicts]


def test_a_loop_is_observed_nudged_and_stopped() -> None:
    verdicts = evaluate(loop(5))
    assert levels(verdicts) == ["OBSERVE", "OBSERVE", "NUDGE", "NUDGE", "STOP"]
    assert [verdict.stop_due for verdict in verdicts] == [False, False, False, False, True]
    assert [verdict.score for verdict in verdicts] == [0.0, 1.0, 3.0, 5.0, 5.0]
    assert [verdict.health for verdict in verdicts] == pytest.approx([1.0, 0.8, 0.4, 0.0, 0.0])
    assert [verdict.step_index for verdict in verdicts] == [0, 1, 2, 3, 4]
    assert [verdict.episode for verdict in verdicts] == [0, 1, 1, 1, 1]
    assert verdicts[2].types == [TYPE_I]
    assert verdicts[2].first_step == 0


def test_the_nudge_is_reported_once_and_says_what_repeats() -> None:
    verdicts = evaluate(loop(5))
    assert [verdict.nudge is not None for verdict in verdicts] == [False, False, True, False, False]
    text = verdicts[2].nudge or ""
    assert all(part in text for part in ("search", "hours", "3 times", "Closed on Mondays"))
    assert all(verdict.reason for verdict in verdicts[1:])
    assert verdicts[0].reason == ""


def test_recovery_is_reported_once_and_a_later_loop_is_a_new_episode() -> None:
    work = [record("read", {"page": n}, f"text of page {n}") for n in range(4)]
    verdicts = evaluate([*loop(3), *work, *loop(3, args={"q": "prices"}, result="ask at the desk")])
    assert [at for at, verdict in enumerate(verdicts) if verdict.recovered] == [4]
    assert levels(verdicts)[-1] == "NUDGE"
    assert (verdicts[-1].episode, verdicts[-1].nudges, verdicts[-1].nudge is not None) == (2, 2, True)
    assert verdicts[-1].first_step == 7


def test_a_step_that_is_delivered_twice_counts_once() -> None:
    steps = [step for step in loop(3) for _ in range(3)]
    verdicts = evaluate(steps)
    assert [verdict is None for verdict in verdicts] == [False, True, True] * 3
    assert [verdict for verdict in verdicts if verdict is not None] == evaluate(steps[::3])


@pytest.mark.parametrize(
    "step_id", ["00000000000000aa", "0190c3a0-1111-7000-8000-000000000001", "step-1", "", "\ud800", "0" * 16]
)
def test_a_step_id_of_any_form_is_recognised_again(step_id: str) -> None:
    verdicts = evaluate(
        [record(**SAME, step_id=step_id), record("x", {}, "y", step_id="other"), record(**SAME, step_id=step_id)]
    )
    assert [verdict is None for verdict in verdicts] == [False, False, True]


def test_span_ids_are_hex_in_any_case() -> None:
    verdicts = evaluate([record(**SAME, step_id="00000000000000ab"), record(**SAME, step_id="00000000000000AB")])
    assert verdicts[1] is None


def test_an_interrupted_call_does_not_count() -> None:
    asked = [record("delete", {"all": True}, None, "interrupted") for _ in range(9)]
    engine = Engine()
    state = engine.new_state("t")
    assert [engine.observe(state, step) for step in asked] == [None] * 9
    assert (state.index, state.score) == (0, 0.0)


def test_unknown_is_not_equal() -> None:
    assert first_level(evaluate(record("search", None, None, evidence=Evidence.NAME_ONLY) for _ in range(40))) is None
    without_result = evaluate(record("search", {"q": 1}, None, evidence=Evidence.NO_RESULT) for _ in range(40))
    assert first_level(without_result[:12]) is None
    assert first_level(without_result, Level.STOP) is None
    assert first_level(evaluate(record("search", None, "same answer") for _ in range(40))) is None


def test_errors_count_even_when_nothing_but_their_class_is_visible() -> None:
    steps = [
        record("fetch", None, None, "error", error_class="HTTPError", evidence=Evidence.NAME_ONLY) for _ in range(8)
    ]
    verdicts = evaluate(steps)
    assert first_level(verdicts) is not None
    assert verdicts[-1].evidence is Evidence.NAME_ONLY


def test_with_content_off_the_score_is_lower() -> None:
    seen = evaluate(loop(8, result="HTTPError: gone", outcome="error"))
    hidden = evaluate(
        record("search", None, None, "error", error_class="HTTPError", evidence=Evidence.NAME_ONLY) for _ in range(8)
    )
    assert all(low.score <= high.score for low, high in zip(hidden, seen, strict=True))
    assert hidden[3].score < seen[3].score


# --- policies ------------------------------------------------------------------------------------------------


def with_policy(**policy: Any) -> EngineSettings:
    return EngineSettings(tools={"search": ToolSettings(**policy)})


def test_an_ignored_tool_is_neither_evaluated_nor_remembered() -> None:
    engine = Engine(with_policy(ignore=True))
    state = engine.new_state("t")
    assert [engine.observe(state, step) for step in loop(9)] == [None] * 9
    assert state.index == 0


def test_a_declared_poll_has_more_patience_and_is_still_caught() -> None:
    assert first_level(evaluate(loop(30))) == 2
    assert first_level(evaluate(loop(30), with_policy(poll=True))) == 8


def test_the_second_equal_answer_of_an_idempotent_tool_is_certain() -> None:
    assert first_level(evaluate(loop(3), with_policy(idempotent=True))) == 1


def test_the_weight_of_a_tool_scales_its_findings() -> None:
    assert first_level(evaluate(loop(30), with_policy(weight=0.0))) is None
    assert [verdict.score for verdict in evaluate(loop(3), with_policy(weight=0.5))] == [0.0, 0.5, 1.5]
    assert [verdict.score for verdict in evaluate(loop(3), with_policy(weight=10.0))] == [0.0, 2.0, 4.0]


def test_a_policy_concerns_its_tool_only() -> None:
    assert first_level(evaluate(loop(3, tool="other"), with_policy(ignore=True))) == 2


def test_thresholds_and_weights_are_configurable() -> None:
    settings = EngineSettings(nudge_threshold=1.0, stop_threshold=1.0, weights={TYPE_I: 1.0})
    assert levels(evaluate(loop(5), settings)) == ["OBSERVE", "OBSERVE", "NUDGE", "NUDGE", "STOP"]
    impatient = replace(settings, stop_patience=1)
    assert levels(evaluate(loop(4), impatient)) == ["OBSERVE", "OBSERVE", "NUDGE", "STOP"]
    assert first_level(evaluate(loop(9), EngineSettings(weights=dict.fromkeys(EngineSettings().weights, 0)))) is None


# --- batches, turns, refusals --------------------------------------------------------------------------------


def test_parallel_calls_of_one_turn_are_one_step_of_time() -> None:
    parallel = [record(f"t{at % 3}", {"n": at % 3}, f"{HOURS} {at % 3}", batch=str(at // 3)) for at in range(18)]
    serial = [record(f"t{at % 3}", {"n": at % 3}, f"{HOURS} {at % 3}") for at in range(18)]
    assert evaluate(parallel)[8].score < evaluate(serial)[8].score
    nudge, stop = first_level(evaluate(parallel), Level.NUDGE), first_level(evaluate(parallel), Level.STOP)
    assert nudge is not None
    assert stop is not None
    assert nudge // 3 + EngineSettings().stop_patience == stop // 3


def test_overlap_in_time_makes_a_batch_where_no_label_does() -> None:
    def run(gap: float) -> list[StepRecord]:
        return [
            record(f"t{at % 3}", {"n": at % 3}, f"state {at % 3}", t=10.0 * (at // 3) + gap * (at % 3), dur=2.0)
            for at in range(9)
        ]

    assert evaluate(run(0.1))[8].score < evaluate(run(3.0))[8].score


def test_a_new_user_turn_is_another_run_in_which_old_answers_may_be_asked_again() -> None:
    steps = [*loop(2, turn="1"), *loop(3, turn="2")]
    verdicts = evaluate(steps)
    assert [verdict.score for verdict in verdicts] == [0.0, 1.0, 0.0, 1.0, 3.0]
    assert [verdict.run for verdict in verdicts] == ["/1", "/1", "/2", "/2", "/2"]
    assert first_level(verdicts) == 4
    assert verdicts[4].first_step == 2


def test_what_a_person_refused_is_certain_evidence() -> None:
    verdicts = evaluate(record("delete", {"path": "/data"}, "no", "denied") for _ in range(4))
    assert levels(verdicts) == ["OBSERVE", "NUDGE", "NUDGE", "STOP"]
    assert [str(verdict.certainty) for verdict in verdicts[1:]] == ["certain"] * 3


def test_a_refused_call_counts_as_a_repeat() -> None:
    refused = record("search", SAME["args"], "[refused: it was made before]", "denied", error_class=REFUSED_BY_GUARD)
    verdicts = evaluate([*loop(2), refused])
    assert verdicts[-1].types == [TYPE_I]
    assert verdicts[-1].detections[0].count == 3


# --- what a loop costs ---------------------------------------------------------------------------------------


def test_a_verdict_says_what_the_loop_consumed_since_its_first_step() -> None:
    steps = [record("read", {"n": 0}, "news", t=0.0, dur=1.0, usage=Usage(1_000, 100, 0.5))]
    steps += [record(**SAME, t=10.0 * at, dur=2.0, usage=Usage(100, 10, 0.01)) for at in range(1, 5)]
    spent = evaluate(steps)[-1].spent
    assert (spent.steps, spent.seconds, spent.tokens) == (3, 32.0, 330)
    assert spent.cost_usd == pytest.approx(0.03)


def test_spending_is_zero_where_the_telemetry_says_nothing() -> None:
    assert evaluate(loop(4))[-1].spent == (3, 0.0, 0, 0.0)


def test_clocks_that_run_backwards_do_not_make_negative_spending() -> None:
    verdicts = evaluate(record(**SAME, t=1_000.0 - at, dur=0.0, usage=Usage(-5, -5, -1.0)) for at in range(6))
    assert all(min(verdict.spent) >= 0 for verdict in verdicts if verdict is not None)


# --- bounds --------------------------------------------------------------------------------------------------


def adversarial(engine: Engine, *, turn_steps: int) -> TrajectoryState:
    """The state after thousands of long, odd steps in turns of ``turn_steps``; it does not grow after the first."""
    state = engine.new_state("t")
    sizes = []
    for at in range(5_000):
        text = f"{at} " + "long text " * (300 if at % 53 == 0 else 20)
        step = (
            record(f"tool{at}" * 9, {"q": text, "n": at}, text, usage=Usage(at, at, 1.0)),
            record("submit", {"q": text}, "", "empty", thought=text, agent=f"agent{at}" * 30),
            record("run", {"q": text}, f"Error number {chr(97 + at % 26)}: {text}", "error"),
            record("poll", {}, f'{{"pid": {at}, "state": "x{at % 3}"}}'),
            record("search", {"query": f"the {text}"}, "", "empty", batch=str(at // 2), turn=str(at // turn_steps)),
        )[at % 5]
        engine.observe(state, step)
        if at % 500 == 499:
            sizes.append(len(state.to_bytes()))
    assert sizes[-1] < 1.3 * sizes[1]
    return state


@pytest.mark.slow
def test_state_stays_small_over_thousands_of_adversarial_steps() -> None:
    assert len(adversarial(Engine(), turn_steps=10_000).to_bytes()) < 20_480


@pytest.mark.slow
def test_each_of_a_bounded_number_of_runs_stays_small() -> None:
    state = adversarial(Engine(), turn_steps=50)
    assert len(state.runs) == MAX_RUNS
    assert state.evicted_runs > 0
    assert max(len(state.to_bytes(label)) for label in state.runs) < 11_648


def test_a_plain_trajectory_saves_into_a_few_kilobytes() -> None:
    engine = Engine()
    state = engine.new_state("t")
    for at in range(200):
        found = f"order of {'abcdefghij'[at % 10]}{'klmnopqrst'[at // 10 % 10]}"
        engine.observe(state, record("search", {"customer": "Zoë", "page": at}, found, t=float(at)))
    assert len(state.to_bytes()) < 4_500


def test_verdicts_do_not_depend_on_other_trajectories_of_the_engine() -> None:
    engine = Engine()
    first, second = engine.new_state("a"), engine.new_state("b")
    for step in loop(6):
        engine.observe(first, step)
    assert [engine.observe(second, step) for step in loop(3)][-1].score == 3.0


def test_a_frozen_state_is_nudged_twice_and_then_stopped() -> None:
    page = "Cart: 1 item. Please choose a size to continue."
    verdicts = evaluate(record("click", {"id": at}, page) for at in range(40))
    assert {kind for verdict in verdicts for kind in verdict.types} == {TYPE_II, TYPE_III}
    nudges = [at for at, verdict in enumerate(verdicts) if verdict.nudge]
    assert nudges == [4, 7]
    assert first_level(verdicts, Level.STOP) == 10
    assert sum(verdict.stop_due for verdict in verdicts) == 1
