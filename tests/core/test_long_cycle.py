"""Laps that are longer than the memory of calls are found, whatever their length, and work is not taken for one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.laps import KEPT, Walk
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

NOUNS = [
    "river",
    "stone",
    "cloud",
    "tree",
    "house",
    "road",
    "lamp",
    "chair",
    "clock",
    "bridge",
    "garden",
    "window",
    "letter",
    "market",
    "engine",
    "harbour",
]


def files(count: int, seed: int = 0) -> list[tuple[str, dict[str, str], str]]:
    """Calls with their results, each another one."""
    dice = random.Random(seed)
    tools = ("read_file", "grep", "list_dir", "open_page")
    return [
        (tools[at % 4], {"path": f"{dice.choice(NOUNS)}/{dice.choice(NOUNS)}_{at}.py"}, f"{at}: {_text(dice)}")
        for at in range(count)
    ]


def _text(dice: random.Random) -> str:
    return " ".join(dice.choices(NOUNS, k=24)) + f", {dice.randrange(10**6)} lines"


def laps(count: int, times: int, noise: bool = False) -> Iterator[StepRecord]:
    dice = random.Random(count)
    for _ in range(times):
        for tool, args, result in files(count):
            clock = (
                f"\nread in {dice.random():.3f}s at 2026-11-28T10:{dice.randrange(60):02d}:{dice.randrange(60):02d}Z"
            )
            yield record(tool, args, result + clock * noise)


def levels(steps: Iterable[StepRecord], gap_s: float = 3.0) -> list[Level]:
    numbered = [one._replace(step_id=f"{at + 1:016x}", timestamp=at * gap_s) for at, one in enumerate(steps)]
    return [Level.OBSERVE if one is None else one.level for one in evaluate(numbered)]


def first(level: Level, steps: Iterable[StepRecord]) -> int | None:
    return next((at for at, one in enumerate(levels(steps)) if one.rank >= level.rank), None)


@pytest.mark.parametrize("noise", [False, True], ids=["equal", "clocks"])
@pytest.mark.parametrize("length", [7, 12, 23, 31, 33, 48, 90, 160])
def test_a_lap_of_any_length_ends_in_a_stop(length: int, noise: bool) -> None:
    found = levels(laps(length, 5, noise))
    nudged = next(at for at, one in enumerate(found) if one is not Level.OBSERVE)
    stopped = next(at for at, one in enumerate(found) if one is Level.STOP)
    assert 2 * length <= nudged + 1 <= 3 * length + 10
    assert nudged < stopped <= 4 * length + 30


@settings(max_examples=15, deadline=None)
@given(st.integers(33, 120), st.integers(0, 9))
def test_calls_may_change_places_a_little(length: int, seed: int) -> None:
    dice = random.Random(seed)
    steps = []
    for _ in range(6):
        lap = files(length)
        for at in range(0, length - 1, 5):
            if dice.random() < 0.5:
                lap[at], lap[at + 1] = lap[at + 1], lap[at]
        steps += [record(*one) for one in lap]
    assert Level.NUDGE in levels(steps)


@settings(max_examples=15, deadline=None)
@given(st.integers(7, 120), st.integers(0, 9))
def test_work_in_each_lap_is_none(length: int, seed: int) -> None:
    """An agent that changes a file after each tour through the others."""
    steps = []
    for lap in range(5):
        tour = [record(*one) for one in files(length, seed)]
        tour.insert(
            length // 2, record("edit", {"path": "main.py", "text": f"version {lap}"}, f"main.py has {lap} edits")
        )
        steps += tour
    assert not any("long_cycle" in _rules(one) for one in _verdicts(steps))


@pytest.mark.parametrize("every", [1, 20, 40])
def test_a_tour_of_inspection_with_pauses_is_not_stopped(every: int) -> None:
    steps, now = [], 0.0
    for at, one in enumerate(laps(40, 6)):
        now += 300.0 if at % every == 0 else 2.0
        steps.append(one._replace(step_id=f"{at + 1:016x}", timestamp=now))
    assert not any(one is not None and one.level is Level.STOP for one in evaluate(steps))


def test_readings_that_move_are_new() -> None:
    dice = random.Random(1)
    steps = [
        record(
            "get_metrics", {"host": f"host-{NOUNS[at % 16]}-{at % 40}"}, f"load of the host: {dice.random():.3f}, ok"
        )
        for at in range(400)
    ]
    assert first(Level.NUDGE, steps) is None


def test_keys_pressed_in_a_pattern_are_no_tour() -> None:
    """Acknowledgements describe nothing: half of the calls of a lap have to."""
    keys = [f"key {one}" for one in NOUNS] * 20
    assert not any(
        "long_cycle" in _rules(one) for one in _verdicts(record("press", {"key": key}, "ok") for key in keys)
    )


def test_a_saved_walk_goes_on_where_it_was() -> None:
    engine, steps = Engine(), list(laps(50, 4))
    state = engine.new_state("t")
    for at, step in enumerate(steps):
        if at % 30 == 0:
            state = engine.load_state(state.to_bytes())
        verdict = engine.observe(state, step._replace(step_id=f"{at + 1:016x}", timestamp=at * 2.0))
    assert verdict is not None
    assert verdict.level is Level.STOP


def test_what_a_walk_keeps_is_bounded() -> None:
    engine = Engine()
    state = engine.new_state("t")
    for at, step in enumerate(laps(2 * KEPT, 1)):
        engine.observe(state, step._replace(step_id=f"{at + 1:016x}"))
    (run,) = state.runs.values()
    assert isinstance(run.walk, Walk)
    assert len(run.walk.steps) == 2 * KEPT


def _verdicts(steps: Iterable[StepRecord]) -> list[object]:
    return list(evaluate(one._replace(step_id=f"{at + 1:016x}", timestamp=at * 3.0) for at, one in enumerate(steps)))


def _rules(verdict: object) -> set[str]:
    return {one.rule for one in getattr(verdict, "detections", ())}
