"""The user message that a model call serves, read from its input: a new one begins a new user turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trajectory_guard.core.steps import Usage
from trajectory_guard.core.tracking.scope import asked_label
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.transcripts.messages import input_items, lost_messages, shows_input
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.transcript import Message

MAX_INPUT_CHARS: Final = 200_000
"""A longer input is not read: it would delay the application."""


def with_asked(usage: Usage, span: SpanView, table: DialectTable = DIALECTS) -> Usage:
    """The usage of a model call with the user message that it serves."""
    items = _items(span, table)
    messages, lost = _Messages(items), lost_messages(span, table) if items else 0
    return usage._replace(asked=_newest(messages, lost), opening=lost == 0 and _opens(messages))


def asked_in(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Label of the newest user message in the input of a model call; None if the input was not captured.

    Frameworks write much in the name of the user: observations of agents whose calls are plain text, reminders, our own
    nudges. A person speaks first, or after an answer of the model that asks for no tool. Where an input shows no tool
    call in a structured form, only its first user message counts. With a part of the input, the message that is served
    may be lost.
    """
    return _newest(_Messages(_items(span, table)), lost_messages(span, table))


def opens(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Whether the input of a model call has nothing behind the words of the user; stops at the first sign of more."""
    return _opens(_Messages(_items(span, table))) and lost_messages(span, table) == 0


def _items(span: SpanView, table: DialectTable) -> list[Any]:
    if not shows_input(span, table) or _chars(span.attributes) > MAX_INPUT_CHARS:
        return []
    return input_items(span, table)


class _Messages:
    """The messages of an input, each read when it is asked for, and once."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._read: dict[int, Message | None] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: int) -> Message | None:
        if place not in self._read:
            self._read[place] = next(iter(read_messages(self._items[place])), None)
        return self._read[place]


def _is_of_user(message: Message) -> bool:
    return message.role == "user" and bool(message.text) and not message.results


def _is_structured(message: Message) -> bool:
    return bool(message.calls or message.results) or message.role == "tool"


def _opens(messages: _Messages) -> bool:
    asked = False
    for place in range(len(messages)):
        message = messages[place]
        if message is None:
            continue
        if _is_structured(message) or (asked and message.role == "assistant"):
            return False
        asked = asked or _is_of_user(message)
    return asked


def _newest(messages: _Messages, lost: int | None) -> str | None:
    if lost is None:
        return None
    newest = first = None
    structured = False
    later: Message | None = None  # the message after the one looked at, if it is the user's
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message is None:
            continue
        structured = structured or _is_structured(message)
        if later is not None and newest is None and message.role == "assistant" and not message.calls:
            newest = place + 1, later.text
        later = message if _is_of_user(message) else None
        if later is not None:
            first = place, later.text
        if structured and newest is not None:
            break
    found = newest if structured and newest is not None else None if lost else first
    return asked_label(lost + found[0], found[1]) if found is not None else None


def _chars(attributes: Mapping[str, Any]) -> int:
    return sum(len(value) for value in attributes.values() if isinstance(value, str))
