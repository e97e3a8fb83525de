"""The score: weights, decay, cap, and the calls of one batch as one step of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.core.detectors import (
    LOOP_TYPES,
    TYPE_I,
    TYPE_II,
    TYPE_III,
    TYPE_IV,
    TYPE_V,
    TYPE_VI,
    DetectionResult,
    weights,
)
from trajectory_guard.core.policy import RunScore, Scorer

WEIGHTS = weights()
NOTHING: tuple[DetectionResult, ...] = ()


def scorer() -> Scorer:
    return Scorer(weights=WEIGHTS, max_score=5.0, decay=0.5)


def finding(kind: str = TYPE_I, confidence: float = 1.0) -> tuple[DetectionResult, ...]:
    return (DetectionResult(kind, confidence),)


def play(score: RunScore, *steps: tuple[DetectionResult, ...], new_batch: bool = True) -> float:
    """The score after these steps."""
    for found in steps:
        scorer().apply(score, found, new_batch=new_batch)
    return score.value


def test_weights_are_those_of_the_design() -> None:
    assert {kind: WEIGHTS[kind] for kind in (TYPE_I, TYPE_II, TYPE_III, TYPE_IV)} == {
        TYPE_I: 2.0, TYPE_II: 1.5, TYPE_III: 0.5, TYPE_IV: 1.5,
    }  # fmt: skip
    assert 0.5 <= WEIGHTS[TYPE_V] <= 1.5
    assert set(WEIGHTS) == set(LOOP_TYPES) == {TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI}


def test_a_finding_adds_weight_times_confidence() -> None:
    score = RunScore()
    assert play(score, finding(TYPE_I, 0.5)) == 1.0
    assert play(score, finding(TYPE_III, 0.8) + finding(TYPE_IV, 0.5)) == pytest.approx(1.0 + 0.5 * 0.8 + 1.5 * 0.5)


def test_two_findings_of_one_type_count_as_the_stronger_one() -> None:
    assert play(RunScore(), finding(TYPE_I, 0.5) + finding(TYPE_I, 1.0)) == 2.0


def test_a_step_without_finding_halves_the_score() -> None:
    score = RunScore()
    assert play(score, finding(), NOTHING) == 1.0
    assert play(score, NOTHING, NOTHING) == 0.25


def test_the_score_is_capped() -> None:
    assert play(RunScore(), *[finding() + finding(TYPE_II) + finding(TYPE_IV)] * 4) == 5.0


def test_the_calls_of_one_batch_count_as_one_step() -> None:
    score = RunScore()
    play(score, finding(TYPE_I, 0.5))
    assert play(score, *[finding(TYPE_I, 0.5)] * 3, new_batch=False) == 1.0
    assert play(score, finding(TYPE_II), new_batch=False) == 2.5
    assert play(score, NOTHING, new_batch=False) == 2.5
    assert score.batch == 1


def test_a_batch_without_finding_decays_once() -> None:
    score = RunScore()
    play(score, finding(), NOTHING)
    assert play(score, *[NOTHING] * 4, new_batch=False) == 1.0


def test_a_finding_late_in_a_batch_takes_the_decay_back() -> None:
    score = RunScore()
    play(score, finding(), NOTHING)
    assert play(score, finding(TYPE_I, 0.25), new_batch=False) == 2.5


def test_decay_weakens_the_batch_that_is_open_too() -> None:
    score = RunScore()
    play(score, finding(), finding(TYPE_I, 0.5))
    score.decay(0.5)
    assert (score.value, score.base) == (1.5, 1.0)
    assert play(score, finding(TYPE_I, 0.5), new_batch=False) == 2.0


def test_a_cleared_score_starts_from_zero() -> None:
    score = RunScore()
    play(score, finding(), finding())
    score.clear()
    assert score.value == 0.0
    assert play(score, NOTHING, new_batch=False) == 0.0
    assert play(score, finding(TYPE_I, 0.5)) == 1.0


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(LOOP_TYPES), st.floats(0.05, 1.0)), max_size=3, unique_by=lambda one: one[0]
        ),
        max_size=30,
    )
)
def test_the_score_is_the_formula(sequence: list[list[tuple[str, float]]]) -> None:
    score, expected = RunScore(), 0.0
    for found in sequence:
        play(score, tuple(DetectionResult(kind, value) for kind, value in found))
        gain = sum(WEIGHTS[kind] * value for kind, value in found)
        expected = min(5.0, expected + gain) if found else expected * 0.5
        assert score.value == pytest.approx(expected)


def test_a_score_survives_its_plain_form() -> None:
    score = RunScore()
    play(score, finding(), NOTHING, finding(TYPE_II, 0.5))
    copy = RunScore.from_plain(score.to_plain())
    assert copy.to_plain() == score.to_plain()
    assert play(copy, finding(), new_batch=False) == play(score, finding(), new_batch=False)
