"""Boundaries that a gate sees, for the trajectory cursor: requests and answers in messages, refusals, nudges, stops.

Messages are read by attribute, so that this module needs no framework.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from trajectory_guard.board.cursors import excerpt, short
from trajectory_guard.core.content.outcome import is_refused_by_person
from trajectory_guard.core.cursor.boundary import (
    ALLOWED,
    APPLICATION,
    ASKED,
    GUARD,
    PERSON,
    Call,
    Sighting,
    batch_digest,
)
from trajectory_guard.core.cursor.cursor import Cursor, digests_of
from trajectory_guard.core.steps import DENIED, ERROR, INTERRUPTED, NOT_RUN, SUCCESS, Outcome
from trajectory_guard.core.text import as_data, clip
from trajectory_guard.core.tracking.scope import label_of
from trajectory_guard.gates.branches import with_summaries_marked
from trajectory_guard.gates.call_ids import own_id, requests_for, requests_of
from trajectory_guard.gates.messages import (
    MAX_LOOK_BACK,
    answer_of,
    first_request,
    is_of_person,
    is_refusal_message,
    is_tool_message,
    request_with,
    step_id_of,
    turn_of,
)
from trajectory_guard.logs import log_missing_actions

if TYPE_CHECKING:
    from trajectory_guard.board.store import FlagBoard

_Answer = TypeVar("_Answer")
_SHOWN: Final = 10
"""Entries, and tools of the path, in ``loop_status``; the snapshot has all of them."""
STATE: Final = "cursor_state"
"""Key of the snapshot in the saved status of a gate."""
_EDITED: Final = "hitl_edited_tool_calls"
"""State key in which LangChain's ``HumanInTheLoopMiddleware`` keeps the calls that a person has changed."""


class Request(NamedTuple):
    """A model message that requests tools, with the answers that follow it, and the label of its user turn."""

    message: Any
    calls: Sequence[Mapping[str, Any]]
    answers: Mapping[str, Any]
    turn: str | None

    @property
    def key(self) -> str:
        """Stands for the message."""
        return step_id_of(self.message, dict(self.calls[0]))

    @property
    def is_answered(self) -> bool:
        """Whether every call has its answer."""
        return all(str(call.get("id")) in self.answers for call in self.calls)


def requests_in(messages: Sequence[Any], read: str) -> list[Request]:
    """The newest model messages that request tools, oldest first, down to the one with the key ``read``, left out."""
    answers: dict[str, Any] = {}
    found: list[tuple[int, Request]] = []
    for position in range(len(messages) - 1, max(-1, len(messages) - 1 - MAX_LOOK_BACK), -1):
        message = messages[position]
        if is_tool_message(message):
            answers.setdefault(str(message.tool_call_id), message)
        elif getattr(message, "type", None) == "ai" and (calls := requests_of(message)):
            own = {name: answers.pop(name) for call in calls if (name := str(call.get("id"))) in answers}
            request = Request(message, calls, own, None)
            if request.key == read:
                break
            found.append((position, request))
    turn, at, labelled = None, 0, list[Request]()
    for position, request in reversed(found):
        turn = turn_of(messages[:position]) if not labelled else _turn_between(messages, at, position, turn)
        at = position
        labelled.append(request._replace(turn=turn))
    return labelled


def _end_of(messages: Sequence[Any]) -> str:
    """A key of the newest model message that requests tools, and of the number of messages after it."""
    for behind in range(min(len(messages), MAX_LOOK_BACK)):
        message = messages[-1 - behind]
        if (first := first_request(message)) is not None:
            place = "" if getattr(message, "id", None) else f"@{len(messages)}"
            return f"{short(step_id_of(message, first))}{place}+{behind}"
    return ""


def _was_dropped(cursor: Cursor, message: Any, seen: Sighting) -> bool:
    """Whether a call was entered and dropped: calls of its message were, and this one is not kept."""
    return (
        bool(cursor.gone_batches)
        and bool(getattr(message, "id", None))  # without an id, messages are not distinct
        and batch_digest(seen.batch) in cursor.gone_batches
        and cursor.find(seen) is None
    )


def _turn_between(messages: Sequence[Any], first: int, last: int, before: str | None) -> str | None:
    for position in range(last - 1, first, -1):
        message = messages[position]
        if is_of_person(message):
            return str(getattr(message, "id", None) or position)
    return before


