"""The table of trajectories: bounded by count and idle time, at each moment."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import record
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.store import FlagBoard

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
