"""The escalation ladder, row by row: certain, likely, acknowledged, waiting; nudge first, stop last, never for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.core.detectors import TYPE_I, DetectionResult
from trajectory_guard.core.policy import (
    Decision,
    Ladder,
    Level,
    begin_segment,
    decide,
    decisive,
    delivered,
    finish_recovery,
    reset_episode,
)
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import PACE, Certainty

SETTINGS = EngineSettings()
CERTAIN, LIKELY, ACKNOWLEDGED, WAITING = Certainty


def finding(certainty: Certainty = CERTAIN, count: int = 3) -> tuple[DetectionResult, ...]:
    return (DetectionResult(TYPE_I, 1.0, "rule", certainty, count=count),)


def step(
    ladder: Ladder, certainty: Certainty | None = CERTAIN, *, score: float = 5.0, progress: bool = False, count: int = 3,
    new_batch: bool = True, settings: EngineSettings = SETTINGS, now: float = 0.0, may_stop: bool = True,
) -> Decision:  # fmt: skip
    found = finding(certainty, count) if certainty is not None else ()
    return decide(ladder, found, score, settings, new_batch=new_batch, progress=progress, now=now, may_stop=may_stop)


def tail(certainty: Certainty, steps: int, settings: EngineSettings = SETTINGS) -> tuple[list[int], int | None]:
    """Steps (from 1) at which nudges become due, and the step of the stop, in an unproductive tail."""
    ladder, nudges, stop = Ladder(), [], None
    for at in range(1, steps + 1):
        decision = step(ladder, certainty, count=at, settings=settings)
        if decision.nudge:
            nudges.append(at)
        if decision.stop_due:
            assert stop is None
            stop = at
    return nudges, stop


# --- the rows of the table -----------------------------------------------------------------------------------


def test_certain_evidence_stops_two_unproductive_steps_after_the_nudge() -> None:
    assert tail(CERTAIN, 20) == ([1], 3)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_stop_patience_is_configuration(patience: int) -> None:
    assert tail(CERTAIN, 20, replace(SETTINGS, stop_patience=patience)) == ([1], 1 + patience)


def test_likely_evidence_is_nudged_twice_before_it_stops() -> None:
    assert tail(LIKELY, 20) == ([1, 4], 7)


def test_the_second_nudge_comes_after_as_many_steps_as_led_to_the_first() -> None:
    ladder, nudges, stop = Ladder(), [], None
    for at in range(1, 40):
        decision = step(ladder, LIKELY, score=0.4 * at)
        nudges += [at] if decision.nudge else []
        stop = at if decision.stop_due else stop
    assert (nudges, stop) == ([5, 10], 15)


def test_renudge_is_the_least_distance() -> None:
    assert tail(LIKELY, 40, replace(SETTINGS, renudge=6)) == ([1, 7], 13)


def test_acknowledged_evidence_goes_at_a_third_of_the_pace() -> None:
    assert tail(ACKNOWLEDGED, 40) == ([1, 1 + 3 * PACE[ACKNOWLEDGED]], 1 + 6 * PACE[ACKNOWLEDGED])


def test_waiting_is_nudged_when_the_count_has_doubled_and_never_stopped() -> None:
    nudges, stop = tail(WAITING, 500)
    assert nudges == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert stop is None


def test_waiting_stops_only_where_max_polls_is_set() -> None:
    assert tail(WAITING, 40, replace(SETTINGS, max_polls=12))[1] == 12


def test_waiting_stops_only_where_max_wait_s_is_set() -> None:
    ladder, settings = Ladder(), replace(SETTINGS, max_wait_s=600.0)
    stops = [at for at in range(40) if step(ladder, WAITING, now=1_000.0 + 60.0 * at, settings=settings).stop_due]
    assert stops == [10]


def test_a_tool_that_is_never_stopped_is_nudged_ever_more_rarely() -> None:
    ladder = Ladder()
    decisions = [step(ladder, CERTAIN, may_stop=False) for _ in range(60)]
    assert [at for at, one in enumerate(decisions) if one.nudge] == [0, 3, 9, 21, 45]
    assert not any(one.stop_due for one in decisions)


# --- thresholds ----------------------------------------------------------------------------------------------


def test_nudges_of_a_rule_that_only_nudges_bring_no_stop_nearer() -> None:
    only, other = DetectionResult(TYPE_I, 1.0, "nudging", LIKELY, count=14), finding(LIKELY)
    assert decisive((only,), {"nudging"}) == ((only,), False)
    assert decisive((*other, only), {"nudging"}) == (list(other), True)
    ladder, nudges = Ladder(), 0
    for _ in range(30):
        found, counts = decisive((only,), {"nudging"})
        given = decide(ladder, found, 5.0, SETTINGS, new_batch=True, progress=False, towards_stop=counts)
        assert not given.stop_due
        nudges += given.nudge > 0
    assert nudges > 1
    stops = [at for at in range(30) if step(ladder, LIKELY).stop_due]
    assert stops[0] >= (tail(LIKELY, 30)[1] or 0) - 1


def test_below_the_nudge_threshold_nothing_is_due() -> None:
    assert step(Ladder(), score=1.99) == Decision(Level.OBSERVE, opened=True)


def test_below_the_stop_threshold_there_is_no_stop() -> None:
    ladder = Ladder()
    assert [step(ladder, score=2.9).level for _ in range(9)] == [Level.NUDGE] * 9


def test_steps_of_one_batch_count_once() -> None:
    ladder = Ladder()
    step(ladder)
    assert not any(step(ladder, new_batch=False).stop_due for _ in range(9))


# --- progress, recovery, boundaries --------------------------------------------------------------------------


def test_progress_resets_the_ladder_so_that_a_stop_needs_another_nudge() -> None:
    ladder = Ladder()
    assert step(ladder).nudge == 1
    step(ladder, None, progress=True)
    levels = [step(ladder).level for _ in range(3)]
    assert Level.STOP not in levels
    decisions = [step(ladder) for _ in range(4)]
    assert any(one.stop_due for one in decisions)


def test_two_quiet_steps_with_progress_are_a_recovery() -> None:
    ladder = Ladder()
    step(ladder)
    assert not step(ladder, None, progress=True).recovered
    assert step(ladder, None).recovered
    assert not ladder.active


def test_quiet_steps_without_progress_are_no_recovery() -> None:
    ladder = Ladder()
    step(ladder)
    assert not any(step(ladder, None).recovered for _ in range(5))


def test_a_loop_that_was_never_nudged_does_not_recover() -> None:
    ladder = Ladder()
    step(ladder, score=1.0)
    assert not any(step(ladder, None, progress=True).recovered for _ in range(4))


def test_a_nudged_run_that_ends_with_progress_has_recovered() -> None:
    ladder = Ladder()
    step(ladder)
    step(ladder, None, progress=True)
    assert finish_recovery(ladder)
    assert not finish_recovery(ladder)


def test_an_agent_that_answers_when_it_is_nudged_has_recovered() -> None:
    ladder = Ladder()
    step(ladder)
    ladder.nudge_undelivered = True
    delivered(ladder)
    assert finish_recovery(ladder)


def test_a_run_that_pauses_at_the_step_of_its_nudge_has_not_recovered() -> None:
    ladder = Ladder()
    step(ladder)
    assert not finish_recovery(ladder)
    assert ladder.nudges == 1


def test_a_run_that_ends_in_its_loop_has_not_recovered() -> None:
    ladder = Ladder()
    step(ladder)
    step(ladder)
    assert not finish_recovery(ladder)


def test_across_an_uncertain_boundary_a_stop_needs_a_nudge_on_this_side() -> None:
    ladder = Ladder()
    for _ in range(50):
        assert step(ladder, LIKELY).stop_due is False
        begin_segment(ladder)


def test_a_person_who_clears_a_run_begins_the_ladder_again() -> None:
    ladder = Ladder()
    step(ladder)
    reset_episode(ladder)
    assert step(ladder).nudge == 1


def test_nothing_escalates_until_the_gate_has_delivered_the_nudge() -> None:
    ladder = Ladder()
    step(ladder)
    ladder.nudge_undelivered = True
    assert not any(step(ladder).stop_due for _ in range(9))
    delivered(ladder)
    assert [step(ladder).stop_due for _ in range(2)] == [False, True]


def test_a_stop_is_due_once() -> None:
    ladder = Ladder()
    assert sum(step(ladder).stop_due for _ in range(50)) == 1
    assert step(ladder).level is Level.STOP


# --- what always holds ---------------------------------------------------------------------------------------

moves = st.tuples(
    st.sampled_from([CERTAIN, LIKELY, ACKNOWLEDGED, WAITING, None]), st.floats(0.0, 5.0), st.booleans(), st.booleans(),
    st.integers(0, 12),
)  # fmt: skip


@given(st.lists(moves, max_size=60))
def test_no_sequence_stops_before_it_was_nudged_since_the_last_progress(sequence: list) -> None:
    ladder, nudged = Ladder(), False
    for certainty, score, progress, new_batch, boundary in sequence:
        if boundary == 0:
            begin_segment(ladder)
            nudged = False
        decision = step(ladder, certainty, score=score, progress=progress and certainty is None, new_batch=new_batch)
        if certainty is None and progress:
            nudged = False
        if decision.stop_due:
            assert nudged
            assert certainty is not WAITING
            assert score >= SETTINGS.stop_threshold
        nudged = nudged or decision.nudge > 0


@given(
    st.lists(moves, max_size=30), st.lists(st.sampled_from([CERTAIN, LIKELY, ACKNOWLEDGED]), min_size=80, max_size=80)
)
def test_any_unproductive_tail_ends_in_a_stop_within_the_bound(before: list, unproductive: list) -> None:
    ladder = Ladder()
    for certainty, score, progress, new_batch, _ in before:
        step(ladder, certainty, score=score, progress=progress and certainty is None, new_batch=new_batch)
    lead = max(SETTINGS.renudge, ladder.steps_to_first_nudge, ladder.unproductive_steps + SETTINGS.renudge)
    bound = SETTINGS.renudge + 2 * lead * PACE[ACKNOWLEDGED] + 2 * lead
    decisions = [step(ladder, certainty) for certainty in (unproductive * (1 + bound // 80))[: bound + 1]]
    assert decisions[-1].level is Level.STOP


@given(st.lists(moves, max_size=40))
def test_a_ladder_survives_its_plain_form(sequence: list) -> None:
    ladder = Ladder()
    for certainty, score, progress, new_batch, _ in sequence:
        step(ladder, certainty, score=score, progress=progress and certainty is None, new_batch=new_batch)
        copy = Ladder.from_plain(ladder.to_plain())
        assert copy.to_plain() == ladder.to_plain()
        ladder = copy