class Boundaries:
    """Enters into the cursor of a trajectory what a gate sees. ``board``: keeps the cursor."""

    def __init__(self, board: FlagBoard) -> None:
        self.board = board
        self._newest: tuple[weakref.ref[Any], dict[str, list[dict[str, Any]]]] | None = None

    @property
    def redact(self) -> bool:
        """Whether notes are left out."""
        return self.board.config.redact

    # --- messages ----------------------------------------------------------------------------------------------

    def read(self, trajectory: str, instance: str, messages: Sequence[Any], *, witness: bool, live: bool) -> None:
        """Enter what is new in the messages of an agent instance.

        Parameters:
            witness: the gate also stands before every tool call: a call that was answered, and did not come by, did
                not run.
            live: the model has just written the last of them.
        """
        messages, _ = with_summaries_marked(self.board, trajectory, instance, messages)
        self.board.cursors.record(trajectory, partial(self._read, instance, messages, witness, live))

    def _read(self, instance: str, messages: Sequence[Any], witness: bool, live: bool, cursor: Cursor) -> None:
        own = (one for one in cursor.tasks.values() if one.instance == instance and one.read)
        newest = max(own, key=lambda task: task.number, default=None)
        known = newest.read if newest is not None else ""
        requests = requests_in(messages, known)
        going_on = self._label(cursor, instance, None)
        read = ""
        for place, request in enumerate(requests):
            label = label_of(instance, request.turn) if request.turn is not None else going_on
            is_live = live and witness and place == len(requests) - 1
            calls = [self._request(cursor, request, one, label, instance, is_live) for one in request.calls]
            for call, one in zip(calls, request.calls, strict=True):
                answer = request.answers.get(str(one.get("id")))
                if call is not None and answer is not None:
                    self._answer(cursor, call, answer, witness)
            if request.is_answered and getattr(request.message, "id", None):
                read = request.key
        task = cursor.begin_task(self._label(cursor, instance, turn_of(messages)), instance)
        task.read, task.asked = read or task.read, _end_of(messages)

    def _catch_up(self, instance: str, messages: Sequence[Any], cursor: Cursor, *, live: bool = False) -> None:
        """``_read``, unless these messages have been read: each of many parallel calls brings them again."""
        task = cursor.tasks.get(self._label(cursor, instance, turn_of(messages)))
        if task is None or task.asked != _end_of(messages):
            self._read(instance, messages, True, live, cursor)

    def _label(self, cursor: Cursor, instance: str, turn: str | None) -> str:
        """Label of a task; without the message that began it, which was trimmed or summarised, that of the newest."""
        own = (task for task in cursor.tasks.values() if turn is None and task.instance == instance)
        newest = max(own, key=lambda task: task.number, default=None)
        return newest.label if newest is not None else label_of(instance, turn)

    def _request(
        self, cursor: Cursor, request: Request, one: Mapping[str, Any], label: str, instance: str, live: bool
    ) -> Call | None:
        """The requested call; None if it has been entered to its end and dropped."""
        seen = self._sighting(one, "messages", step_id_of(request.message, dict(one)), label, instance)
        seen = seen._replace(agent=getattr(request.message, "name", None), batch=short(request.key), live=live)
        if _was_dropped(cursor, request.message, seen):
            return None
        call = cursor.sight(seen)
        if call.digest != seen.digest and not call.decision and not call.outcome:
            cursor.edit(call, seen, by=APPLICATION)
        cursor.propose(call)
        return call

    def _answer(self, cursor: Cursor, call: Call, answer: Any, witness: bool) -> None:
        if call.outcome:
            return
        outcome, text = answer_of(answer)
        ran = call.executed or call.interrupted or not (witness and call.live)
        if outcome == DENIED or (outcome == ERROR and not ran):
            by = _denied_by(answer, text)
            cursor.finish(call, DENIED, by=by, note=self._note(DENIED, text))
        else:
            cursor.finish(call, outcome, note=self._note(outcome, text), executed=ran)

    def _sighting(self, one: Mapping[str, Any], source: str, key: str, label: str, instance: str) -> Sighting:
        args = one.get("args")
        return Sighting(
            short(str(one.get("name") or "")), source, short(key), short(str(own_id(one) or "")), *digests_of(args),
            "" if self.redact else excerpt(args), label, instance,
        )  # fmt: skip

    def _note(self, outcome: str, text: str) -> str:
        return "" if self.redact or outcome not in (DENIED, ERROR) else clip(as_data(text))

    # --- before a tool -----------------------------------------------------------------------------------------

    def refused(
        self, trajectory: str, instance: str, messages: Sequence[Any], one: Mapping[str, Any], reason: str
    ) -> None:
        """Enter that the guard has answered a requested call."""
        messages, _ = with_summaries_marked(self.board, trajectory, instance, messages)

        def change(cursor: Cursor) -> None:
            self._catch_up(instance, messages, cursor, live=True)
            call = self._at_tool(cursor, instance, messages, one)
            cursor.finish(call, DENIED, by=GUARD, note=self._note(DENIED, reason))

        self.board.cursors.record(trajectory, change)

    def _at_tool(self, cursor: Cursor, instance: str, messages: Sequence[Any], one: Mapping[str, Any]) -> Call:
        """The call that has come to its tool: as the messages know it, if they do."""
        label = self._label(cursor, instance, turn_of(messages))
        found = self._request_with(messages, one)
        if found is None:
            return cursor.sight(self._sighting(one, "gate", str(own_id(one)), label, instance))
        message, (requested, *_) = found
        seen = self._sighting(one, "messages", step_id_of(message, requested), label, instance)
        seen = seen._replace(batch=short(step_id_of(message, first_request(message) or requested)))
        was_dropped = _was_dropped(cursor, message, seen)  # before it ran: more are open than a cursor keeps
        call = cursor.sight(seen)
        call.proposed |= was_dropped
        return call

    def _request_with(self, messages: Sequence[Any], one: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]] | None:
        """``request_with``; the calls of the newest message by id are kept, because parallel calls ask one by one."""
        call_id = own_id(one)
        newest = next((one for one in reversed(messages[-MAX_LOOK_BACK:]) if first_request(one) is not None), None)
        known = self._newest
        if newest is None or known is None or known[0]() is not newest or call_id not in known[1]:
            try:
                known = weakref.ref(newest), dict[str, list[dict[str, Any]]]()
            except TypeError:  # a state of its own kind
                return request_with(messages, one)
            for call in requests_of(newest):
                known[1].setdefault(str(own_id(call)), []).append(call)
            self._newest = known
        found = requests_for(one, known[1].get(call_id, ()))
        return (newest, found) if found else request_with(messages, one)

    def execution(
        self, trajectory: str, instance: str, messages: Sequence[Any], one: Mapping[str, Any],
        state: Any, *, by_guard: bool,
    ) -> Execution:  # fmt: skip
        """Enters what becomes of a call that is on its way to its tool; a context manager.

        Parameters:
            one: the call as the tool is to receive it.
            state: the graph state that the tool receives.
            by_guard: the guard was asked whether the call may run, and allowed it.
        """
        messages, _ = with_summaries_marked(self.board, trajectory, instance, messages)

        def begin(cursor: Cursor) -> tuple[Cursor, Call]:
            self._catch_up(instance, messages, cursor)
            call = self._at_tool(cursor, instance, messages, one)
            cursor.repeat(call, by=APPLICATION)
            edited = (state.get(_EDITED) or {}).get(one.get("id")) if isinstance(state, Mapping) else None
            if edited is not None:
                ran = {"id": one.get("id"), "name": edited["name"], "args": edited["args"]}
                cursor.edit(call, self._sighting(ran, "gate", "", call.task, instance), by=PERSON)
            elif call.digest != digests_of(one.get("args"))[0]:
                cursor.edit(call, self._sighting(one, "gate", "", call.task, instance), by=APPLICATION)
            elif by_guard and not call.outcome:
                cursor.decide(call, ALLOWED, by=GUARD)
            return cursor, call

        def end(seen: Callable[[], _Ending], cursor: Cursor) -> None:
            outcome, text, asked, answer = seen()
            if begun is not None and begun[0] is cursor and begun[1].task in cursor.tasks:
                call = begun[1]  # even if it was dropped meanwhile
            else:
                call = self._at_tool(cursor, instance, messages, one)
            if asked:
                cursor.decide(call, ASKED, by=PERSON)
                return
            by = _denied_by(answer, text) if outcome == DENIED else ""
            if call.decision == ASKED and outcome == ERROR and answer is not None and not call.executed:
                outcome, by = DENIED, PERSON  # the answer to the question, which came in place of the tool's
            cursor.finish(call, outcome, by=by, note=self._note(outcome, text))

        begun = self.board.cursors.record(trajectory, begin)
        return Execution(lambda seen: self.board.cursors.record(trajectory, partial(end, seen)))

    # --- what is said to the agent -----------------------------------------------------------------------------

    def feedback(self, trajectory: str, task: str, instance: str, outcome: str, reason: str, *, by: str) -> None:
        """Enter a nudge or a stop."""
        note = "" if self.redact else clip(reason)
        self.board.cursors.record(
            trajectory, lambda cursor: cursor.feedback(outcome, by=by, note=note, task=task, instance=instance)
        )

    # --- what the graph state holds ----------------------------------------------------------------------------

    def status(self, trajectory: str, instance: str) -> dict[str, Any]:
        """The keys of ``loop_status``: where the trajectory stands, and the snapshot."""
        required = self.board.config.required_actions
        shown = self.board.cursors.record(trajectory, lambda cursor: _shown(cursor, required))
        return {"cursor": shown, STATE: self.board.cursors.save(trajectory, instance)}

    def text(self, trajectory: str, task: str, instance: str) -> str:
        """The text of the record for an agent: all of this turn for the one at the top, its own for one below."""
        config = self.board.config
        required = () if instance else config.required_actions
        only = task if instance else None
        return (
            self.board.cursors.record(
                trajectory,
                lambda cursor: cursor.text(config.recall_chars, required=required, redact=config.redact, task=only),
            )
            or ""
        )

    def missing(self, trajectory: str) -> tuple[str, ...]:
        """The required actions that have not succeeded in this turn."""
        required = self.board.config.required_actions
        return self.board.cursors.record(trajectory, lambda cursor: cursor.missing(required)) or ()

    def report_missing(self, trajectory: str) -> None:
        """Count and log the required actions that an agent has not taken when it ends."""
        missing = self.missing(trajectory)
        for tool in missing:
            self.board.counts[f"required_missing.{tool}"] += 1
        if missing:
            log_missing_actions(trajectory, missing)


