"""The form in which nodes write messages into the state: a list of new ones, one at a time, or all of them.

An update of the messages is seldom anything but a list. It may be a tuple, a single message, or LangGraph's
``Overwrite`` in one of its forms; and a reducer of the application's may take commands, which hold no messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels import LastValue, Topic
from langgraph.graph.message import add_messages
from langgraph.types import Overwrite

from trajectory_guard.gates.langgraph_internals import MISSING

Form = Literal["new", "one", "whole"]
"""A list of new messages; a single message; all messages, where the newest value replaces the one before."""
_OVERWRITE: Final = "__overwrite__"
_TAKE_LISTS: Final = (add_messages, operator.add, operator.iadd, operator.concat)


def form_of(channel: Any) -> Form:
    """The form of what nodes write to the key of the messages.

    Reducers of the application's own are called to see it, with messages that are made up; the usual ones are not.
    """
    if type(channel) is LastValue:
        return "whole"
    if isinstance(channel, Topic) or getattr(channel, "operator", None) in _TAKE_LISTS:
        return "new"
    before, new = HumanMessage("before", id="before"), AIMessage("new", id="new")
    with suppress(Exception):  # the reducer takes no lists, or the key holds other things than messages
        found = _after(channel, [before], [new])
        if found == [new]:
            return "whole"
        return "one" if [new] in found else "new"
    with suppress(Exception):
        return "one" if new in _after(channel, before, new) else "new"
    return "new"


def as_written(form: Form, shown: Sequence[Any], new: list[Any], before: Any) -> Any:
    """A new message as a node writes it.

    Parameters:
        shown: all messages, with the new one.
        new: that one.
        before: the messages as the state holds them: a tuple stays one.
    """
    if form == "one":
        return new[0]
    return in_form_of(before, list(shown) if form == "whole" else new)


def in_form_of(before: Any, messages: list[Any]) -> Sequence[Any]:
    """``messages`` as a list, or as a tuple where the state holds one."""
    return tuple(messages) if isinstance(before, tuple) and before else messages


class Update(NamedTuple):
    """What a node writes to the key of the messages.

    Fields:
        messages: those in it.
        replaces: they replace all messages of the state, as ``Overwrite`` does; is_single: a message without a list.
        with_messages: the update with other messages.
    """

    messages: list[Any]
    replaces: bool
    is_single: bool
    with_messages: Callable[[list[Any]], Any]


def update_of(value: Any) -> Update | None:
    """An update, taken apart; None if it holds no messages, but a command to a reducer of the application's."""
    if isinstance(value, list):
        return Update(value, False, False, list)
    if isinstance(value, Overwrite):
        return Update(list(value.value), True, False, lambda messages: Overwrite(in_form_of(value.value, messages)))
    if isinstance(value, dict) and (key := _overwriting_key(value)) is not None:
        return Update(list(value[key]), True, False, lambda messages: {**value, key: in_form_of(value[key], messages)})
    if _is_message(value):
        return Update([value], False, True, list)
    return Update(list(value), False, False, tuple) if isinstance(value, tuple) else None


def all_messages(before: Sequence[Any], value: Any, form: Form) -> list[Any]:
    """All messages, after a node has written ``value``."""
    update = update_of(value)
    if update is None:
        return list(before)
    kept = [one for one in update.messages if not isinstance(one, RemoveMessage)]
    if form == "whole" or update.replaces:
        return kept
    known = {getattr(one, "id", None) for one in kept} - {None}
    return [*(one for one in before if getattr(one, "id", None) not in known), *kept]


def _overwriting_key(value: dict[str, Any]) -> str | None:
    """Where ``Overwrite`` as JSON holds the messages; None if a dictionary is nothing of that kind."""
    if len(value) == 1 and _OVERWRITE in value:
        return _OVERWRITE
    return "value" if value.get("type") == _OVERWRITE and "value" in value else None


def _is_message(value: Any) -> bool:
    """Whether LangChain takes a value for one message: an object, a text, a dictionary, or a pair of role and text."""
    if isinstance(value, dict):
        return "role" in value or ("type" in value and "content" in value)
    if isinstance(value, tuple):
        return len(value) == 2 and all(isinstance(one, str) for one in value)
    return isinstance(value, (BaseMessage, str))


def _after(channel: Any, *values: Any) -> Any:
    """The content of an empty copy of the channel after these values, each written in a super-step of its own."""
    tried = channel.from_checkpoint(MISSING)
    for value in values:
        tried.update([value])
    tried.finish()
    return tried.get()
