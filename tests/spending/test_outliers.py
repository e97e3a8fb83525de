"""Calls that cost far more tokens than usual."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.spending.outliers import NEW_NORMAL, WARM_UP, Baseline


def warm(value: float = 1000.0) -> Baseline:
    baseline = Baseline()
    for at in range(2 * WARM_UP):
        baseline.check(value + (at % 3 - 1) * value / 20)
    return baseline


def test_a_spike_is_an_outlier_and_does_not_move_the_baseline() -> None:
    baseline = warm()
    mean, variance = baseline.mean, baseline.variance

    found = baseline.check(100_000)

    assert found is not None
    assert found.deviations > 3
    assert (baseline.mean, baseline.variance) == (mean, variance)
    assert baseline.check(100_000) is not None  # the second one is found as well: the first was left out


def test_nothing_is_compared_during_the_warm_up() -> None:
    baseline = Baseline()
    assert [baseline.check(10.0**at) for at in range(WARM_UP)] == [None] * WARM_UP


def test_calls_that_are_all_alike_leave_room_for_a_little_more() -> None:
    baseline = Baseline()
    for _ in range(50):
        baseline.check(1000)
    assert baseline.check(1200) is None


def test_less_than_usual_is_no_outlier() -> None:
    assert warm().check(1) is None


def test_usage_that_grows_steadily_is_followed() -> None:
    baseline = warm()
    value = 1000.0
    for _ in range(100):
        value *= 1.03
        assert baseline.check(value) is None


def test_many_outliers_in_a_row_are_the_new_usual() -> None:
    baseline = warm()
    found = [baseline.check(50_000) for _ in range(NEW_NORMAL + WARM_UP + 5)]
    assert all(one is not None for one in found[:NEW_NORMAL])
    assert all(one is None for one in found[NEW_NORMAL:])
    assert round(baseline.mean) == 50_000


@given(st.lists(st.floats(0, 1e12), max_size=200))
def test_no_value_breaks_the_baseline(values: list[float]) -> None:
    baseline = Baseline()
    for value in values:
        baseline.check(value)
    assert baseline.variance >= 0
    assert 0 <= baseline.mean <= 1e12 * 1.001
