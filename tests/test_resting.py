"""States that nobody uses are bytes; nothing else about a trajectory changes."""

from __future__ import annotations

import gc
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

import pytest

from tests.bench import shapes
from tests.helpers import record
from trajectory_guard.board import entry_table
from trajectory_guard.board.resting import RestingState
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import StepRecord


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


# --- on several threads ------------------------------------------------------------------------------------------


def entry_of(board: FlagBoard, name: str) -> RestingState:
    entry = board.find(name)
    assert entry is not None
    return entry


def resting(trajectories: int = 2) -> tuple[FlagBoard, list[float]]:
    """A board whose trajectories rest, and its clock: what is not used for 30 seconds is packed."""
    now = [0.0]
    board = FlagBoard(GuardConfig(idle_ttl_s=1e9), clock=lambda: now[0])
    for number in range(trajectories):
        for at in range(3):
            board.observe(shapes.step(at, number=at, step_id=f"{at + 1:016x}", trajectory_id=f"t{number}"))
    now[0] = 31.0
    for _ in range(trajectories):
        board.entry("new")
    assert all(entry_of(board, f"t{number}")._state is None for number in range(trajectories))
    return board, now


def pack_again(board: FlagBoard, now: list[float]) -> None:
    """Let everything rest that is awake."""
    now[0] += 31.0
    for _ in range(len(board.trajectories)):
        board.entry("new")


def test_a_state_may_be_asked_for_while_another_thread_looks_for_the_one_used_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, now = resting()

    class Awake(OrderedDict[RestingState, None]):
        """Another thread asks for a state between two steps of a walk."""

        def __iter__(self) -> Iterator[RestingState]:
            walk = super().__iter__()
            if not self.asked:
                self.asked = True
                reader = threading.Thread(target=lambda: board.in_nudged_episode("t0", ""))
                reader.start()
                reader.join(10.0)
                assert not reader.is_alive()
            return walk

        asked = False

    monkeypatch.setattr(board, "_awake", Awake(board._awake))
    now[0] += 31.0
    board.entry("new")
    assert entry_of(board, "t0").state.index == 3


def test_a_state_that_is_packed_again_at_once_is_there_for_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    board, now = resting()
    entry, times = entry_of(board, "t0"), []
    wake = entry._wake
    assert wake is not None

    def wakes(one: RestingState) -> None:
        wake(one)
        if len(times) < 3:
            times.append(1)
            pack_again(board, now)
            assert entry._state is None

    real = RestingState.pack
    monkeypatch.setattr(RestingState, "pack", lambda self, _: real(self, wakes))
    monkeypatch.setattr(entry, "_wake", wakes)
    assert entry.state.index == 3
    assert len(times) == 3


def test_bytes_of_a_state_that_is_awake_are_kept_no_longer_than_until_the_next_use_of_the_table() -> None:
    board, _ = resting()
    entry = board.entry("t0")
    assert entry.state.index == 3
    board.entry("new")
    assert entry._packed == b""
    assert entry.state.index == 3


def test_a_state_that_is_adopted_is_not_replaced_by_the_one_that_rested() -> None:
    """A reader, which takes no lock, unpacks the state in this very moment."""
    board, _ = resting()
    entry = entry_of(board, "t0")
    saved = board.engine.new_state("t0")
    load, loads, started = board.engine.load_state, threading.Event(), threading.Event()

    def slowly(data: bytes) -> TrajectoryState:
        started.set()
        assert loads.wait(10.0)
        return load(data)

    board.engine.load_state = slowly  # type: ignore[method-assign]
    reader = threading.Thread(target=lambda: entry.state)
    reader.start()
    assert started.wait(10.0)
    assigned = threading.Event()

    def adopts() -> None:
        with entry.lock:
            entry.state = saved
        assigned.set()

    writer = threading.Thread(target=adopts)
    writer.start()
    assigned.wait(0.05)  # it has to wait for the reader, or be the last in any other way
    loads.set()
    reader.join()
    writer.join()
    assert entry.state is saved


def test_what_readers_wake_rests_again() -> None:
    board, now = resting(8)
    for number in range(8):
        board.in_nudged_episode(f"t{number}", "")
    assert all(entry_of(board, f"t{number}")._state is not None for number in range(8))
    pack_again(board, now)
    assert all(entry_of(board, f"t{number}")._state is None for number in range(8))


def test_states_are_read_and_packed_on_many_threads() -> None:
    board, now = resting(4)
    errors: list[BaseException] = []
    left = threading.Event()

    def contained(work: Callable[[], object]) -> None:
        try:
            while not left.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    numbers = iter(range(10**9))
    readers = [lambda: board.in_nudged_episode(f"t{next(numbers) % 4}", "") for _ in range(3)]
    threads = [threading.Thread(target=contained, args=(one,)) for one in readers]
    for one in threads:
        one.start()
    try:
        for _ in range(2_000):
            pack_again(board, now)
    finally:
        left.set()
        for one in threads:
            one.join()
    assert errors == []
    assert [entry_of(board, f"t{number}").state.index for number in range(4)] == [3] * 4
