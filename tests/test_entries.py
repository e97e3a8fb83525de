"""The table of trajectories: bounded by count and idle time, at each moment."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import REPLACES_CODE, record
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.state import MAX_RUNS
from trajectory_guard.core.steps import Evidence, StepRecord

MOST, IDLE_S = 3, 10.0


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from((0.0, 0.5, 3.0, 9.5, 10.0, 10.5, 25.0))), max_size=30)
)
def test_a_trajectory_is_evicted_as_soon_as_it_is_idle_or_one_too_many(uses: list[tuple[str, float]]) -> None:
    now = 100.0
    board = FlagBoard(GuardConfig(max_trajectories=MOST, idle_ttl_s=IDLE_S), clock=lambda: now)
    used: dict[str, float] = {}
    evicted: Counter[str] = Counter()
    for number, (name, pause) in enumerate(uses):
        now += pause
        board.observe(record(args={"n": number}, trajectory=name))
        used.pop(name, None)
        used[name] = now
        while len(used) > MOST or now - next(iter(used.values())) > IDLE_S:
            evicted["evicted_full" if len(used) > MOST else "evicted_idle"] += 1
            del used[next(iter(used))]
        assert list(board._entries) == list(used)
    assert {key: count for key, count in board.counts.items() if key.startswith("evicted")} == dict(evicted)


def test_a_shorter_idle_time_holds_from_the_next_step_on() -> None:
    now = 100.0
    board = FlagBoard(GuardConfig(idle_ttl_s=100.0), clock=lambda: now)
    board.observe(record(args={"n": 0}, trajectory="a"))
    now = 120.0
    board.config = GuardConfig(idle_ttl_s=IDLE_S)
    board.observe(record(args={"n": 1}, trajectory="b"))
    assert list(board._entries) == ["b"]


def test_steps_that_are_read_again_from_messages_are_counted_once() -> None:
    """A span hid the content of a call: it is forgotten, and the gate reads the call, and later ones, in full."""
    board = FlagBoard(GuardConfig())
    board.observe(StepRecord("s1", "t", "search", evidence=Evidence.NAME_ONLY))
    assert board.discard_lossy("t")
    for number in range(3):
        board.observe_from_messages(record("search", {"n": number}, f"answer {number}", call_id=f"c{number}"))
    assert (board.read("t").steps, board.counts["steps"]) == (3, 3)
    board.observe(record("search", {"n": 0}, "answer", trajectory="another"))
    assert board.counts["steps"] == 4


class Sabotage(Exception):
    """Raised while a step is evaluated."""


def fails_once(board: FlagBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine raise at the next step."""
    read, armed = board.engine._reader.read, [True]

    def reading(*args: Any) -> Any:
        if armed.pop() if armed else False:
            raise Sabotage
        return read(*args)

    monkeypatch.setattr(board.engine._reader, "read", reading)


def test_parallel_calls_that_share_an_id_are_evaluated_once() -> None:
    """A gate reads each of them from the messages after a span has reported it in the same run."""
    board = FlagBoard(GuardConfig())
    board.observe(record("search", {"n": 0}, "answer 0", call_id="first", turn="question"))
    read = []
    for number in (1, 2, 3):
        span = {"t": float(number), "turn": "question", "trace_id": "trace", "dialect": "openinference"}
        board.observe(record("search", {"n": number}, f"answer {number}", call_id="shared", **span))
    for number in (1, 2, 3):
        shown = record("search", {"n": number}, f"answer {number}", call_id="shared", turn="question")
        read.append(board.observe_from_messages(shown))
    assert read == [None, None, None]
    assert board.counts["steps"] == 4


@REPLACES_CODE
def test_a_call_that_cannot_be_evaluated_again_stays_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate reads a call that spans have reported, in another run than theirs."""
    board = FlagBoard(GuardConfig())
    board.observe_from_messages(record("search", {"n": 0}, "answer 0", call_id="call_0", run="agent", turn="1"))
    for number in range(1, 4):
        board.observe(record("search", {"n": number}, f"answer {number}", call_id=f"call_{number}"))
    again = record("search", {"n": 3}, "answer 3", call_id="call_3", run="agent", turn="1")
    fails_once(board, monkeypatch)
    with pytest.raises(Sabotage):
        board.observe_from_messages(again)
    entry = board.find("t")
    assert entry is not None
    assert (entry.state.index, len(entry.state.step_ids)) == (4, 4)
    verdict = board.observe(record("search", {"n": 4}, "answer 4"))
    assert verdict is not None
    assert verdict.step_index == 4


@REPLACES_CODE
def test_a_step_that_raises_takes_no_other_with_it_that_awaits_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    board = FlagBoard(GuardConfig())
    board.await_states("t", "")
    board.observe(record("search", {"n": 0}, "answer 0", call_id="call_0", trace_id="trace"))
    board.observe_from_messages(record("search", {"n": 0}, "answer 0", call_id="call_0", turn="1"), state="page 0")
    for number in range(1, 4):
        board.observe(record("search", {"n": number}, f"answer {number}", call_id=f"call_{number}", trace_id="trace"))
    assert board.read("t").steps == 1
    fails_once(board, monkeypatch)
    with pytest.raises(Sabotage):
        board.release_awaiting("t")
    assert [verdict.step_index for verdict in board.release_awaiting("t")] == [1, 2]


def test_the_runs_of_two_processes_together_are_no_more_than_those_of_one() -> None:
    """Each process saves the run of its own turn, and goes on from what the other one has saved."""
    boards = [FlagBoard(GuardConfig()) for _ in range(2)]
    for turn in range(4 * MAX_RUNS):
        here, there = boards[turn % 2], boards[1 - turn % 2]
        here.observe(record("search", {"n": turn}, f"answer {turn}", turn=str(turn)))
        data = here.save("t", f"/{turn}")
        assert data is not None
        assert there.adopt("t", data, turn + 1)
    for board in boards:
        entry = board.find("t")
        assert entry is not None
        assert [f"/{turn}" for turn in range(4 * MAX_RUNS)][-MAX_RUNS:] == list(entry.state.runs)[-MAX_RUNS:]
        assert len(entry.state.runs) <= MAX_RUNS + 1  # one is given up when the next step is taken
