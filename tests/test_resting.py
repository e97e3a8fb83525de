"""States that nobody uses are bytes; nothing else about a trajectory changes."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import pytest

from tests.bench import shapes
from tests.helpers import record
from trajectory_guard import entry_table
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.resting import RestingState
from trajectory_guard.store import FlagBoard


def steps(seed: int, count: int = 400) -> Iterator[StepRecord]:
    """Steps of many trajectories in turns: some repeat themselves, some do not."""
    dice = random.Random(seed)
    for at in range(count):
        name = f"t{dice.randrange(12)}"
        call = {"query": dice.choice(("a", "b", str(at)))}
        found = dice.choice(("No results found", f"record {at} of {name}", "the same record as ever, and nothing else"))
        yield record("search", call, found, t=float(at))._replace(trajectory_id=name, step_id=f"{at + 1:016x}")


def verdicts(seed: int) -> list[Verdict | None]:
    board = FlagBoard(GuardConfig(), clock=lambda: 0.0)
    found = [board.observe(step) for step in steps(seed)]
    assert sum(one is not None and one.level.rank > 0 for one in found) > 0
    return found


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_the_same_if_every_state_rests_between_its_steps(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ever = verdicts(seed)
    monkeypatch.setattr(entry_table, "_MAX_AWAKE", 0)
    assert [one and (one.level, one.score, one.detections) for one in verdicts(seed)] == [
        one and (one.level, one.score, one.detections) for one in as_ever
    ]


def test_what_was_not_used_for_a_while_is_packed_and_unpacked_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    board = FlagBoard(GuardConfig(), clock=lambda: now)
    for at in range(3):
        board.observe(shapes.step(at, number=at, step_id=f"{at + 1:016x}", trajectory_id="old"))
    entry = board.find("old")
    assert entry is not None
    assert entry._state is not None
    now = 31.0
    board.observe(shapes.step(9, number=9, step_id=f"{9:016x}", trajectory_id="new"))
    assert entry._state is None
    assert (entry.state.index, entry.state.trajectory_id) == (3, "old")
    now = 62.0
    board.observe(shapes.step(10, number=10, step_id=f"{10:016x}", trajectory_id="new"))
    assert entry._state is None  # it was only looked at


def test_a_state_that_a_thread_works_on_is_not_packed() -> None:
    board = FlagBoard(GuardConfig())
    board.observe(shapes.step(0, number=0, step_id="1", trajectory_id="t"))
    entry = board.find("t")
    assert isinstance(entry, RestingState)
    with entry.lock:
        entry.pack(lambda one: None)
        assert entry._state is not None


def test_states_at_rest_hold_nothing_that_a_garbage_collection_walks_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the objects behind a trajectory are its state."""

    def objects(awake: int) -> int:
        monkeypatch.setattr(entry_table, "_MAX_AWAKE", awake)
        board = FlagBoard(GuardConfig())
        gc.collect()
        before = len(gc.get_objects())
        for at in range(600):
            board.observe(shapes.step(at, number=at, step_id=f"{at + 1:016x}", trajectory_id=f"t{at // 2}"))
        gc.collect()
        return len(gc.get_objects()) - before

    assert objects(awake=0) < objects(awake=1_000) / 2
