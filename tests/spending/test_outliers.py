"""Calls that cost far more tokens than usual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_guard.spending.outliers import LEAST_TOKENS, NEW_NORMAL, RECENT, RECURRING, WARM_UP, Baseline


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


def test_a_larger_size_that_stays_is_the_new_usual() -> None:
    baseline = warm()
    found = [baseline.check(50_000) is not None for _ in range(40)]
    assert found == [True] * RECURRING + [False] * (40 - RECURRING)
    assert round(baseline.mean, -3) == 50_000


def test_outliers_of_growing_size_are_the_new_usual_after_ten() -> None:
    baseline = warm()
    found = [baseline.check(10_000 * 1.6**at) is not None for at in range(NEW_NORMAL + 5)]
    assert found == [True] * NEW_NORMAL + [False] * 5


@pytest.mark.parametrize("small", [7, 500, 2_000])
@pytest.mark.parametrize("every", [2, 3, 5, 20])
@pytest.mark.parametrize("first", [10, 30, 100])
def test_two_sizes_that_alternate_are_both_usual(small: int, every: int, first: int) -> None:
    """An agent answers shortly where it calls a tool, and at length at the end; or a cheap route alternates with another."""
    baseline = Baseline()
    assert not any(baseline.check(small) for _ in range(first))
    found = [at for at in range(400) if baseline.check(50 * small if at % every == 0 else small)]
    assert len(found) <= RECURRING


def test_three_sizes_in_any_order_are_usual() -> None:
    baseline, sizes = warm(), [1_000, 1_000, 9_000, 1_000, 30_000, 9_000, 1_000]
    found = [at for at in range(300) if baseline.check(sizes[at * at % 7])]
    assert len(found) <= 2 * RECURRING


def test_a_spike_after_two_sizes_is_still_an_outlier() -> None:
    baseline = warm()
    for at in range(60):
        baseline.check(1_000 if at % 2 else 9_000)
    assert baseline.check(200_000) is not None


def test_spikes_that_are_rare_are_each_an_outlier() -> None:
    baseline = warm()
    assert sum(baseline.check(100_000 if at % RECENT == 0 else 1_000) is not None for at in range(10 * RECENT)) == 10


@pytest.mark.parametrize("usual", [1, 7, 40, 300])
def test_few_tokens_above_the_usual_are_no_outlier(usual: int) -> None:
    baseline = warm(usual)
    assert baseline.check(usual + 0.98 * LEAST_TOKENS) is None
    assert warm(usual).check(usual * 1.1 + LEAST_TOKENS) is not None
    assert warm(usual).check(20 * usual + 60, least=0) is not None, "the floor can be switched off"


@given(st.lists(st.floats(0, 1e12), max_size=200))
def test_no_value_breaks_the_baseline(values: list[float]) -> None:
    baseline = Baseline()
    for value in values:
        baseline.check(value)
    assert baseline.variance >= 0
    assert 0 <= baseline.mean <= 1e12 * 1.001
