"""A thread saved by a checkpointer in one process goes on in another as if nothing had happened in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

import trajectory_guard
from tests.helpers import REPLACES_CODE
from trajectory_guard.core import state

from .agents import new_board
from .run_thread import run

PROGRAM = Path(__file__).with_name("run_thread.py")
IMPORTS = str(Path(trajectory_guard.__file__).parents[1])


def _in_another_process(database: Path, calls: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(database), str(calls)],
        env={**os.environ, "PYTHONPATH": IMPORTS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def in_one_process() -> list[dict[str, Any]]:
    stands = run(InMemorySaver(), 6, "thread", new_board())
    assert [stand["status"] for stand in stands] == ["ok", "ok", "nudged", "ok", "stopped"]
    return stands


# Found: the state that had just been read was thrown away again, so every process began at score 0.
def test_a_second_process_goes_on_where_the_first_ended(in_one_process: list[dict[str, Any]], tmp_path: Path) -> None:
    """Two calls in the first process; nudge and stop are the second one's."""
    before = _in_another_process(tmp_path / "threads.db", 2)
    after = _in_another_process(tmp_path / "threads.db", 6)

    assert before + after == in_one_process


def test_every_call_in_a_process_of_its_own(in_one_process: list[dict[str, Any]], tmp_path: Path) -> None:
    """Fresh boards and reopened databases stand in for the processes."""
    stands: list[dict[str, Any]] = []
    for _ in range(6):
        with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            stands += run(saver, 1, "thread", new_board())

    assert stands == in_one_process


# Found: a process that had read saved state once never did so again, and nudged a second time on its old view.
def test_going_back_to_a_process_that_has_an_older_view(in_one_process: list[dict[str, Any]]) -> None:
    """Two servers take turns: each sees what the other one did only through the saved state."""
    saver, boards = InMemorySaver(), [new_board(), new_board()]

    stands = [stand for number in range(5) for stand in run(saver, 1, "thread", boards[number % 2])]

    assert stands == in_one_process


# Found: after an upgrade every open conversation logged a warning of its own.
@REPLACES_CODE
def test_conversations_of_another_version_begin_anew_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, before, after = InMemorySaver(), new_board(), new_board()
    with monkeypatch.context() as other_version:
        other_version.setattr(state, "FORMAT_VERSION", state.FORMAT_VERSION - 1)
        for name in ("a", "b", "c"):
            run(saver, 3, name, before)

    stands = [run(saver, 6, name, after) for name in ("a", "b", "c")]

    assert [stand["status"] for stand in stands[0]] == ["ok", "ok", "nudged", "ok", "stopped"]
    assert stands[1:] == [stands[0]] * 2
    assert after.counts["errors.saved_state"] == 3
    (warning,) = [one.getMessage() for one in caplog.records if "ignored" in one.getMessage()]
    assert "saved state of 'a' ignored: state format version" in warning
