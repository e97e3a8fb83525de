"""The series of scores, their trend, and which courses of scores are a drop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.quality.chance import share
from trajectory_guard.core.quality import (
    MAX_SERIES,
    Change,
    QualityRule,
    QualitySeries,
    TrajectoryQuality,
    check_score,
    has_dropped,
    quality_of_logprob,
    trend_of,
)

RULE = QualityRule()
BY_THE_BOOK = QualityRule(deviations=0.0)
scores = st.lists(st.floats(0.0, 1.0), max_size=200)


def changes(values: Sequence[float], rule: QualityRule = RULE) -> list[Change | None]:
    series = QualitySeries()
    return [series.add(value, rule) for value in values]


def drops(values: Sequence[float], rule: QualityRule = RULE) -> int:
    return changes(values, rule).count(Change.DROPPED)


# --- the trend -------------------------------------------------------------------------------------------------------


@given(scores, st.integers(2, 25), st.integers(0, 100))
def test_a_series_remembers_the_newest_scores_only(values: list[float], recent: int, more: int) -> None:
    rule = QualityRule(recent=recent, window=2 * recent + more)
    series = QualitySeries()
    for at, value in enumerate(values, 1):
        series.add(value, rule)
        assert list(series.scores) == values[max(0, at - rule.window) : at]


@given(scores, st.integers(2, 25))
def test_the_trend_is_the_mean_of_the_newest_against_the_mean_of_the_others(values: list[float], recent: int) -> None:
    trend = trend_of(values, recent)
    if len(values) < 2 * recent:
        assert trend is None
    else:
        assert trend is not None
        assert trend.now == pytest.approx(fmean(values[-recent:]), abs=1e-12)
        assert trend.before == pytest.approx(fmean(values[:-recent]), abs=1e-12)
        error = stdev(values[:-recent]) * (1 / recent + 1 / (len(values) - recent)) ** 0.5
        assert trend.error == pytest.approx(error, abs=1e-9)


def first_drop_by_the_book(values: Sequence[float], deviations: float = 0.0) -> int | None:
    """A straightforward reading of the rule, with whole windows and nothing remembered in between."""
    for end in range(10, len(values) + 1):
        window = values[max(0, end - 50) : end]
        difference = fmean(window[:-5]) - fmean(window[-5:])
        noise = deviations * stdev(window[:-5]) * (1 / 5 + 1 / (len(window) - 5)) ** 0.5
        if difference >= 0.15 and difference >= noise - 1e-9 and fmean(window[-5:]) < 0.5:
            return end - 1
    return None


@given(st.lists(st.integers(0, 64).map(lambda one: one / 64), max_size=150), st.sampled_from([0.0, 1.0, 3.0]))
def test_the_first_drop_is_where_the_rule_says(values: list[float], deviations: float) -> None:
    found = changes(values, QualityRule(deviations=deviations))
    first = found.index(Change.DROPPED) if Change.DROPPED in found else None
    assert first == first_drop_by_the_book(values, deviations)


@given(st.lists(st.floats(0.0, 1.0), min_size=10, max_size=60), st.randoms(use_true_random=False))
def test_the_order_within_the_newest_and_within_the_earlier_ones_does_not_matter(
    values: list[float], shuffled: random.Random
) -> None:
    earlier, newest = values[:-5], values[-5:]
    before = trend_of(values, 5)
    shuffled.shuffle(earlier)
    shuffled.shuffle(newest)
    after = trend_of([*earlier, *newest], 5)
    assert before is not None
    assert after is not None
    assert after == pytest.approx(before, abs=1e-9)


dropped = st.tuples(
    st.lists(st.floats(0.5, 1.0), min_size=5, max_size=45), st.lists(st.floats(0.0, 0.5), min_size=5, max_size=5)
).map(lambda parts: [*parts[0], *parts[1]])  # fmt: skip
"""Scores of which most have dropped."""


@given(dropped, st.integers(0, 4), st.floats(0.0, 1.0))
def test_a_lower_newest_score_never_turns_a_drop_into_none(values: list[float], place: int, lower: float) -> None:
    trend = trend_of(values, 5)
    assert trend is not None
    assume(has_dropped(trend, RULE))
    worse = [*values]
    worse[-1 - place] = min(lower, values[-1 - place])
    again = trend_of(worse, 5)
    assert again is not None
    assert has_dropped(again, RULE)


@given(dropped, st.data())
def test_higher_earlier_scores_never_turn_a_drop_into_none(values: list[float], data: st.DataObject) -> None:
    trend = trend_of(values, 5)
    assert trend is not None
    assume(has_dropped(trend, BY_THE_BOOK))
    place = data.draw(st.integers(0, len(values) - 6))
    again = trend_of([*values[:place], 1.0, *values[place + 1 :]], 5)
    assert again is not None
    assert has_dropped(again, BY_THE_BOOK)


@given(st.lists(st.floats(0.0, 1.0), min_size=10, max_size=80), st.floats(0.0, 1.0))
def test_scores_that_only_rise_are_never_a_drop(values: list[float], start: float) -> None:
    assert drops(sorted(values)) == 0
    assert drops([start] * len(values)) == 0


@pytest.mark.parametrize(("before", "now", "is_drop"), [
    (0.65, 0.5, False),  # not below the floor
    (0.64, 0.49, True), (0.6, 0.45, True),  # a difference of 0.15, whatever floats make of it
    (0.63, 0.49, False), (0.9, 0.55, False), (0.4, 0.26, False), (0.4, 0.25, True), (1.0, 0.0, True),
])  # fmt: skip
def test_both_limits_count(before: float, now: float, is_drop: bool) -> None:
    assert bool(drops([before] * 5 + [now] * 5)) is is_drop


def test_nothing_is_said_with_too_few_earlier_scores() -> None:
    assert drops([1.0] * 4 + [0.0] * 5) == 0
    assert changes([1.0] * 5 + [0.0] * 5)[-1] is Change.DROPPED


# --- what is a drop, and what is not ---------------------------------------------------------------------------------


def noise(
    middle: float, spread: float, length: int = 300, *, low: float = 0.0
) -> Callable[[random.Random], list[float]]:
    return lambda made: [min(1.0, max(low, made.gauss(middle, spread))) for _ in range(length)]


HEALTHY: dict[str, Callable[[random.Random], list[float]]] = {
    "constant high": lambda made: [0.9] * 300,
    "constant low": lambda made: [0.2] * 300,
    "low with noise": noise(0.25, 0.05),
    "high with noise": noise(0.85, 0.1),
    "middle with noise": noise(0.65, 0.06),
    "slow drift above the floor": lambda made: [0.95 - 0.4 * at / 300 + made.gauss(0, 0.02) for at in range(300)],
    "slow drift far below the floor": lambda made: [0.8 - 0.6 * at / 2000 for at in range(2000)],
    "one outlier now and then": lambda made: [0.0 if at % 12 == 11 else 0.9 for at in range(300)],
    "two outliers in a row": lambda made: [0.0 if at % 40 in (20, 21) else 0.9 for at in range(300)],
    "steps up": lambda made: [0.3 + 0.1 * (at // 60) for at in range(300)],
    "two values by turns": lambda made: [0.9 if at % 2 else 0.6 for at in range(300)],
    "a judge that says yes or no by turns": lambda made: [float(at % 3 > 0) for at in range(300)],
    "drop that ends above the floor": lambda made: [0.95] * 50 + [0.6] * 100,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_course_of_scores_stays_quiet(kind: str, seed: int) -> None:
    assert drops(HEALTHY[kind](random.Random(seed))) == 0


DROPS: dict[str, Callable[[random.Random], list[float]]] = {
    "at once": lambda made: [0.9] * 20 + [0.2] * 5,
    "with noise": lambda made: [made.gauss(0.8, 0.08) for _ in range(40)] + [made.gauss(0.3, 0.08) for _ in range(10)],
    "over twenty scores": lambda made: [0.9] * 30 + [0.9 - 0.035 * at for at in range(20)],
    "of a judge that says yes or no": lambda made: [1.0] * 20 + [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    "from a middling level": lambda made: [0.55] * 25 + [0.35] * 8,
    "after a rise": lambda made: [0.2] * 20 + [0.9] * 30 + [0.1] * 6,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", DROPS)
def test_a_drop_is_found(kind: str, seed: int) -> None:
    assert drops([min(1.0, max(0.0, one)) for one in DROPS[kind](random.Random(seed))]) > 0


@pytest.mark.parametrize("kind", ["0.65, deviation 0.20", "yes in 80 %", "yes in 60 %"])
def test_scores_that_vary_widely_drop_by_chance_far_less_often(kind: str) -> None:
    assert share(kind, RULE, runs=100) < 0.6 * share(kind, BY_THE_BOOK, runs=100)
    assert share(kind, QualityRule(recent=20), runs=100) < 0.1


def test_scores_that_stay_low_are_new_evidence_only_when_all_newest_ones_are_new() -> None:
    found = changes([0.9] * 20 + [0.2] * 15)
    assert [at for at, one in enumerate(found) if one is Change.DROPPED] == [22, 27, 32]


def test_scores_that_stay_low_for_good_become_the_usual_without_a_recovery() -> None:
    found = changes([0.9] * 20 + [0.2] * 300)
    assert Change.RECOVERED not in found
    assert Change.DROPPED not in found[90:]


@pytest.mark.parametrize("back", [0.9, 0.55])
def test_scores_that_come_back_are_a_recovery_once(back: float) -> None:
    found = changes([0.9] * 20 + [0.2] * 6 + [back] * 20)
    assert found.count(Change.RECOVERED) == 1


def test_scores_that_come_nearly_back_below_the_floor_are_a_recovery_too() -> None:
    assert changes([0.45] * 20 + [0.1] * 5 + [0.4] * 10).count(Change.RECOVERED) == 1


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.001, 1.001, 4, 100])
def test_a_number_that_is_no_score_is_refused_with_its_value(value: float) -> None:
    with pytest.raises(ValueError, match=r"score: expected a number from 0 to 1, got "):
        check_score(value)


@pytest.mark.parametrize("value", ["0.5", b"1", None, [0.5], {}, object()])
def test_anything_else_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(TypeError, match=rf"score: expected a number from 0 to 1, got {type(value).__name__}"):
        check_score(value)


def test_numbers_of_other_libraries_are_scores() -> None:
    from decimal import Decimal
    from fractions import Fraction

    assert [check_score(one) for one in (0, 1, True, Decimal("0.25"), Fraction(1, 2))] == [0.0, 1.0, 1.0, 0.25, 0.5]


@given(st.floats(-1e6, 0.0), st.floats(-1e6, 0.0))
def test_the_score_of_log_probabilities_is_a_score_and_rises_with_them(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0.0 <= quality_of_logprob(low) <= quality_of_logprob(high) <= 1.0
    assert quality_of_logprob(high) == pytest.approx(max(0.0, 1.0 + high / 2.0))


# --- a trajectory ----------------------------------------------------------------------------------------------------


def test_agents_and_names_have_series_of_their_own_within_a_bound() -> None:
    memory = TrajectoryQuality()
    for at in range(3 * MAX_SERIES):
        memory.series_of("alice", "usual").add(0.9, RULE)
        memory.series_of("bob", f"name {at}").add(0.5, RULE)
        assert len(memory.series) <= MAX_SERIES
    assert len(memory.series_of("alice", "usual").scores) == 3 * MAX_SERIES
    assert memory.agents == {"alice", "bob"}
