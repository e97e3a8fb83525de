"""The user message that a model call serves, read from its input: a new one begins a new user turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.core.steps import Usage
from trajectory_guard.core.tracking.scope import asked_label
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.transcripts.messages import input_items, shows_input
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.transcript import Message

MAX_INPUT_CHARS: Final = 200_000
"""A longer input is not read: it would delay the application."""


def with_asked(usage: Usage, span: SpanView, table: DialectTable = DIALECTS) -> Usage:
    """The usage of a model call with the user message that it serves."""
    asked, opening = _read(span, table)
    return usage._replace(asked=asked, opening=opening)


def asked_in(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Label of the newest user message in the input of a model call; None if the input was not captured.

    Frameworks write much in the name of the user: observations of agents whose calls are plain text, reminders, our own
    nudges. A person speaks first, or after an answer of the model that asks for no tool. Where an input shows no tool
    call in a structured form, only its first user message counts.
    """
    return _read(span, table)[0]


def _read(span: SpanView, table: DialectTable) -> tuple[str | None, bool]:
    """The label, and whether the input has nothing behind the words of the user."""
    if not shows_input(span, table) or _chars(span.attributes) > MAX_INPUT_CHARS:
        return None, False
    items = input_items(span, table)
    newest = first = None
    structured = answers = answered = False
    later: Message | None = None  # the message after the one looked at, if it is the user's
    for place in range(len(items) - 1, -1, -1):
        message = next(iter(read_messages(items[place])), None)
        if message is None:
            continue
        structured = structured or bool(message.calls or message.results) or message.role == "tool"
        answers = answers or message.role == "assistant"
        if later is not None and newest is None and message.role == "assistant" and not message.calls:
            newest = place + 1, later.text
        later = message if message.role == "user" and message.text and not message.results else None
        if later is not None:
            first, answered = (place, later.text), answers
        if structured and newest is not None:
            break
    found = newest if structured and newest is not None else first
    return asked_label(*found) if found is not None else None, found is not None and not structured and not answered


def _chars(attributes: Mapping[str, Any]) -> int:
    return sum(len(value) for value in attributes.values() if isinstance(value, str))
