"""What the model counts aloud towards a number that it has set is done several times on purpose, and ends."""

from __future__ import annotations

import pytest

from tests.bench.situations import evaluate_situation, situations
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


def test_the_first_number_after_a_nudge_covers_a_short_lap() -> None:
    lap = ["print", "dry", "look"]
    steps = [
        record(lap[at % 3], {"label": "A-17"}, f"{lap[at % 3]} of the label A-17 is done as ordered")
        for at in range(90)
    ]
    nudged = first_level(evaluate(steps))
    assert nudged is not None
    first = nudged + 1
    said = {at: f"label {1 + (at - first) // 3} of 25" for at in range(first, len(steps)) if not (at - first) % 3}
    answered = [step._replace(thought=said.get(at)) for at, step in enumerate(steps)][: first + 75]

    assert first_level(evaluate(answered), Level.STOP) is None
    assert first_level(evaluate(steps[: first + 75]), Level.STOP) is not None


@pytest.mark.parametrize("said", ["6-10 of 40", "Items 6–10 / 40"])
def test_of_calls_that_are_made_together_the_last_one_counts(said: str) -> None:
    count = Count().after(said, 0)
    assert (count.number, count.total) == (10, 40)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "longer"), [("hosts", 3), ("hostsagain", 1)])
def test_an_agent_that_answers_the_nudge_by_counting_is_not_stopped(name: str, longer: int) -> None:
    """All but those whose work is longer than any count may be."""
    stopped = [(run, out) for run in situations(name) if (out := evaluate_situation(run)).wrongly_stopped]
    remaining = 0
    for run, out in stopped:
        begun = out.nudge + 1
        places = [
            at for at in range(begun, len(run["steps"])) if run["steps"][at]["tool"] == run["steps"][begun]["tool"]
        ]
        said = {at: f"{number} of {len(places)}" for number, at in enumerate(places, 1)}
        steps = [{**step, "thought": said.get(at)} for at, step in enumerate(run["steps"])]
        remaining += evaluate_situation({**run, "steps": steps}).wrongly_stopped

    assert len(stopped) > 10
    assert remaining <= longer


def test_a_count_that_stands_still_or_is_too_long_excuses_nothing() -> None:
    still = Count().after("try 2 of 9", 0).after("try 3 of 9", 1).after("try 3 of 9", 2)
    long = Count().after(f"1 of {MAX_TOTAL + 1}", 0).after(f"2 of {MAX_TOTAL + 1}", 1)
    assert not still.covers(2)
    assert not long.covers(1)
