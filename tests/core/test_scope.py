"""Runs: certain boundaries end every suspicion, uncertain ones weaken it, siblings are never each other's repeats."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import record
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.state import BUSY_STEPS, MAX_BUSY_RUNS, MAX_RUNS, TrajectoryState
from trajectory_guard.core.steps import NOT_RUN, Certainty, StepRecord

HOURS: dict[str, Any] = {
    "tool": "search", "args": {"q": "hours"}, "result": "We are closed on Mondays and open from Tuesday to Sunday.",
}  # fmt: skip


def observe(steps: list[StepRecord], settings: EngineSettings | None = None) -> tuple[list[Verdict], TrajectoryState]:
    engine = Engine(settings)
    state = engine.new_state("t")
    return [verdict for step in steps if (verdict := engine.observe(state, step)) is not None], state


def levels(steps: list[StepRecord]) -> list[str]:
    return [str(verdict.level) for verdict in observe(steps)[0]]


def same(times: int, **fields: Any) -> list[StepRecord]:
    return [record(**{**HOURS, **fields}) for _ in range(times)]


# --- certain boundaries --------------------------------------------------------------------------------------


def test_nothing_is_suspected_across_user_turns() -> None:
    steps = [step for turn in range(12) for step in same(2, turn=str(turn))]
    assert set(levels(steps)) == {"OBSERVE"}


def test_nothing_is_suspected_across_instances_of_a_sub_agent() -> None:
    steps = [step for instance in range(12) for step in same(2, run=f"worker:{instance}", turn="1")]
    assert set(levels(steps)) == {"OBSERVE"}


def test_interleaved_siblings_are_not_each_others_repeats() -> None:
    steps = [record(**HOURS, run=f"worker:{at}", agent="worker", t=float(n)) for n in range(2) for at in range(6)]
    assert set(levels(steps)) == {"OBSERVE"}


def test_a_sibling_that_is_stuck_is_found_beside_healthy_ones() -> None:
    steps: list[StepRecord] = []
    for n in range(6):
        steps += [record("read", {"page": n}, f"text of page {n}, which is long enough", run="a"), *same(1, run="b")]
    verdicts, _ = observe(steps)
    assert {verdict.run for verdict in verdicts if verdict.detections} == {"b"}
    assert verdicts[-1].level is Level.STOP


def test_each_run_has_a_stop_of_its_own() -> None:
    verdicts, _ = observe([step for turn in range(3) for step in same(6, turn=str(turn))])
    stops = [verdict for verdict in verdicts if verdict.stop_due]
    assert [verdict.run for verdict in stops] == ["/0", "/1", "/2"]
    assert [verdict.episode for verdict in stops] == [1, 2, 3]
    nudges = [verdict for verdict in verdicts if verdict.nudge]
    assert [verdict.run for verdict in nudges] == ["/0", "/1", "/2"]


def test_the_stop_of_a_run_follows_its_own_nudge() -> None:
    verdicts, _ = observe([*same(3, turn="1"), *same(1, turn="2")])
    assert [verdict.level for verdict in verdicts] == [Level.OBSERVE, Level.OBSERVE, Level.NUDGE, Level.OBSERVE]


def test_runs_are_bounded_and_evictions_counted() -> None:
    _, state = observe([record(**HOURS, run=f"worker:{at}") for at in range(3 * MAX_BUSY_RUNS)])
    assert (len(state.runs), state.evicted_runs) == (MAX_BUSY_RUNS, 2 * MAX_BUSY_RUNS)


def test_user_turns_that_are_over_and_agents_that_have_ended_leave_a_few_runs() -> None:
    turns = [record(**HOURS, turn=str(at)) for at in range(3 * MAX_RUNS)]
    _, state = observe(turns)
    assert len(state.runs) == MAX_RUNS
    workers = [record(**HOURS, run=f"worker:{at}") for at in range(2 * MAX_RUNS)]
    later = [record("read", {"page": at}, f"page {at}", run="a") for at in range(BUSY_STEPS + MAX_RUNS)]
    _, state = observe([*workers, *later])
    assert len(state.runs) == MAX_RUNS


@pytest.mark.parametrize("agents", [2, MAX_RUNS + 1, 20, MAX_BUSY_RUNS])
def test_each_agent_of_many_that_take_turns_is_found_to_be_stuck(agents: int) -> None:
    verdicts, _ = observe([record(**HOURS, run=f"worker:{at % agents}") for at in range(5 * agents)])
    levels = [[one.level for one in verdicts[at::agents]] for at in range(agents)]
    assert levels == [[Level.OBSERVE, Level.OBSERVE, Level.NUDGE, Level.NUDGE, Level.STOP]] * agents


def test_of_too_many_agents_that_take_turns_the_first_are_found() -> None:
    agents = MAX_BUSY_RUNS + 8
    verdicts, _ = observe([record(**HOURS, run=f"worker:{at % agents}") for at in range(5 * agents)])
    assert sum(one.level is Level.STOP for one in verdicts) >= MAX_BUSY_RUNS - 4


def test_indices_are_those_of_the_trajectory() -> None:
    other = [record("read", {"page": n}, f"page {n} of a long text", run="a") for n in range(5)]
    verdicts, _ = observe([*other, *same(4, run="b")])
    found = verdicts[-1].detections[0]
    assert (verdicts[-1].first_step, found.first_step, found.steps) == (5, 5, (5, 6, 7, 8))


# --- uncertain boundaries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spread",
    [
        pytest.param(lambda n: {"trace_id": f"{n // 3:032x}"}, id="a new trace every third step"),
        pytest.param(lambda n: {"t": 3_600.0 * (n + 1)}, id="an hour between the steps"),
        pytest.param(lambda n: {"t": 86_400.0 * (n + 1)}, id="a day between the steps"),
        pytest.param(lambda n: {"t": 600.0 * (n // 2) + 2.0 * (n % 2) + 1}, id="pairs, ten minutes apart"),
    ],
)
def test_across_an_uncertain_boundary_nothing_is_stopped(spread: Any) -> None:
    verdicts, _ = observe([record(**HOURS, **spread(n)) for n in range(60)])
    assert Level.STOP not in {verdict.level for verdict in verdicts}


def test_what_lies_before_an_uncertain_boundary_is_likely_at_most() -> None:
    steps = [*same(3, trace_id="1" * 32), *same(2, trace_id="2" * 32)]
    verdicts, _ = observe(steps)
    assert verdicts[2].certainty is Certainty.CERTAIN
    assert {found.certainty for verdict in verdicts[3:] for found in verdict.detections} == {Certainty.LIKELY}


def test_a_turn_that_is_known_makes_the_trace_irrelevant() -> None:
    steps = [record(**HOURS, turn="1", trace_id=f"{n:032x}") for n in range(6)]
    assert levels(steps)[-1] == "STOP"


def test_a_loop_that_fits_into_one_trace_is_stopped() -> None:
    steps = [*same(3, trace_id="1" * 32), *same(16, trace_id="2" * 32)]
    assert levels(steps)[-1] == "STOP"


def test_the_models_own_time_is_no_pause() -> None:
    from trajectory_guard.core.steps import Usage

    slow = [record(**HOURS, t=200.0 * n + 1, usage=Usage(10, 10, seconds=199.0)) for n in range(6)]
    assert levels(slow)[-1] == "STOP"


# --- what outlives a run -------------------------------------------------------------------------------------


def refused(turn: str, run: str | None = None, command: str = "rm -rf build") -> StepRecord:
    args = {"command": command}
    return record("shell", args, f"The user refused ({turn}, {run}).", "denied", turn=turn, run=run)


def test_a_refused_call_proposed_again_is_nudged_at_once_and_not_stopped_before_the_third() -> None:
    verdicts, _ = observe([refused("1") for _ in range(5)])
    assert [verdict.level for verdict in verdicts][:3] == [Level.OBSERVE, Level.NUDGE, Level.NUDGE]
    assert verdicts[1].rule == "denied_again"
    assert verdicts[-1].level is Level.STOP


def answered_by_guard(turn: str) -> StepRecord:
    said = f"{NOT_RUN}shell was refused in this turn. Error: it has failed."
    return record("shell", {"command": "rm -rf build"}, said, "denied", turn=turn)


def test_a_guards_answer_to_a_refused_call_is_one_more_proposal_and_no_permission() -> None:
    verdicts, _ = observe([refused("1"), answered_by_guard("1"), answered_by_guard("1"), refused("1")])
    counts = [{one.rule: one.count for one in verdict.detections}.get("denied_again") for verdict in verdicts]
    assert counts == [None, 2, 3, 4]
    assert verdicts[1].level is Level.NUDGE


def test_a_guards_answer_is_no_new_failure() -> None:
    """Recognised by its text alone: spans and plain messages carry no mark."""
    failed = record("shell", {"command": "rm -rf build"}, "No such folder: build", "error", turn="1")
    verdicts, _ = observe([failed, failed._replace(step_id="second"), *[answered_by_guard("1") for _ in range(3)]])
    assert {found.rule for verdict in verdicts for found in verdict.detections} == {"same_call_same_result"}
    assert verdicts[2].reason.endswith("was requested 3 times and returned the same result each time.")


FEEDBACK = (
    "Not yet, the tests are still running; ask me again when they are through.",
    "Tests are green, but Ann has to sign off first.",
    "Ann signed off. Now the database migrates, ask again in a minute.",
    "Migration at 80 percent, once more please.",
    "Nearly there, hold on.",
    "I am in a meeting, try later.",
    "Five minutes more.",
    "The window opens at noon.",
    "Ask Bob instead.",
    "Bob is on leave, so wait for Carla.",
)


def said(*texts: str) -> list[StepRecord]:
    return [record("deploy", {"env": "staging"}, text, "denied", turn="1") for text in texts]


def test_a_refusal_in_new_words_is_an_answer_of_its_own() -> None:
    """Each proposal was what the person had asked for, and the fourth ended the run."""
    assert set(levels(said(*FEEDBACK[:7]))) == {"OBSERVE"}


def test_refusals_in_ever_new_words_are_nudged_in_the_end() -> None:
    verdicts, _ = observe(said(*FEEDBACK))
    assert [verdict.level for verdict in verdicts[:7]] == [Level.OBSERVE] * 7
    assert {one.certainty for verdict in verdicts[7:] for one in verdict.detections} == {Certainty.ACKNOWLEDGED}
    assert any(verdict.nudge for verdict in verdicts[7:])
    assert all(verdict.level is not Level.STOP for verdict in verdicts)


def test_words_that_come_again_count_and_ids_in_them_are_no_words() -> None:
    counts = [
        {one.rule: one.count for one in verdict.detections}.get("denied_again")
        for verdict in observe(said("No.", FEEDBACK[0], "No.", FEEDBACK[0], "no."))[0]
    ]
    assert counts == [None, None, 2, 2, 3]
    rejected = [f"User rejected the tool call for `deploy` with id call_{at}" for at in (81, 20, 7, 99)]
    assert levels(said(*rejected))[1:] == ["NUDGE", "NUDGE", "STOP"]


def test_a_refusal_outlives_the_run_within_its_turn() -> None:
    steps = [refused("1"), record("look", {}, "something new is here, and it is long"), refused("1")]
    assert levels(steps)[-1] == "NUDGE"


def test_a_new_user_turn_clears_refusals() -> None:
    assert set(levels([refused(str(turn)) for turn in range(6)])) == {"OBSERVE"}


def test_other_arguments_are_another_proposal() -> None:
    assert levels([refused("1"), refused("1", command="rm -rf dist")]) == ["OBSERVE", "OBSERVE"]


def test_a_call_that_is_allowed_at_last_is_forgiven() -> None:
    allowed = record("shell", {"command": "rm -rf build"}, "removed 14 files from the folder", turn="1")
    assert levels([refused("1"), allowed, refused("1")]) == ["OBSERVE"] * 3


def test_a_refusal_within_a_batch_counts_those_of_other_runs() -> None:
    refused = {"tool": "shell", "args": {"cmd": "rm"}, "result": "No.", "outcome": "denied", "turn": "1"}
    before = [record(**refused, run=run) for run in ("a", "b")]
    batch = [record("read", {"n": 1}, "one", run="c", turn="1", batch="x"), record(**refused, run="c", batch="x")]
    verdicts, _ = observe([*before, *batch])
    assert verdicts[-1].rule == "denied_again"
    assert verdicts[-1].detections[0].steps == (verdicts[-1].step_index,)
