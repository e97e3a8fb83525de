"""Batches of parallel calls of any size: a batch counts once, and is recognised when it comes again."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.history import LARGEST
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord

TURNS = 12


def page(number: int) -> str:
    name = "".join(chr(ord("a") + int(digit)) for digit in str(number))  # a figure may be read as a status
    return f"This page tells at length of the valley of {name.title()}, of its people, and of nothing else."


def turns(*batches: list[StepRecord]) -> list[StepRecord]:
    """The batches as model turns, over and over."""
    return [
        step._replace(step_id=f"{turn:08x}{at:08x}", batch=str(turn), timestamp=turn * 1.0)
        for turn in range(TURNS)
        for at, step in enumerate(batches[turn % len(batches)])
    ]


def reads(*pages: int) -> list[StepRecord]:
    return [record("read", {"page": number}, page(number)) for number in pages]


def turn_of(steps: list[StepRecord], level: Level) -> int | None:
    at = first_level(evaluate(steps), level)
    return None if at is None else int(steps[at].batch or 0)


SIZES = [2, 12, 31, 32, 33, 64, *(pytest.param(size, marks=pytest.mark.slow) for size in (40, 127, 128))]


@pytest.mark.parametrize("size", SIZES)
def test_an_equal_batch_is_nudged_and_stopped_at_any_size(size: int) -> None:
    steps = turns(reads(*range(size)))

    assert (turn_of(steps, Level.NUDGE), turn_of(steps, Level.STOP)) == (2, 4)


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_of_copies_is_nudged_and_stopped_at_any_size(size: int) -> None:
    """Many copies are a loop in the first message already; a stop needs two more messages after the nudge."""
    steps = turns(reads(*[7] * size))

    assert (turn_of(steps, Level.NUDGE), turn_of(steps, Level.STOP)) == ((2, 4) if size == 2 else (0, 2))


@pytest.mark.parametrize("size", [pytest.param(400, marks=pytest.mark.nightly), 512])
def test_two_batches_of_the_largest_size_fit_into_the_memory(size: int) -> None:
    assert turn_of(turns(reads(*range(size)))[: 5 * size], Level.NUDGE) is not None


def test_copies_in_a_batch_evict_nothing() -> None:
    few = reads(*range(10))
    steps = turns([*few, *reads(*[10] * 500)], few, few)[:530]

    third = evaluate(steps)[-10:]

    assert [verdict.detections[0].calls for verdict in third if verdict is not None] == [3] * 10


ANSWERS = [("success", page(1)), ("error", "KeyError: 'total'"), ("empty", "")]


@pytest.mark.parametrize(("outcome", "result"), ANSWERS)
@pytest.mark.parametrize("size", [3, 8])
def test_some_copies_within_one_batch_are_no_loop(outcome: str, result: str, size: int) -> None:
    """They may be samples, or workers that all begin with one guide."""
    copies = [record("read", {"page": 1}, result, outcome, thought="Let me look at it again.")] * size
    assert not any(verdict.detections for verdict in evaluate(turns(copies)[:size]) if verdict is not None)


@pytest.mark.parametrize(("outcome", "result"), ANSWERS)
@pytest.mark.parametrize("others", [0, 1, 5])
def test_a_model_that_writes_one_call_dozens_of_times_into_a_message_is_nudged(
    outcome: str, result: str, others: int
) -> None:
    """Seen in recorded runs: 84 equal reads in one message. It is never stopped for it: it could read no nudge."""
    copies = [record("read", {"page": 1}, result, outcome)] * 40
    message = turns([*reads(*range(10, 10 + others)), *copies])[: 40 + others]

    verdicts = [verdict for verdict in evaluate(message) if verdict is not None]

    nudges = [at for at, verdict in enumerate(verdicts) if verdict.nudge is not None]
    assert nudges == [others + 9]
    assert {one.rule for verdict in verdicts for one in verdict.detections} == {"same_call_same_result"}
    assert verdicts[-1].level is Level.NUDGE


def test_overlapping_copies_of_no_known_message_are_no_loop() -> None:
    """Parallel workers that ask for one thing at once."""
    copies = [record("read", {"page": 1}, page(1), t=10.0 + at / 100, dur=1.0) for at in range(40)]
    assert not any(verdict.detections for verdict in evaluate(copies) if verdict is not None)


def test_an_ever_new_batch_is_healthy() -> None:
    steps = [
        record("read", {"page": turn * 100 + at}, page(turn * 100 + at), batch=str(turn))
        for turn in range(8)
        for at in range(48)
    ]

    assert first_level(evaluate(steps)) is None


def test_copies_count_as_steps_of_the_loop() -> None:
    steps = turns(reads(*[7] * 5))[:25]

    (last,) = evaluate(steps)[-5:-4]

    assert last is not None
    assert last.spent.steps == 20
    assert last.spent.seconds == pytest.approx(4.0)


def test_the_memory_of_batches_is_bounded() -> None:
    engine = Engine(EngineSettings(history_steps=12))
    state = engine.new_state("t")
    for at in range(12 * LARGEST + 50):
        engine.observe(state, record("read", {"page": at}, page(at), batch="one"))

    assert state.run is not None
    assert len(state.run.history.calls) == len(state.run.history.places) == 12 * LARGEST


def test_a_state_with_copies_survives_saving() -> None:
    engine = Engine()
    state = engine.new_state("t")
    for step in turns(reads(*[7] * 5, *range(40))):
        expected = engine.observe(state, step)
        state = engine.load_state(state.to_bytes())
    assert expected is not None
    assert expected.level is Level.STOP


# Found: every later call of it raised an error in the engine, so that the loop was never found.
@pytest.mark.parametrize("labelled", [True, False], ids=["labels", "times"])
@pytest.mark.parametrize("turn", [(1, 2, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 2, 1, 3, 1), (2, 1, 3, 1)])
def test_a_call_that_one_turn_made_twice_beside_something_new_is_found_in_later_turns(
    turn: tuple[int, ...], labelled: bool
) -> None:
    parallel = [one._replace(batch="first", timestamp=at / 100, duration=1.0) for at, one in enumerate(reads(*turn))]
    later = [one._replace(batch=str(at), timestamp=2.0 + at) for at, one in enumerate(reads(*[1] * TURNS))]
    steps = [
        one._replace(step_id=f"{at:016x}", batch=one.batch if labelled else None)
        for at, one in enumerate([*parallel, *later])
    ]

    verdicts = evaluate(steps)[len(turn) :]

    assert (first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)) == (2, 4)


# Found: a look at something that one turn made twice turned the next step, whatever it was, into a wait.
@pytest.mark.parametrize(
    "tool, result",
    [("get_status", "No results found."), ("poll", "[]"), ("check_status", "No builds found."), ("poll_queue", "[]")],
)
def test_a_copy_of_a_wait_makes_no_wait_of_the_next_step(tool: str, result: str) -> None:
    look, call = record(tool, {"of": "build"}, result), record("search", {"q": "a"}, "3 of 5 complete")

    def levels(first: list[StepRecord]) -> list[str]:
        steps = turns([call], [look], first, [call], [call], [call], [call], [call])[: len(first) + 7]
        return [str(one.level) for one in evaluate(steps)[-5:] if one is not None]

    assert levels([look, call, look]) == levels([look, call])
    assert "NUDGE" in levels([look, call])
