"""The form in which nodes write messages into the state: a list of new ones, one at a time, or all of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import LastValue, Topic
from langgraph.graph.message import add_messages

from trajectory_guard.gates.langgraph_internals import MISSING

Form = Literal["new", "one", "whole"]
"""A list of new messages; a single message; all messages, where the newest value replaces the one before."""
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


def as_written(form: Form, shown: Sequence[Any], new: list[Any]) -> Any:
    """A new message as a node writes it.

    Parameters:
        shown: all messages, with the new one.
        new: that one.
    """
    return list(shown) if form == "whole" else new[0] if form == "one" else new


def _after(channel: Any, *values: Any) -> Any:
    """The content of an empty copy of the channel after these values, each written in a super-step of its own."""
    tried = channel.from_checkpoint(MISSING)
    for value in values:
        tried.update([value])
    tried.finish()
    return tried.get()
