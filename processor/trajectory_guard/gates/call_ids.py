"""Ids of calls that a model has used before, in messages without ids: nothing else tells their calls apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_USE: Final = "trajectory_guard_use"
"""Key of a call, in the messages that a gate reads: how often its id has been used so far."""


def with_uses(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` with a count in the calls whose id is that of an earlier call, where messages have no ids.

    The first call with an id stays as it is: its step has the id that its span has. Where older messages are removed,
    counts become those of calls that were read already: such calls are left out, and none counts twice.
    """
    uses: Counter[str] = Counter()
    counted: list[Any] | None = None
    for at, message in enumerate(messages):
        calls = getattr(message, "tool_calls", None) if message.type == "ai" else None
        if not calls:
            continue
        names = [str(call.get("id")) for call in calls]
        uses.update(set(names))
        if not message.id and any(uses[name] > 1 for name in names):
            counted = list(messages) if counted is None else counted
            own = [{**call, _USE: uses[name]} for call, name in zip(calls, names, strict=True)]
            counted[at] = message.model_copy(update={"tool_calls": own})
    return messages if counted is None else counted


def call_name(call: Mapping[str, Any]) -> str:
    """The id of a call, with the count of its use from the second one on."""
    use = call.get(_USE, 1)
    return f"{call.get('id')}#{use}" if use > 1 else str(call.get("id"))
