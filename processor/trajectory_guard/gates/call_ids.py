"""Ids that several calls have: parallel calls share one, or messages without ids use one again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_USE: Final = "trajectory_guard_use"
"""Key of a call, in the messages that a gate reads: how often its id has been used so far."""
WITHOUT_CALLS: Final = ("tool", "system", "human")
"""Types of messages that request no calls."""
_OWN_ID: Final = "trajectory_guard_id"
"""Key of a call or a result, in the messages that a gate reads: the id that the model gave, where it has a new one."""


def share_ids(message: Any) -> bool:
    """Whether parallel calls of a model message have one id."""
    calls = message.tool_calls
    if message.invalid_tool_calls:
        calls = requests_of(message)
    return len(calls) > 1 and len({call.get("id") for call in calls}) < len(calls)


def with_uses(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` in which each call has a name of its own: see ``call_name``.

    Parallel calls that share an id get new ids, and so do their results. Where messages have no ids, each call whose id
    is that of an earlier call has a count. The first call with an id stays as it is: its step has the id that its span
    has. Where older messages are removed, counts become those of calls that were read already: such calls are left out,
    and none counts twice.
    """
    messages = _with_new_ids(messages)
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


def _with_new_ids(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` in which parallel calls have different ids. The n-th result for an id is that of the n-th call."""
    renamed: list[Any] | None = None
    awaiting: dict[str, deque[str]] = {}
    """The ids of the calls whose results come next, by the id that they share."""
    for at, message in enumerate(messages):
        if message.type == "ai" and (calls := requests_of(message)):
            for call in calls if awaiting else ():
                awaiting.pop(str(call.get("id")), None)
            if share_ids(message):
                renamed = list(messages) if renamed is None else renamed
                new = _new_ids(calls)
                for call, name in zip(calls, new, strict=True):
                    awaiting.setdefault(str(call.get("id")), deque()).append(name)
                renamed[at] = _requesting(message, new)
        elif message.type == "tool" and (names := awaiting.get(str(message.tool_call_id))):
            name = names.popleft()
            if name != message.tool_call_id and renamed is not None:
                further = {**message.additional_kwargs, _OWN_ID: message.tool_call_id}
                renamed[at] = message.model_copy(update={"tool_call_id": name, "additional_kwargs": further})
    return messages if renamed is None else renamed


def _new_ids(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of parallel calls; from the second call with an id on, with the number of the call.

    ``with_uses`` counts in another form: the second call of a message is not the second message with a call.
    """
    seen: Counter[str] = Counter()
    new = []
    for call in calls:
        name = str(call.get("id"))
        seen[name] += 1
        new.append(f"{name}~{seen[name]}" if seen[name] > 1 else name)
    return new


def _requesting(message: Any, ids: Sequence[str]) -> Any:
    """A model message whose calls have other ids."""
    calls = [
        {**call, "id": name, _OWN_ID: call.get("id")} if name != str(call.get("id")) else call
        for call, name in zip(requests_of(message), ids, strict=True)
    ]
    whole = len(message.tool_calls)
    return message.model_copy(update={"tool_calls": calls[:whole], "invalid_tool_calls": calls[whole:]})


def requests_of(message: Any) -> list[dict[str, Any]]:
    """The tool calls that a model message requests, malformed ones behind the others."""
    if getattr(message, "type", None) in WITHOUT_CALLS:
        return []  # pydantic takes microseconds to say that a message has no such field
    calls: list[dict[str, Any]] = getattr(message, "tool_calls", None) or []
    broken = getattr(message, "invalid_tool_calls", None)
    if not broken:
        return calls
    return [*calls, *({**one, "name": one.get("name") or ""} for one in broken)]


def call_name(call: Mapping[str, Any]) -> str:
    """The id of a call, with the count of its use from the second one on."""
    use = call.get(_USE, 1)
    return f"{call.get('id')}#{use}" if use > 1 else str(call.get("id"))


def own_id(call: Mapping[str, Any]) -> Any:
    """The id that the model gave to a call: spans have it, too."""
    return call[_OWN_ID] if _OWN_ID in call else call.get("id")


def own_ids_answered(messages: Sequence[Any]) -> Iterator[str]:
    """The ids that the model gave to the calls whose results are among ``messages``."""
    for message in messages:
        name = getattr(message, "tool_call_id", None)
        if name and (name := (getattr(message, "additional_kwargs", None) or {}).get(_OWN_ID, name)):
            yield name


def requests_for(call: Mapping[str, Any], calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the requested ``calls`` that a call on its way to its tool may be, by its id.

    Of several, the arguments tell which; more than one are left if these are equal, too.
    """
    found = [one for one in calls if own_id(one) == own_id(call)]
    if len(found) < 2:
        return found
    return [
        one for one in found if one.get("name") == call.get("name") and one.get("args") == call.get("args")
    ] or found[:1]