class _Ending(NamedTuple):
    """How a call ended: outcome, text, whether a person is asked to approve it, and the message that answers it."""

    outcome: Outcome
    text: str = ""
    asked: bool = False
    answer: Any = None


class Execution:
    """A call on its way to its tool. An error that leaves the block is entered, and goes on.

    Parameters:
        end: is given a function that reads how the call ended; contains its errors.
    """

    def __init__(self, end: Callable[[Callable[[], _Ending]], None]) -> None:
        self._end = end

    def __enter__(self) -> Execution:
        return self

    def done(self, answer: _Answer) -> _Answer:
        """Enter the tool's answer, and return it."""
        self._end(partial(_ending_of, answer))
        return answer

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self._end(partial(_ending_by, error))


def _ending_of(answer: Any) -> _Ending:
    message = _message_in(answer)
    return _Ending(SUCCESS) if message is None else _Ending(*answer_of(message), answer=message)


def _ending_by(error: BaseException) -> _Ending:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GraphInterrupt" in names:
        return _Ending(INTERRUPTED, asked=_asks_for_approval(error))
    if "GraphBubbleUp" in names:  # the tool hands over to another node
        return _Ending(SUCCESS)
    stopped = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit))
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  the text of an error is the application's code
        text = type(error).__name__
    return _Ending(INTERRUPTED if stopped else ERROR, text)


