"""Messages between application and model, whatever shape they were written in: the common form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.spans.content import as_text, is_object_repr, is_redacted

MAX_ITEMS: Final = 20_000
"""Messages and parts read from one attribute; what comes after is ignored."""
_SUFFIX_CHARS: Final = 2


class ToolCall(NamedTuple):
    """A call that the model requested.

    ``arguments`` is raw (text, map or None where unknown). ``item_id`` is a second id some APIs give the same call
    (OpenAI Responses: item id beside call id).
    """

    name: str
    arguments: Any = None
    call_id: str | None = None
    item_id: str | None = None


class ToolResult(NamedTuple):
    """The result of a call as the model saw it.

    ``value`` is raw, None where unknown; ``failed`` says whether the call failed, None if the message does not say;
    ``approved`` is a person's decision where the message carries one; ``call`` is the call if the result repeats it.
    """

    call_id: str | None = None
    value: Any = None
    failed: bool | None = None
    approved: bool | None = None
    call: ToolCall | None = None


class Message(NamedTuple):
    """One message: its role, its text, the calls and the tool results in it. ``agent`` is its author, if named."""

    role: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    agent: str | None = None


def result_text(result: ToolResult | None) -> str | None:
    """The result as the model saw it: text as it is, text parts joined, anything else as JSON; None if unknown."""
    value = None if result is None else result.value
    if value is None or is_redacted(value) or (isinstance(value, str) and is_object_repr(value)):
        return None
    if isinstance(value, (list, tuple)):
        texts = [_part_text(part) for part in value]
        if texts and all(text is not None for text in texts):
            return "\n".join(str(text) for text in texts)
    text = _part_text(value)
    if text is None:
        text = as_text(_json_ready(value))
    inner = unwrap(text)
    return inner.text if inner is not None else text


def _part_text(part: Any) -> str | None:
    """Text of a text part (``{"type": "text", "text": …}`` and its relatives), None if it is no such part."""
    if not isinstance(part, Mapping):
        return None
    keys = part.keys() - {"type", "annotations", "logprobs", "cache_control", "citations", "index", "id"}
    if len(keys) != 1 or ("type" not in part and keys != {"text"}):
        return None
    value = part[next(iter(keys))]
    return value if isinstance(value, str) and keys <= {"text", "content"} else None


def _json_ready(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(item) for item in value]
    return value


def linked(messages: Sequence[Message]) -> list[tuple[ToolCall, ToolResult | None]]:
    """Every call of a transcript, in order, with its result: by id, by the id's tail, else by place in its turn."""
    pairs: list[tuple[ToolCall, ToolResult | None]] = []
    for calls, results in _turns(messages):
        pairs += _link_turn(calls, results)
    return pairs


def _turns(messages: Sequence[Message]) -> list[tuple[list[ToolCall], list[ToolResult]]]:
    """Calls up to the next model message that follows a result, with the results in between."""
    turns: list[tuple[list[ToolCall], list[ToolResult]]] = []
    for message in messages:
        if message.calls and (not turns or turns[-1][1]):
            turns.append(([], []))
        if turns:
            turns[-1][0].extend(message.calls)
            turns[-1][1].extend(message.results)
    return turns


def _link_turn(calls: list[ToolCall], results: list[ToolResult]) -> list[tuple[ToolCall, ToolResult | None]]:
    open_results = list(results)
    found: list[ToolResult | None] = [_take(call, open_results, _same_id) for call in calls]
    for place, call in enumerate(calls):
        if found[place] is None:
            found[place] = _take(call, open_results, _same_tail)
    missing = [place for place, result in enumerate(found) if result is None]
    if len(missing) == len(open_results) and all(result.call is None for result in open_results):
        for place, result in zip(missing, open_results, strict=True):
            if not (calls[place].call_id and result.call_id) or len(missing) == 1:
                found[place] = result
    return list(zip(calls, found, strict=True))


def _take(call: ToolCall, results: list[ToolResult], fits: Any) -> ToolResult | None:
    for place, result in enumerate(results):
        if fits(call, result):
            return results.pop(place)
    return None


def _same_id(call: ToolCall, result: ToolResult) -> bool:
    if result.call_id is None:
        return result.call is not None and result.call.call_id is None and result.call.name == call.name
    return result.call_id in (call.call_id, call.item_id)


def _same_tail(call: ToolCall, result: ToolResult) -> bool:
    """``fc_call_1`` and ``call_1``: an item id that was made from the call id."""
    one, other = call.call_id, result.call_id
    return bool(one and other and len(other) >= _SUFFIX_CHARS and one.endswith(other))


def trailing_results(messages: Sequence[Message]) -> list[ToolResult]:
    """Results at the end of a transcript: those that this very model call sends."""
    found: list[ToolResult] = []
    for message in reversed(messages):
        if message.results:
            found[:0] = message.results
        elif found or message.calls or message.role == "assistant":
            break
    return found


def trailing_calls(messages: Sequence[Message]) -> list[Message]:
    """The model messages whose results stand at the end of a transcript: the last turn before it was sent."""
    found: list[Message] = []
    for message in reversed(messages):
        if message.calls:
            found.insert(0, message)
        elif message.results and not found:
            continue
        elif found or message.role not in ("user", "human", "system", "developer"):
            break
        else:
            return []
    return found
