"""Recognising that a checkpoint is resumed once more: the state shows an older past than the board remembers."""

from __future__ import annotations

import base64
import binascii
import logging
import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard import telemetry
from trajectory_guard.board.entries import ReadCall
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.scope import ANEW, label_of
from trajectory_guard.gates.call_ids import requests_of
from trajectory_guard.gates.messages import (
    batch_in,
    is_answer,
    is_guard_message,
    is_of_person,
    is_summary,
    is_tool_message,
    requested_in,
    step_id_of,
    turn_of,
    with_summaries,
)
from trajectory_guard.process.containment import is_first_error

if TYPE_CHECKING:
    from trajectory_guard.board.store import FlagBoard

_log: Final = logging.getLogger(telemetry.LOGGER)


def saved_state(status: Mapping[str, Any]) -> bytes | None:
    """The engine's state in a saved ``loop_status``, None if it holds none.

    Raises:
        StateFormatError: it cannot be unpacked.
    """
    saved = status.get("state")
    if not saved:
        return None
    try:
        return zlib.decompress(saved if isinstance(saved, bytes) else base64.b64decode(saved))
    except (binascii.Error, zlib.error, TypeError, ValueError) as error:
        raise StateFormatError(str(error)) from None


def note_unreadable(board: FlagBoard, what: str, trajectory: str, error: Exception) -> None:
    """Count saved state that cannot be read. After an upgrade that is so in every open conversation: one warning for
    each kind of state says it, and the others are in the log at DEBUG.
    """
    first = is_first_error(board.counts, "saved_state", what)
    _log.log(
        logging.WARNING if first else logging.DEBUG,
        "trajectory_guard: saved %s of %r ignored: %s; the guard goes on without it%s",
        what, trajectory, error,
        " (logged once; others are counted in trajectory_guard.errors, and logged at DEBUG)" if first else "",
    )  # fmt: skip


def note_request(
    board: FlagBoard, trajectory: str | None, run: str | None, message: Any, trace_id: str | None
) -> None:  # fmt: skip
    """Remember the calls that a model message requests: which turn they belong to, and which the top agent made last.

    Parameters:
        trajectory, run: None where unknown.
        trace_id: of the trace in which the model answered.
    """
    batch = batch_in(message)
    if batch is not None:
        board.branches.note_batch((trajectory, trace_id), batch[1], batch[0])
    if trajectory is not None and run is not None:
        board.branches.note_requested(trajectory, run, requested_in(message))


def follow_branch(
    board: FlagBoard, trajectory: str, messages: Sequence[Any], status: Mapping[str, Any], *,
    has_saver: bool,
) -> None:  # fmt: skip
    """Take the board back to the checkpoint that a graph state comes from, if it has seen what came after it.

    Parameters:
        trajectory: the thread id.
        messages: of the agent at the top. A nested one is mostly a new instance in every branch.
        status: ``loop_status`` of the graph state.
        has_saver: a checkpointer keeps the graph state between runs.
    """
    newest = board.branches.last_read(trajectory)
    if newest is not None and _is_older(messages, status, newest, has_saver=has_saver):
        try:
            board.branches.go_back(trajectory, saved_state(status), tuple(status.get("calls") or ()))
        except StateFormatError as error:
            note_unreadable(board, "state", trajectory, error)
            board.branches.go_back(trajectory, None, ())
    elif newest is not None and _is_undecided(as_begun(board, trajectory, messages), status, newest):
        board.branches.stop_again(trajectory, newest.step_id)
    _follow_rewriting(board, trajectory, messages, status)


def follow_turn(board: FlagBoard, trajectory: str, messages: Sequence[Any], trace_id: str | None) -> None:
    """Record the user turn that begins with the last message, at once: a summary may take the place of that message.

    Parameters:
        trajectory, messages: as for ``follow_branch``.
        trace_id: of the trace in which it begins, None if unknown.
    """
    turn = turn_of(as_begun(board, trajectory, messages))
    if turn is not None:
        board.branches.note_turn(trajectory, turn, trace_id, given_up=not _stands_behind_answer(messages))


def _stands_behind_answer(messages: Sequence[Any]) -> bool:
    """Whether the model has answered right before the last message, or before others that a person wrote."""
    for message in islice(reversed(messages), 1, None):
        if is_answer(message):
            return True
        if not is_of_person(message):
            break
    return False


def note_read_below(
    board: FlagBoard, trajectory: str, instance: str, turn: str | None, steps: Sequence[StepRecord]
) -> None:  # fmt: skip
    """Remember the calls of a nested agent that a gate has read."""
    read = [ReadCall(turn, step.step_id, step.call_id) for step in steps]
    board.branches.note_read_below(trajectory, instance, read)