class NoExecution:
    """Takes the place of ``Execution`` where no cursor is kept."""

    def __enter__(self) -> NoExecution:
        return self

    def done(self, answer: _Answer) -> _Answer:
        """The answer."""
        return answer

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pass


NO_EXECUTION: Final = NoExecution()


def _message_in(answer: Any) -> Any:
    """The tool message in what a tool node returns for a call: itself, or in the update of a ``Command``."""
    if is_tool_message(answer):
        return answer
    update = getattr(answer, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    return next(filter(is_tool_message, messages), None) if isinstance(messages, (list, tuple)) else None


def _asks_for_approval(error: BaseException) -> bool:
    """Whether an interrupted graph asks a person to approve a call, and not something else."""
    asked = error.args[0] if error.args and isinstance(error.args[0], (list, tuple)) else ()
    values = [getattr(one, "value", None) for one in asked]
    return any(
        isinstance(value, Mapping) and (value.get("type") == "tool_approval" or "action_requests" in value)
        for value in values
    )


def _denied_by(answer: Any, text: str) -> str:
    if is_refusal_message(answer) or text.startswith(NOT_RUN):
        return GUARD
    return PERSON if is_refused_by_person(text) else APPLICATION


def _shown(cursor: Cursor, required: Sequence[str]) -> dict[str, Any]:
    report = cursor.report(required)
    task = cursor.last.task if cursor.last is not None else ""
    return {
        "position": report.cursor,
        "last_entry": report.last_entry,
        "path": list(report.path.get(task, ()))[-_SHOWN:],
        "repeat_loop_count": report.repeat_loop_count,
        "missing_required_actions": list(report.missing_required_actions),
        "unrecorded_boundaries": report.unrecorded_boundaries,
        "open_calls": report.open_calls,
        "entries": [
            {name: value for name, value in entry._asdict().items() if value not in ("", None)}
            for entry in list(cursor.entries)[-_SHOWN:]
        ],
    }
