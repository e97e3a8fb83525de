"""An agent that is called again and again and only says the same, read from the messages of a graph state."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from trajectory_guard.core.content.talk import MAX_CHARS, digest, says_same
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import SUCCESS, StepRecord
from trajectory_guard.core.tracking.model_calls import IN_MESSAGES, TOOL_NAME
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.gates.messages import (
    MAX_LOOK_BACK,
    content_text,
    is_answer,
    is_guard_message,
    is_written_as_user,
    usage_of,
)


def said_again(messages: Sequence[Any], trajectory_id: str, now: float) -> list[StepRecord]:
    """The first and the newest of the agent's answers in a row that say the same, as steps; none if it says it once.

    The row ends at a tool call, its result, and a person's message. Remarks of the graph (system messages) and of the
    guard, and what other agents say under their names, stand between the answers. Only the newest answer is new to a
    gate that is asked before each of them; where a graph has added several at once, they count once.
    """
    row = _row(messages, MAX_LOOK_BACK)
    if len(row) < 2:
        return []
    first, said = _id_of(row[-1]), digest(row[0][2])
    return [
        StepRecord(
            step_id=_id_of(one),
            trajectory_id=trajectory_id,
            tool_name=TOOL_NAME,
            tool_args_hash=args_hash({"after": first}),
            state_snapshot_hash=said,
            outcome_type=SUCCESS,
            agent_id=getattr(one[1], "name", None),
            timestamp=now,
            dialect="messages",
            result=one[2] or None,
            model_scope=IN_MESSAGES,
            usage=usage_of(one[1]),
        )
        for one in (row[-1], row[0])
    ]


def newest_said(messages: Sequence[Any]) -> str:
    """Digest of the newest answer, clocks and counts aside; empty if anything but remarks has followed it."""
    row = _row(messages, 1)
    return digest(row[0][2]) if row else ""


class Answers:
    """The newest answer of each run, by its digest: a graph may have removed it before it asks the agent again."""

    def __init__(self) -> None:
        self._newest: BoundedTable[tuple[str, str], str] = BoundedTable(_MAX_RUNS)
        self._lock = threading.Lock()

    def says_more(self, run: tuple[str, str], said: str, before: str) -> bool:
        """Take in an answer. Whether it says something else than the one before it: an agent that does not goes on.

        Parameters:
            run: trajectory and label of the run.
            said: digest of the answer; before: of the one that the agent was called behind, if the messages show it.
        """
        with self._lock:
            known = self._newest.get(run)
            self._newest[run] = said
        return not said or said not in (before, known)


_MAX_RUNS: Final = 256


def _row(messages: Sequence[Any], most: int) -> list[tuple[int, Any, str]]:
    """The newest answers that say the same: place, message and text of each, newest first, at most so many."""
    row: list[tuple[int, Any, str]] = []
    for position in range(len(messages) - 1, max(-1, len(messages) - 1 - MAX_LOOK_BACK), -1):
        message = messages[position]
        kind = getattr(message, "type", None)
        if is_guard_message(message):
            if is_answer(message):  # a stop ended the run
                break
        elif kind == "tool" or is_written_as_user(message):
            break
        elif kind == "ai":
            text = content_text(message.content)[:MAX_CHARS]
            if not is_answer(message) or (row and not _is_same(row[-1], message, text)):
                break
            row.append((position, message, text))
            if len(row) == most:
                break
    return row


def _id_of(one: tuple[int, Any, str]) -> str:
    position, message, _ = one
    return f"said/{getattr(message, 'id', None) or position}"


def _is_same(later: tuple[int, Any, str], message: Any, text: str) -> bool:
    return getattr(later[1], "name", None) == getattr(message, "name", None) and says_same(text, later[2])
