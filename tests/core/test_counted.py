"""What the model counts aloud towards a number that it has set is done several times on purpose, and ends."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.grids import MAX_TOTAL, Count
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord


def measured(number: int, thought: str) -> StepRecord:
    result = f"algo=pdq n=5000000\ntime: {200 + 7 * number % 23}.{number % 10} ms\nchecksum: 88d1f0"
    return record("bash", {"command": "./sortbench --algo pdq"}, result, thought=thought)


@pytest.mark.parametrize(
    "said",
    ["pdq run {} of 10", "Durchlauf {}/10", "第{}次,共10次", "{} de 10", "Messung {} von 10 (warm)", "Run {} of 10."],
)
def test_a_counted_series_is_left_alone(said: str) -> None:
    verdicts = evaluate([measured(number, said.format(number)) for number in range(1, 11)])
    assert first_level(verdicts) is None


def test_the_same_series_without_a_count_is_nudged() -> None:
    assert first_level(evaluate([measured(number, "Once more.") for number in range(1, 11)])) is not None


def test_every_fourth_number_is_enough() -> None:
    said = [f"run {number} of 17" if number % 4 == 1 else "" for number in range(1, 18)]
    verdicts = evaluate([measured(number, one) for number, one in enumerate(said, 1)])
    assert first_level(verdicts, Level.STOP) is None


def test_a_lap_is_counted_as_a_whole() -> None:
    steps = []
    for lap in range(1, 6):
        steps.append(record("set_flag", {"value": True}, "cache=true", thought=f"A/B round {lap} of 5"))
        steps.append(record("measure", {"route": "/"}, f'{{"p50_ms": {31 + lap % 3}.2}}'))
        steps.append(record("set_flag", {"value": False}, "cache=false"))
        steps.append(record("measure", {"route": "/"}, f'{{"p50_ms": {57 + lap % 2}.4}}'))
    assert first_level(evaluate(steps)) is None


def test_what_goes_on_behind_the_count_is_found() -> None:
    counted = [measured(number, f"run {number} of 4") for number in range(1, 5)]
    beyond = [measured(number, "again") for number in range(5, 12)]
    assert first_level(evaluate(counted + beyond), Level.STOP) is not None


def test_a_count_that_begins_anew_for_ever_is_a_loop() -> None:
    said = [f"attempt {1 + number % 5} of 5" for number in range(300)]
    verdicts = evaluate(
        [record("bash", {"command": "make"}, "ok, 3 rows written to the table", thought=one) for one in said]
    )
    assert first_level(verdicts, Level.STOP) is not None


def test_a_count_that_stands_still_or_is_too_long_excuses_nothing() -> None:
    still = Count().after("try 2 of 9", 0).after("try 3 of 9", 1).after("try 3 of 9", 2)
    long = Count().after(f"1 of {MAX_TOTAL + 1}", 0).after(f"2 of {MAX_TOTAL + 1}", 1)
    assert not still.covers(2)
    assert not long.covers(1)
