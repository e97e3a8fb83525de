"""An entry is looked up, then locked: another thread may replace or remove it in between. Nothing is lost by that."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trajectory_guard
from tests.helpers import record
from tests.test_joining import joining
from trajectory_guard.board.flags import GateRun
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.process.locks import OwnedLock, RetiredError, looks_again

STOP = HandFlag.of("STOP", "The account is wrong.", "maria")
PACKAGE = Path(trajectory_guard.__file__).parent


def look(at: int, trajectory: str = "trace", **fields: Any) -> StepRecord:
    fields = {"trace_id": "trace", "call_id": f"call_{at}", "t": 100.0 + at, "dur": 0.5, **fields}
    return record("look", {"shelf": at}, f"book {at}", trajectory=trajectory, **fields)


def joined_to_steps() -> tuple[FlagBoard, Callable[[FlagBoard], object]]:
    board = FlagBoard(GuardConfig(track_quality=True, cursor=True))
    board.observe(look(-1, "talk", trace_id="older"))
    board.observe(look(0))
    return board, lambda board: board.join("trace", "talk")


def joined_in_its_place() -> tuple[FlagBoard, Callable[[FlagBoard], object]]:
    """The entry of the conversation gives way: the trace, joined to it, brings the steps."""
    board = FlagBoard(GuardConfig(track_quality=True, cursor=True))
    board.await_states("trace", "")
    board.observe(look(0, "part"))
    return board, lambda board: board.join("part", "trace")


def discarded() -> tuple[FlagBoard, Callable[[FlagBoard], object]]:
    board = FlagBoard(GuardConfig(track_quality=True, cursor=True))
    board.observe(look(0, evidence=Evidence.NAME_ONLY))
    return board, lambda board: board.discard_lossy("trace")


def evicted() -> tuple[FlagBoard, Callable[[FlagBoard], object]]:
    board = FlagBoard(GuardConfig(track_quality=True, cursor=True, max_trajectories=1))
    board.observe(look(0))
    return board, lambda board: board.observe(look(0, "another"))


WAYS = {one.__name__: one for one in (joined_to_steps, joined_in_its_place, discarded, evicted)}
Change = tuple[Callable[[FlagBoard], object], Callable[[FlagBoard], object]]
CHANGES: dict[str, Change] = {
    "a step": (lambda board: board.observe(look(5)), lambda board: board.observe(look(5)) is None),
    "a step from messages": (
        lambda board: board.observe_from_messages(look(5)), lambda board: board.observe(look(5)) is None
    ),
    "a flag from a collector": (
        lambda board: board.adopt_hand_flag("trace", STOP), lambda board: board.take("trace").level is Level.STOP
    ),
    "a supplied state": (
        lambda board: board.await_states("trace", "below"), lambda board: "below" in board.find("trace").stating  # type: ignore[union-attr]
    ),
    "a score": (
        lambda board: board.score("trace", 0.5), lambda board: board.find("trace").quality is not None  # type: ignore[union-attr]
    ),
    "a message": (
        lambda board: board.new_messages("trace", "", [b"1"]), lambda board: board.new_messages("trace", "", [b"1"])[0] == 0
    ),
    "the cursor": (
        lambda board: board.cursors.record("trace", lambda cursor: cursor), lambda board: board.cursor("trace") is not None
    ),
    "a turn begun anew": (
        lambda board: board.branches.begin_anew("trace", "1", "a", ""), lambda board: board.branches.begun_anew("trace")
    ),
}  # fmt: skip
FOUND: dict[str, Change] = {
    "a flag": (
        lambda board: board.raise_flag("trace", "STOP", "The account is wrong."),
        lambda board: board.take("trace").level is Level.STOP,
    ),
    "a flag put back": (
        lambda board: board.put_back_hand_flag("trace", STOP), lambda board: board.take("trace").level is Level.STOP
    ),
    "a turn": (
        lambda board: board.branches.note_turn("trace", "1"), lambda board: board.branches.turn_in("trace", "") == "1"
    ),
}  # fmt: skip


def meanwhile(board: FlagBoard, patch: pytest.MonkeyPatch, happens: Callable[[FlagBoard], object]) -> list[int]:
    """Let something happen when an entry has been looked up the next time, and is not locked yet."""
    done: list[int] = []

    def looked_up(look_up: Callable[[str], Any]) -> Callable[[str], Any]:
        def found(trajectory_id: str) -> Any:
            entry = look_up(trajectory_id)
            if trajectory_id == "trace" and not done:
                done.append(1)
                happens(board)
            return entry

        return found

    patch.setattr(board, "entry", looked_up(board.entry))
    patch.setattr(board, "find", looked_up(board.find))
    return done


CASES = [(way, change) for way in WAYS for change in (CHANGES if way == "evicted" else {**CHANGES, **FOUND})]


@pytest.mark.parametrize(("way", "change"), CASES)
def test_a_change_outlives_the_entry_that_was_looked_up_for_it(
    way: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, happens = WAYS[way]()
    act, is_kept = {**CHANGES, **FOUND}[change]
    done = meanwhile(board, monkeypatch, happens)
    act(board)
    assert done
    assert is_kept(board)


def test_a_step_that_comes_late_counts_in_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    board, join = joined_to_steps()
    meanwhile(board, monkeypatch, join)
    board.observe(look(1))
    assert board.read("talk").steps == board.counts["steps"] == 3
    assert "trace" not in board.trajectories


def test_a_person_who_knows_the_trace_only_finds_its_conversation_at_any_time() -> None:
    """The thread that joins waits for the one that evaluates a step of the trace."""
    board, _ = joined_to_steps()
    with joining(board):
        board.raise_flag("trace", "STOP", "The account is wrong.")
    assert board.take("talk").level is Level.STOP


@pytest.mark.parametrize("happens", ["evicted", "discarded"])
def test_a_trace_is_joined_to_a_conversation_that_is_replaced_meanwhile(
    happens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = FlagBoard(GuardConfig(max_trajectories=2))
    board.observe(look(0, evidence=Evidence.NAME_ONLY))
    board.observe(look(7, "part"))

    def replace(board: FlagBoard) -> None:
        if happens == "discarded":
            assert board.discard_lossy("trace")
        else:
            for name in ("another", "third"):
                board.observe(look(0, name))

    done = meanwhile(board, monkeypatch, replace)
    board.join("part", "trace")
    assert done
    assert board.read("part").steps == board.read("trace").steps == 1


def test_steps_that_end_on_many_threads_while_their_trace_is_joined_all_count() -> None:
    for at in range(10):
        board, join = joined_to_steps()
        start = threading.Barrier(5)

        def ends(step: StepRecord, board: FlagBoard = board, start: threading.Barrier = start) -> None:
            start.wait()
            board.observe(step)

        threads = [threading.Thread(target=ends, args=(look(10 * at + one + 1),)) for one in range(4)]
        for one in threads:
            one.start()
        start.wait()
        join(board)
        for one in threads:
            one.join()
        assert board.read("talk").steps == board.counts["steps"] == 6


def test_a_nested_agent_is_forgotten_in_the_entry_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    board, replace = discarded()
    board.branches.note_read_below("trace", "below", [])
    board.follow_model_calls("trace", GateRun("below", "1"), None)
    done = meanwhile(board, monkeypatch, replace)
    board.branches.go_back_below("trace", "below")
    assert done


# --- the kind --------------------------------------------------------------------------------------------------------


def test_a_retired_lock_is_not_held_by_the_thread_that_was_refused() -> None:
    lock = OwnedLock()
    lock.retired = True
    with pytest.raises(RetiredError), lock:
        pass
    assert not lock.locked()


def test_a_method_is_called_until_it_finds_what_is_in_use() -> None:
    locks = [OwnedLock() for _ in range(3)]
    for one in locks[:2]:
        one.retired = True
    found: list[int] = []

    @looks_again
    def method() -> int:
        found.append(len(found))
        with locks[found[-1]]:
            return found[-1]

    assert (method(), found) == (2, [0, 1, 2])


def test_every_function_that_locks_an_entry_looks_again() -> None:
    """Otherwise the error of a retired lock reaches its caller, once in thousands of calls."""
    missing = []
    for path in PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            locked = [
                ast.unparse(item.context_expr)
                for node in ast.walk(function)
                if isinstance(node, ast.With)
                for item in node.items
            ]
            body = ast.unparse(function)
            if any("entry" in one and one.endswith(".lock") for one in locked) and not (
                "@looks_again" in body or "RetiredError" in body
            ):
                missing.append(f"{path.name}: {function.name}")
    assert missing == []
