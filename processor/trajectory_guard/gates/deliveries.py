"""Hand-overs between the agents of a graph, read from the messages of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard.core.content.delivery import MAX_CHARS, delivered, states_facts
from trajectory_guard.core.content.result_text import values_of
from trajectory_guard.core.steps import Delivered, StepRecord
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import is_handoff
from trajectory_guard.gates.call_ids import requests_of
from trajectory_guard.gates.messages import (
    content_text,
    is_answer,
    is_guard_message,
    is_of_person,
    is_tool_message,
    step_id_of,
)

if TYPE_CHECKING:
    from trajectory_guard.board.store import FlagBoard

_MAX_COMPARED: Final = 96
_MAX_ANSWERS: Final = 4
_LEAST_ANSWERS: Final = 2
_MAX_GIVEN_CHARS: Final = 65_536


def deliveries(messages: Sequence[Any], steps: Sequence[StepRecord]) -> dict[str, Delivered]:
    """What hand-overs bring, by step id, where an agent has answered before or says something beside it.

    A hand-over about whose agent the messages show nothing has no entry.
    """
    wanted = {step.step_id for step in steps if is_handoff(step.tool_name)}
    found: dict[str, Delivered] = {}
    for position in range(len(messages) - 1, -1, -1) if wanted else ():
        ids = wanted.intersection(step_id_of(messages[position], call) for call in _handoffs(messages[position]))
        brings = _delivered(messages, position) if ids else None
        if brings is not None:
            found.update(dict.fromkeys(ids, brings))
        wanted -= ids
        if not wanted:
            break
    return found


def note_said(board: FlagBoard, trajectory: str, run: str, messages: Sequence[Any]) -> None:
    """Record what the newest message brings: an answer to a hand-over, or behind an answer that was turned down."""
    if not messages or is_tool_message(messages[-1]):
        return
    if is_answer(messages[-1]):
        board.note_delivery(trajectory, _delivered(messages, len(messages)))
    if _states_facts(messages):
        board.note_new_version(trajectory, run)


def _states_facts(messages: Sequence[Any]) -> bool:
    """Whether the answers at the end state something that no message before them does: a version with other figures.

    Whoever turned the answer down, what is looked up again belongs to other work.
    """
    first = _first_of(messages, len(messages), _is_said)
    if len(messages) - first < _LEAST_ANSWERS:
        return False  # nobody has said anything to the answer
    texts = [both_ends(content_text(one.content), MAX_CHARS) for one in messages[max(0, first - _MAX_COMPARED) :]]
    earlier, names = texts[: first - len(messages)], _names_in(messages[first:])
    return any(states_facts(text, earlier, names) for text in texts[first - len(messages) :])


def texts_given(messages: Sequence[Any]) -> Iterator[str]:
    """Answers, questions and instructions in the newest messages; calls and results are left out."""
    for one in messages[-_MAX_COMPARED:]:
        if is_of_person(one) or _is_said(one):
            yield both_ends(content_text(one.content), _MAX_GIVEN_CHARS)


def _is_said(message: Any) -> bool:
    """Whether a message is an answer of an agent, or an instruction of the graph."""
    return (is_answer(message) or getattr(message, "type", None) == "system") and not is_guard_message(message)


def _delivered(messages: Sequence[Any], position: int) -> Delivered | None:
    """What the hand-over at ``position`` (or the one to come, behind the last message) brings.

    None if the agent has said nothing, or nobody had handed over to it.
    """
    first = _first_of(messages, position, lambda one: is_answer(one) and not is_guard_message(one))
    answer = "\n".join(content_text(one.content) for one in messages[first:position])
    remark = content_text(messages[position].content) if position < len(messages) else ""
    asked = first - 1
    while asked >= 0 and (is_tool_message(messages[asked]) or is_guard_message(messages[asked])):
        asked -= 1
    was_asked = asked >= 0 and bool(_handoffs(messages[asked]))
    if not (answer or remark) or (position == len(messages) and not was_asked):
        return None
    request = _text(messages[asked]) if was_asked else ""
    start = max(0, position - _MAX_COMPARED)
    before = [_text(one) for one in messages[start : asked if asked >= 0 else first] if _counts(one)]
    return delivered(answer, remark, request, before, _names_in(messages[start : position + 1]))


def _first_of(messages: Sequence[Any], end: int, belongs: Callable[[Any], bool]) -> int:
    """Where the messages right before ``end`` that belong together begin; a few at most."""
    first = end
    while first > 0 and end - first < _MAX_ANSWERS and belongs(messages[first - 1]):
        first -= 1
    return first


def _names_in(messages: Sequence[Any]) -> set[str]:
    """Words of the names of the agents that have spoken, or that the work is handed to."""
    return {
        word
        for one in messages
        for name in (getattr(one, "name", None) or "", *(call.get("name") or "" for call in _handoffs(one)))
        if name and not is_tool_message(one)
        for word in name.casefold().replace("-", "_").split("_")
    }


def _counts(message: Any) -> bool:
    return is_of_person(message) or is_tool_message(message) or getattr(message, "type", None) == "ai"


def _handoffs(message: Any) -> list[dict[str, Any]]:
    if getattr(message, "type", None) != "ai":
        return []
    return [call for call in requests_of(message) if is_handoff(str(call.get("name") or ""))]


def _text(message: Any) -> str:
    """The text of a message, with the arguments of its hand-overs."""
    said = content_text(message.content)[:MAX_CHARS]
    asked = [value for call in _handoffs(message) for value in values_of(call.get("args"))]
    return "\n".join([said, *asked])[:MAX_CHARS] if asked else said
