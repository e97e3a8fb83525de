"""A trace turns out to belong to a trajectory: what the board keeps of both, and of an entry that is begun again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.core.test_relay import visits
from tests.helpers import eventually, record
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Delivered, Evidence, StepRecord

STOP = HandFlag.of("STOP", "The account is wrong.", "maria")


def in_trace(at: int, **fields: Any) -> StepRecord:
    """A call that spans have reported in a trace before they name its conversation."""
    return record(
        "look", {"shelf": at}, f"book {at}", trajectory="trace", trace_id="trace", call_id=f"call_{at:04}", t=100.0 + at,
        dur=0.5, **fields,
    )  # fmt: skip


def in_messages(at: int) -> StepRecord:
    """The same call as a gate reads it from the messages of the conversation."""
    return record("look", {"shelf": at}, f"book {at}", trajectory="talk", call_id=f"call_{at:04}")


# --- of which the conversation knows no step yet ----------------------------------------------------------------


def test_a_stop_from_a_collector_outlives_the_trace_that_takes_the_place_of_its_conversation() -> None:
    board = FlagBoard(GuardConfig())
    board.adopt_hand_flag("talk", STOP)
    board.observe(in_trace(0))
    board.join("trace", "talk")
    assert board.remote_hands("talk") == 1
    assert board.take("talk").level is Level.STOP


def test_a_stop_that_a_trace_has_taken_ends_the_next_request_no_more() -> None:
    """An earlier flag of the collector comes again with each answer: it is taken over once."""
    board = FlagBoard(GuardConfig())
    board.adopt_hand_flag("talk", STOP)
    board.take("talk", "")
    board.stopped("talk", "")
    board.observe(in_trace(0))
    board.join("trace", "talk")
    board.adopt_hand_flag("talk", STOP)
    assert not board.has_hand_flag("talk")


def test_steps_of_a_trace_wait_for_the_state_that_a_gate_has_announced() -> None:
    board = FlagBoard(GuardConfig())
    board.await_states("talk", "")
    board.observe(in_trace(0))
    board.join("trace", "talk")
    board.observe_from_messages(in_messages(0)._replace(turn="1"), state="page 1")
    assert board.read("talk").steps == 1
    board.observe(in_trace(1)._replace(trajectory_id="talk"))
    assert board.read("talk").steps == 1, "it waits for the state after it"
    assert len(board.release_awaiting("talk")) == 1


def test_the_cursor_of_a_conversation_goes_on_in_the_trace_that_takes_its_place() -> None:
    board = FlagBoard(GuardConfig(cursor=True))
    board.cursors.record_proposal(in_messages(7))
    board.observe(in_trace(0))
    board.join("trace", "talk")
    cursor = board.cursor("talk")
    assert cursor is not None
    assert sorted(one.kind for one in cursor.entries) == ["execution", "proposal", "result"]


def test_what_an_agent_has_brought_before_the_first_step_is_kept() -> None:
    board = FlagBoard(GuardConfig())
    board.note_delivery("talk", Delivered.RESULT)
    board.observe(in_trace(0))
    board.join("trace", "talk")
    entry = board.find("talk")
    assert entry is not None
    assert (entry.state.index, entry.state.worked_at) == (1, 0)


# --- of which the conversation knows steps ----------------------------------------------------------------------


@pytest.mark.parametrize("calls", [10, 16, 17, 40])
def test_calls_of_a_trace_count_once_however_many_there_are(calls: int) -> None:
    """The gate reads the last calls again, from the messages of the conversation."""
    board = FlagBoard(GuardConfig())
    board.observe_from_messages(in_messages(1_000))
    for at in range(calls):
        board.observe(in_trace(at))
    board.join("trace", "talk")
    for at in range(calls):
        board.observe_from_messages(in_messages(at))
    assert (board.read("talk").steps, board.counts["steps"]) == (calls + 1, calls + 1)


def test_a_circle_of_agents_that_began_in_a_trace_is_placed_in_its_conversation() -> None:
    """Beyond sixteen steps their runs go on as they are: with the run of the visits, whose indices are shifted, too."""
    board = FlagBoard(GuardConfig())
    for at in range(50):
        board.observe(record("look", {"shelf": at}, f"book {at}", trajectory="talk"))
    *steps, last = visits(18)
    for step in steps:
        board.observe(step._replace(trajectory_id="trace"))
    board.join("trace", "talk")
    verdict = board.observe(last._replace(trajectory_id="talk"))
    assert verdict is not None
    assert (verdict.types, verdict.step_index) == (["TYPE_IV_PINGPONG"], 67)
    assert verdict.first_step >= 50
    assert all(50 <= at <= 67 for finding in verdict.detections for at in finding.steps)


def test_episodes_of_a_circle_are_counted_after_those_of_the_conversation() -> None:
    board = FlagBoard(GuardConfig())
    for _ in range(4):
        board.observe(record("look", {"shelf": 1}, "book 1", trajectory="talk"))
    *steps, last = visits(18)
    for step in steps:
        board.observe(step._replace(trajectory_id="trace"))
    board.join("trace", "talk")
    verdict = board.observe(last._replace(trajectory_id="talk"))
    assert verdict is not None
    assert verdict.episode == 2


def test_work_that_the_agents_of_a_trace_have_done_is_nothing_new_in_its_conversation() -> None:
    """As in one trajectory: only the digests of the newest calls tell that the next agent instance repeats them."""
    joined, whole = FlagBoard(GuardConfig()), FlagBoard(GuardConfig())
    steps = [
        record("transfer_to_writer", {}, "Transferred.", agent="chief", run="chief/1"),
        *(record("look", {"shelf": at}, f"book {at}", agent="writer", run=f"writer/{at}") for at in range(18)),
    ]
    again = record("look", {"shelf": 17}, "book 17", agent="writer", run="writer/again")
    for step in steps:
        joined.observe(step._replace(trajectory_id="trace"))
        whole.observe(step._replace(trajectory_id="talk"))
    joined.observe(record("look", {}, "nothing", trajectory="talk"))
    joined.join("trace", "talk")
    for board in (joined, whole):
        board.observe(again._replace(trajectory_id="talk"))
    found = [board.find("talk") for board in (joined, whole)]
    assert [one.state.index - one.state.worked_at for one in found if one is not None] == [2, 2]


@contextmanager
def joining(board: FlagBoard) -> Iterator[None]:
    """A thread that joins the trace waits for the step that is under evaluation there; it is done afterwards."""
    part = board.find("trace")
    assert part is not None
    thread = threading.Thread(target=board.join, args=("trace", "talk"))
    with part.lock:
        thread.start()
        assert eventually(lambda: "trace" not in board.trajectories)
        yield
    thread.join()


def test_a_trace_is_joined_when_the_step_under_evaluation_is_done() -> None:
    board = FlagBoard(GuardConfig())
    board.observe_from_messages(in_messages(1_000))
    board.observe(in_trace(0))
    with joining(board):
        assert board.read("talk").steps == 1, "it waits"
    assert board.read("talk").steps == 2


def test_traces_are_joined_from_many_threads() -> None:
    """A chain of names: the conversation of one trace is the trace of another conversation."""
    names = [f"name {at}" for at in range(12)]
    board = FlagBoard(GuardConfig())
    for name in names:
        board.observe(record("look", {"shelf": name}, "a book", trajectory=name))
    start = threading.Barrier(len(names) - 1)

    def join(trace: str, conversation: str) -> None:
        start.wait()
        board.join(trace, conversation)

    threads = [threading.Thread(target=join, args=pair, daemon=True) for pair in pairwise(names)]
    for one in threads:
        one.start()
    assert eventually(lambda: not any(one.is_alive() for one in threads))
    assert names[-1] in board.trajectories


@pytest.mark.parametrize("before", [None, "NUDGE"])
def test_a_stop_by_hand_outlives_the_trace_that_joins_a_conversation_with_steps(before: str | None) -> None:
    """A nudge that waits there says less, and does not take its place."""
    board = FlagBoard(GuardConfig())
    board.observe(in_messages(1_000))
    board.observe(in_trace(0))
    if before is not None:
        board.raise_flag("talk", before, "Look at the account.")
    board.raise_flag("trace", "STOP", "The account is wrong.", actor="maria")
    board.join("trace", "talk")
    for name in ("talk", "trace"):
        assert board.read(name).level is Level.STOP
        assert board.take(name, "").level is Level.STOP
    board.stopped("talk", "")
    assert not board.has_hand_flag("talk")


def test_a_stop_of_a_conversation_gives_way_to_no_nudge_of_the_trace_that_joins_it() -> None:
    board = FlagBoard(GuardConfig())
    board.observe(in_messages(1_000))
    board.observe(in_trace(0))
    board.raise_flag("talk", "STOP", "The account is wrong.")
    board.raise_flag("trace", "NUDGE", "Look at the account.")
    board.join("trace", "talk")
    assert board.take("talk").level is Level.STOP


@pytest.mark.parametrize("known", [False, True], ids=["no step is known", "steps are known"])
def test_a_stop_that_was_taken_in_a_trace_ends_there_whatever_is_joined_meanwhile(known: bool) -> None:
    """A loop without a gate has taken it: its next request goes on."""
    board = FlagBoard(GuardConfig())
    if known:
        board.observe(in_messages(1_000))
    board.observe(in_trace(0))
    board.raise_flag("trace", "STOP", "The account is wrong.")
    assert board.take("trace").level is Level.STOP
    board.join("trace", "talk")
    board.finish_recoveries("talk", "trace", ended=True)
    assert not board.has_hand_flag("talk")


# --- begun again, because its spans hid their content -------------------------------------------------------------


def test_a_stop_by_hand_outlives_the_trajectory_that_is_rebuilt_from_messages() -> None:
    board = FlagBoard(GuardConfig())
    board.observe(StepRecord("s1", "t", "look", evidence=Evidence.NAME_ONLY))
    board.raise_flag("t", "STOP", "The account is wrong.")
    assert board.discard_lossy("t")
    assert board.take("t").level is Level.STOP


def test_a_gate_goes_on_to_supply_states_to_a_trajectory_that_is_rebuilt() -> None:
    board = FlagBoard(GuardConfig())
    board.observe(StepRecord("s1", "t", "look", evidence=Evidence.NAME_ONLY))
    board.await_states("t", "")
    assert board.discard_lossy("t")
    entry = board.find("t")
    assert entry is not None
    assert list(entry.stating) == [""]
