"""Score, levels and episodes, exactly as designed: nudge first, stop last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.config import DEFAULT_WEIGHTS
from trajectory_guard.core.detectors import (
    LOOP_TYPES,
    TYPE_I,
    TYPE_II,
    TYPE_III,
    TYPE_IV,
    TYPE_V,
    TYPE_VI,
    DetectionResult,
)
from trajectory_guard.core.scoring import Episode, Level, Scorer

NOTHING: tuple[DetectionResult, ...] = ()


def scorer() -> Scorer:
    return Scorer(weights=DEFAULT_WEIGHTS, nudge_at=2.0, stop_at=3.0, max_score=5.0, decay=0.5)


def finding(
    kind: str = TYPE_I, confidence: float = 1.0, *, soft: bool = False, first: int = 0
) -> tuple[DetectionResult, ...]:
    return (DetectionResult(kind, confidence, {"first_step": first}, soft),)


def play(episode: Episode, *steps: tuple[DetectionResult, ...], same_batch: bool = False) -> list[Level]:
    return [scorer().apply(episode, found, same_batch=same_batch) for found in steps]


def test_weights_are_those_of_the_design() -> None:
    assert {kind: DEFAULT_WEIGHTS[kind] for kind in (TYPE_I, TYPE_II, TYPE_III, TYPE_IV)} == {
        TYPE_I: 2.0, TYPE_II: 1.5, TYPE_III: 0.5, TYPE_IV: 1.5,
    }  # fmt: skip
    assert 0.5 <= DEFAULT_WEIGHTS[TYPE_V] <= 1.5
    assert set(DEFAULT_WEIGHTS) == set(LOOP_TYPES) == {TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI}


def test_a_finding_adds_weight_times_confidence() -> None:
    episode = Episode()
    play(episode, finding(TYPE_I, 0.5))
    assert episode.score == 1.0
    play(episode, finding(TYPE_III, 0.8) + finding(TYPE_IV, 0.5))
    assert episode.score == pytest.approx(1.0 + 0.5 * 0.8 + 1.5 * 0.5)


def test_a_step_without_finding_halves_the_score() -> None:
    episode = Episode()
    play(episode, finding(), NOTHING)
    assert episode.score == 1.0
    play(episode, NOTHING, NOTHING)
    assert episode.score == 0.25


def test_the_score_is_capped() -> None:
    episode = Episode()
    play(episode, *[finding() + finding(TYPE_II) + finding(TYPE_IV)] * 4)
    assert episode.score == 5.0


def test_thresholds_are_inclusive() -> None:
    assert play(Episode(), finding(TYPE_I, 1.0)) == [Level.NUDGE]
    assert play(Episode(), finding(TYPE_I, 0.999)) == [Level.OBSERVE]
    assert play(Episode(), finding(TYPE_I, 1.0), finding(TYPE_I, 0.5)) == [Level.NUDGE, Level.STOP]
    assert play(Episode(), finding(TYPE_I, 1.0), finding(TYPE_I, 0.499)) == [Level.NUDGE, Level.NUDGE]


def test_a_high_score_at_once_is_a_nudge_and_no_stop() -> None:
    assert play(Episode(), finding() + finding(TYPE_II) + finding(TYPE_IV)) == [Level.NUDGE]


def test_a_step_without_finding_never_intervenes_however_high_the_score() -> None:
    episode = Episode()
    assert play(episode, finding(), finding(), NOTHING) == [Level.NUDGE, Level.STOP, Level.OBSERVE]


def test_type_iii_alone_nudges_and_never_stops() -> None:
    episode = Episode()
    levels = play(episode, *[finding(TYPE_III, soft=True)] * 50)
    assert Level.NUDGE in levels
    assert Level.STOP not in levels
    assert episode.score == 5.0


def test_a_hard_finding_after_soft_ones_may_stop() -> None:
    levels = play(Episode(), *[finding(TYPE_III, soft=True)] * 8, finding(TYPE_I))
    assert levels[-1] is Level.STOP


def test_one_nudge_an_episode() -> None:
    episode = Episode()
    play(episode, finding(), *[finding(TYPE_V, 0.1)] * 5)
    assert (episode.number, episode.nudges) == (1, 1)


def test_recovery_closes_the_episode_and_a_later_loop_opens_another() -> None:
    episode = Episode()
    play(episode, finding(first=4))
    assert (episode.active, episode.number, episode.first_step) == (True, 1, 4)
    play(episode, NOTHING, NOTHING)
    assert episode.active
    play(episode, NOTHING)
    assert (episode.active, episode.recoveries, episode.first_step) == (False, 1, -1)
    assert play(episode, finding(first=20)) == [Level.NUDGE]
    assert (episode.number, episode.nudges, episode.first_step, episode.active) == (2, 2, 20, True)


def test_an_episode_without_a_nudge_is_no_recovery() -> None:
    episode = Episode()
    play(episode, finding(TYPE_I, 0.5), *[NOTHING] * 5)
    assert (episode.active, episode.number, episode.recoveries) == (False, 1, 0)


def test_a_repeat_soon_after_the_nudge_escalates_in_the_same_episode() -> None:
    levels = play(Episode(), finding(), NOTHING, finding())
    assert levels == [Level.NUDGE, Level.OBSERVE, Level.STOP]


def test_the_calls_of_one_batch_count_as_one_step() -> None:
    episode, engine = Episode(), scorer()
    levels = [engine.apply(episode, finding(TYPE_I, 0.5), same_batch=at > 0) for at in range(4)]
    assert (episode.score, levels) == (1.0, [Level.OBSERVE] * 4)
    engine.apply(episode, finding(TYPE_II), same_batch=True)
    assert episode.score == 2.5
    engine.apply(episode, NOTHING, same_batch=True)
    assert episode.score == 2.5


def test_a_batch_without_finding_decays_once() -> None:
    episode, engine = Episode(), scorer()
    play(episode, finding())
    for at in range(5):
        engine.apply(episode, NOTHING, same_batch=at > 0)
    assert episode.score == 1.0


def test_a_finding_late_in_a_batch_takes_the_decay_back() -> None:
    episode, engine = Episode(), scorer()
    play(episode, finding())
    engine.apply(episode, NOTHING, same_batch=False)
    engine.apply(episode, finding(TYPE_I, 0.25), same_batch=True)
    assert episode.score == 2.5


def test_no_stop_in_the_batch_of_the_nudge() -> None:
    episode, engine = Episode(), scorer()
    levels = [
        engine.apply(episode, finding(kind), same_batch=at > 0) for at, kind in enumerate((TYPE_I, TYPE_II, TYPE_IV))
    ]
    assert (episode.score, Level.STOP in levels) == (5.0, False)
    assert engine.apply(episode, finding(), same_batch=False) is Level.STOP


def test_absolution_starts_from_zero() -> None:
    episode = Episode()
    play(episode, finding())
    episode.absolve()
    assert (episode.score, episode.active, episode.nudges) == (0.0, False, 1)
    assert play(episode, finding(TYPE_I, 0.5)) == [Level.OBSERVE]


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(LOOP_TYPES), st.floats(0.05, 1.0), st.booleans()),
            max_size=3,
            unique_by=lambda one: one[0],
        ),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps)
def test_no_sequence_stops_before_it_nudged(sequence: list) -> None:
    episode, engine, batch, nudged = Episode(), scorer(), 0, {}
    for found, joins in sequence:
        results = tuple(
            DetectionResult(kind, value, {"first_step": 0}, soft or kind == TYPE_III) for kind, value, soft in found
        )
        batch += not joins
        level = engine.apply(episode, results, same_batch=joins)
        assert 0.0 <= episode.score <= 5.0
        if level is Level.NUDGE:
            nudged.setdefault(episode.number, batch)
        if level is Level.STOP:
            assert nudged[episode.number] < batch
            assert episode.score >= 3.0
            assert results
    assert episode.nudges == len(nudged)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(LOOP_TYPES), st.floats(0.05, 1.0)), max_size=3, unique_by=lambda one: one[0]
        ),
        max_size=30,
    )
)
def test_the_score_is_the_formula(sequence: list) -> None:
    episode, score = Episode(), 0.0
    for found in sequence:
        play(episode, tuple(DetectionResult(kind, value, {"first_step": 0}) for kind, value in found))
        gain = sum(DEFAULT_WEIGHTS[kind] * value for kind, value in found)
        score = min(5.0, score + gain) if found else score * 0.5
        assert episode.score == pytest.approx(score)


def test_an_episode_survives_its_plain_form() -> None:
    episode = Episode()
    play(episode, finding(), NOTHING, finding(TYPE_II, 0.5))
    copy = Episode.from_plain(episode.to_plain())
    assert copy.to_plain() == episode.to_plain()
    assert play(copy, finding()) == play(episode, finding())