def follow_branch_below(
    board: FlagBoard, trajectory: str, instance: str, messages: Sequence[Any], status: Mapping[str, Any], *,
    place: str, task: str,
) -> None:  # fmt: skip
    """As ``follow_branch``, for a nested agent.

    Where its sub-graph keeps no state of its own, LangGraph runs it from scratch, under the same name, each time that
    it runs the node again that calls it: for each answer to a question of that node, or after an error.

    Parameters:
        place, task: as for ``Branches.starts_below``; empty if unknown.
    """
    read = board.branches.read_below.get((trajectory, instance))
    is_new = bool(place and task) and board.branches.starts_below(trajectory, instance, place, task)
    if is_new or (read and _is_older(messages, status, read[-1], has_saver=True)):
        board.branches.go_back_below(trajectory, instance)


def _is_older(messages: Sequence[Any], status: Mapping[str, Any], newest: ReadCall, *, has_saver: bool) -> bool:
    """Whether the graph state lies before the newest call that a gate has read.

    The call is neither among the messages nor among those that the saved status covers, which outlive trimming. Where
    nothing is saved between runs, that is so in every new user turn, and says nothing.
    """
    if newest.step_id in (status.get("calls") or ()):
        return False
    for message in reversed(messages):
        if any(step_id_of(message, call) == newest.step_id for call in requests_of(message)):
            return False
    if turn_of(messages) == newest.turn:
        return True
    return has_saver or bool(status.get("calls"))


def _is_undecided(messages: Sequence[Any], status: Mapping[str, Any], newest: ReadCall) -> bool:
    """Whether the graph state knows nothing of the decision on the newest call, although all calls are there.

    If that decision was a stop, nothing else tells that the run is resumed right before it.
    """
    calls = status.get("calls") or ()
    return bool(calls) and newest.step_id not in calls and turn_of(messages) == newest.turn


# --- a turn that is answered once more -----------------------------------------------------------------------------
#
# Where a person edits a question, or asks for another answer, the question keeps its id and the steps behind it are
# removed: the label of the user turn no longer says which run it is. It is then longer by a part of its own.


def _follow_rewriting(board: FlagBoard, trajectory: str, messages: Sequence[Any], status: Mapping[str, Any]) -> None:
    """Start the user turn at the top over if the steps that followed its message are gone."""
    name = turn_of(messages)
    if name is None:
        return
    saved = str(status.get("run") or "").removeprefix("/")
    if saved.startswith(f"{name}{ANEW}"):  # another process has begun it anew
        board.branches.begin_anew(trajectory, name, saved.removeprefix(name), "", only_first=True)
    begun = as_begun(board, trajectory, messages)
    label = name if begun is messages else turn_of(begun)
    calls = status.get("calls") or ()
    if calls and status.get("called_in") == label_of("", label) and _is_rewritten(messages, frozenset(calls)):
        part = f"{ANEW}{text_digest(str(calls[-1]))}"
        board.branches.begin_anew(trajectory, name, part, str(calls[-1]))


def _is_rewritten(messages: Sequence[Any], known: Collection[str]) -> bool:
    """Whether the messages after a person's newest one hold neither a known call nor a summary of some."""
    requests = others = False
    for message in reversed(messages):
        if is_tool_message(message):
            continue
        if is_of_person(message):
            return not (requests and others)
        calls = requests_of(message)
        if is_summary(message) or (not calls and is_answer(message)):
            return False
        if calls:
            requests = True
            if any(step_id_of(message, call) in known for call in calls):
                return False
        elif not is_guard_message(message):
            others = True
    return False


def as_begun(board: FlagBoard, trajectory: str, messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` with the label of a user turn that started over on the message that begins it."""
    begun = board.branches.begun_anew(trajectory)
    if not begun:
        return messages
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if any(step_id_of(message, call) in begun.gone for call in requests_of(message)):
            return messages  # the steps are there: the past before the turn was begun anew
        if is_of_person(message):
            name = str(getattr(message, "id", None) or position)
            if name != begun.turn:
                return messages
            labelled = message.model_copy(update={"id": f"{name}{begun.part}"})
            return [*messages[:position], labelled, *messages[position + 1 :]]
    return messages


def with_summaries_marked(
    board: FlagBoard, trajectory: str, instance: str, messages: Sequence[Any]
) -> tuple[Sequence[Any], str | None]:
    """``messages`` of the agent at the top with a mark on summaries that bear none; below it LangChain's only.

    A user turn that was begun anew has its label. Also returns the label of the current user turn, as ``turn_of``.
    """
    if not instance:
        messages = as_begun(board, trajectory, messages)
    turn = board.branches.turn_in(trajectory, instance) if not instance else None
    label = turn_of(messages)
    if turn is None or label == turn:
        return messages, label  # as mostly: the turn goes on behind its own message
    messages = with_summaries(messages, turn, *board.branches.known_turns(trajectory, turn))
    return messages, turn_of(messages)
