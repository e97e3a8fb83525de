"""Reading messages by the shape of their parts: one table of kinds and keys for every known message format.

Covers the semantic conventions, OpenAI chat and Responses items, Anthropic and Bedrock blocks, Gemini parts, LangChain
messages (plain, ``lc`` constructors, ``data`` wrappers), LlamaIndex, Haystack, Pydantic AI, the Vercel AI SDK,
Microsoft Agent Framework, Genkit, and Python reprs of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import first
from trajectory_guard.transcripts.react import read_react
from trajectory_guard.transcripts.reprs import CLASS_KEY, looks_like_repr, parse_repr
from trajectory_guard.transcripts.transcript import MAX_ITEMS, Message, ToolCall, ToolResult

MAX_DEPTH: Final = 12
_MAPS: Final = (dict, Mapping)
"""Nearly all are dictionaries, which the abstract class alone takes several times as long to recognise."""

_CALL_KINDS: Final = frozenset(
    (
        "tool_call", "tool-call", "toolcall", "function_call", "function", "tool_use", "custom_tool_call",
        "mcp_tool_use", "invalid_tool_call",
    )
)  # fmt: skip
_RESULT_KINDS: Final = frozenset(
    (
        "tool_call_response", "tool_result", "tool-result", "toolcallresult", "function_call_output", "function_result",
        "tool-return", "tool_return", "retry-prompt", "custom_tool_call_output", "mcp_tool_result", "function_response",
    )
)  # fmt: skip
_TEXT_KINDS: Final = frozenset(("text", "output_text", "input_text", "reasoning", "thinking", "summary_text", ""))
_LANGCHAIN_TYPES: Final = ("ai", "human", "tool", "system")
_CALL_WRAPPERS: Final = ("toolUse", "functionCall", "function_call", "tool_use", "tool_call", "toolRequest")
_RESULT_WRAPPERS: Final = (
    "toolResult", "functionResponse", "function_response", "tool_result", "tool_call_result", "toolResponse",
)  # fmt: skip
_WRAPPERS: Final = frozenset((*_CALL_WRAPPERS, *_RESULT_WRAPPERS))
_CALL_LISTS: Final = frozenset(("additional_kwargs", "tool_calls", "toolCalls", "invalid_tool_calls", "function_call"))
_NAME_KEYS: Final = ("name", "tool_name", "toolName")
_ARGUMENT_KEYS: Final = ("arguments", "args", "input", "tool_kwargs")
_ID_KEYS: Final = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "tool_id", "ref", "id")
_VALUE_KEYS: Final = ("response", "result", "output", "content")
_PART_KEYS: Final = ("parts", "content", "_content", "blocks", "contents")
_CONTAINER_KEYS: Final = (
    "messages", "message", "generations", "choices", "candidates", "output", "kwargs", "update", "response", "input",
    "replies",
)  # fmt: skip
_LIST_KEYS: Final = ("messages", "input", "contents")
_ROLES: Final = {"ai": "assistant", "model": "assistant", "human": "user", "function": "tool"}
_TOOL_ROLES: Final = ("tool", "function")
_APPROVAL_KINDS: Final = frozenset(
    ("tool-approval-response", "tool_approval_response", "tool-approval-request", "tool_approval_request")
)
"""Parts about the approval of a call: they name the request, not the call, and the refusal follows as a result."""
_QUOTED: Final = ('[{"role":', '[{"type":')
"""How a conversation begins that one message quotes as JSON."""
_TYPED_VALUES: Final = ("text", "json", "content", "error-text", "error-json")
"""Results that say in a type what their value is (Vercel AI SDK)."""


def read_messages(value: Any) -> list[Message]:
    """The messages in an attribute value: JSON text, a Python repr, a list or a map, in any known shape.

    Never raises; what cannot be read is left out, plain text is one message without a role.
    """
    found: list[Message] = []
    for message in _messages(value, 0):
        found.append(message)
        if len(found) >= MAX_ITEMS:
            break
    return found


def message_items(value: Any) -> list[Any]:
    """The single messages in an attribute value, oldest first, each undecoded; wrappers around the list are opened."""
    for _ in range(MAX_DEPTH):
        if isinstance(value, str):
            value = _decode(value)
        elif isinstance(value, Mapping) and not _role(value):
            inner = next((value[key] for key in _LIST_KEYS if isinstance(value.get(key), (list, str))), None)
            if inner is None:
                return [value]
            value = inner
        elif isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], (list, tuple)):
            value = value[0]
        elif (quoted := _quoted(value)) is not None:
            value = quoted
        else:
            break
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _messages(value: Any, depth: int) -> Iterator[Message]:
    if depth > MAX_DEPTH or value is None:
        return
    if isinstance(value, str):
        decoded = _decode(value)
        if decoded is None:
            yield Message(text=value)
        else:
            yield from _messages(decoded, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in _quoted(value) or value:
            yield from _messages(item, depth + 1)
    elif isinstance(value, _MAPS):
        yield from _mapping(value, depth)


def _quoted(value: Any) -> list[Any] | None:
    """The conversation that stands as JSON in the text of a single message (OpenLLMetry for JavaScript, Responses API);
    None if there is none.
    """
    if not isinstance(value, (list, tuple)) or len(value) != 1 or not isinstance(value[0], Mapping):
        return None
    parts = value[0].get("parts")
    only = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    text = only.get("content") if isinstance(only, Mapping) else None
    if not isinstance(text, str) or not text.startswith(_QUOTED):
        return None
    items = _decode(text)
    return items if isinstance(items, list) and all(isinstance(item, Mapping) for item in items) else None


def _decode(text: str) -> Any:
    start = text.lstrip()[:1]
    if start in ("{", "["):
        try:
            return parse_json(text)
        except (ValueError, RecursionError):
            pass
    return parse_repr(text) if looks_like_repr(text) else None


def _mapping(value: Mapping[str, Any], depth: int) -> Iterator[Message]:
    if value.get("lc") == 1 and isinstance(value.get("kwargs"), Mapping):
        yield from _messages(value["kwargs"], depth + 1)
        return
    if value.get("type") in _LANGCHAIN_TYPES and isinstance(value.get("data"), Mapping):
        yield from _messages({"type": value["type"], **value["data"]}, depth + 1)
        return
    part = _part(value)
    if isinstance(part, ToolCall):
        yield Message("assistant", "", (part,))
    elif isinstance(part, ToolResult):
        yield Message("tool", "", (), (part,))
    elif role := _role(value):
        yield _message(value, role)
    else:
        yield from _container(value, depth)


def _container(value: Mapping[str, Any], depth: int) -> Iterator[Message]:
    """Wrappers around messages: completions, generations, graph states, task outputs, Responses objects."""
    for key in _CONTAINER_KEYS:
        inner = value.get(key)
        if isinstance(inner, (Mapping, list)):
            agent = value.get("agent")
            for message in _messages(inner, depth + 1):
                yield message._replace(agent=agent) if isinstance(agent, str) and message.agent is None else message
            return
    content = value.get("content")
    if isinstance(content, Mapping) and _role(content):
        yield from _messages(content, depth + 1)  # Gemini: an answer, or a candidate, around one message
    elif isinstance(content, (Mapping, list)) or value.get("tool_calls") or value.get("parts"):
        value = {"role": "assistant", **value}
        yield _message(value, _role(value))
    elif isinstance(content, str) or isinstance(value.get("text"), str):
        yield Message(text=str(content if content is not None else value["text"]))


def _role(value: Mapping[str, Any]) -> str:
    role = value.get("role", value.get("_role"))
    if not isinstance(role, str):
        kind = value.get("type")
        role = kind if kind in _LANGCHAIN_TYPES and "content" in value else ""
    role = str(role).rpartition(".")[2].lower()
    return _ROLES.get(role, role)


def _message(value: Mapping[str, Any], role: str) -> Message:
    calls = _listed_calls(value)
    results: list[ToolResult] = []
    texts: list[str] = []
    parts = first(value, _PART_KEYS)
    known = bool(calls)
    if role in _TOOL_ROLES and not _holds_results(parts) and not _about_approval(parts):
        results.append(_tool_message(value, parts))
    else:
        for part in _parts(parts):
            if isinstance(part, ToolCall):
                calls += [] if known else [part]  # a provider's own parts beside the common list repeat it
            elif isinstance(part, ToolResult):
                results.append(part)
            else:
                texts.append(part)
    text = "\n".join(filter(None, texts))
    if not calls and not results and role in ("assistant", ""):
        pairs = read_react(text)
        calls, results = [call for call, _ in pairs], [result for _, result in pairs]
    name = value.get("name")
    return Message(role, text, tuple(calls), tuple(results), name if isinstance(name, str) and role == "" else None)


def _tool_message(value: Mapping[str, Any], parts: Any) -> ToolResult:
    if isinstance(parts, (list, tuple)) and len(parts) == 1 and isinstance(parts[0], Mapping):
        inner = parts[0].get("content", parts[0].get("text"))
        parts = inner if isinstance(inner, str) else parts
    call_id = first(value, ("tool_call_id", "call_id", "id"))
    extra = value.get("additional_kwargs")
    if call_id is None and isinstance(extra, Mapping):
        call_id = extra.get("tool_call_id")
    content = "" if parts is None and "content" not in value and call_id is not None else parts
    return ToolResult(_text_or_none(call_id), content, _failed(value))


def _holds_results(parts: Any) -> bool:
    return isinstance(parts, (list, tuple)) and any(
        isinstance(part, Mapping) and isinstance(_part(part), ToolResult) for part in parts
    )


def _about_approval(parts: Any) -> bool:
    return isinstance(parts, (list, tuple)) and any(
        isinstance(part, Mapping) and part.get("type") in _APPROVAL_KINDS for part in parts
    )


def _parts(parts: Any) -> Iterator[ToolCall | ToolResult | str]:
    if isinstance(parts, str):
        yield parts
        return
    for part in parts if isinstance(parts, (list, tuple)) else [parts]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, _MAPS):
            found: ToolCall | ToolResult | str | None = _part(part)
            if found is None and (text := _text(part)):
                inner = _item_in_text(text)
                found = inner if inner is not None else text
            if found is not None:
                yield found


def _item_in_text(text: str) -> ToolCall | ToolResult | str | None:
    """A text part that is the repr of an API item (contrib's OpenAI Agents instrumentation writes these)."""
    if not text.startswith("{'") or "'type'" not in text:
        return None
    item = parse_repr(text)
    if not isinstance(item, dict):
        return None
    found = _part(item)
    if found is None and item.get("type") == "message":
        return "\n".join(part for part in _parts(item.get("content")) if isinstance(part, str))
    return found


def _text(part: Mapping[str, Any]) -> str | None:
    kind = part.get("type", part.get("block_type", ""))
    if str(kind) not in _TEXT_KINDS and part.get("part_kind") not in ("text", "thinking"):
        return None
    value = first(part, ("content", "text", "thinking", "reasoning"))
    return value if isinstance(value, str) else None


# --- calls and results ---------------------------------------------------------------------------------------


def _part(part: Mapping[str, Any]) -> ToolCall | ToolResult | None:
    kind = str(part.get("type") or part.get("part_kind") or part.get(CLASS_KEY) or "").lower()
    if kind in _CALL_KINDS:
        return _call(part)
    if kind in _RESULT_KINDS:
        return _result(part)
    if kind == "function_approval_response":
        return _approval(part)
    if kind in _TEXT_KINDS and not _WRAPPERS.isdisjoint(part) and "role" not in part:
        for keys, read in ((_CALL_WRAPPERS, _call), (_RESULT_WRAPPERS, _result)):
            inner = next((part[key] for key in keys if isinstance(part.get(key), Mapping)), None)
            if inner is not None:
                return read(inner)
    return None


def _listed_calls(value: Mapping[str, Any]) -> list[ToolCall]:
    if _CALL_LISTS.isdisjoint(value):
        return []
    extra = value.get("additional_kwargs")
    listed = value.get("tool_calls") or value.get("toolCalls")
    listed = listed or (extra.get("tool_calls") if isinstance(extra, Mapping) else None)
    if isinstance(listed, str):
        listed = _decode(listed)
    items = list(listed) if isinstance(listed, (list, tuple)) else []
    items += [one for one in (value.get("invalid_tool_calls") or ()) if isinstance(one, Mapping)]
    if isinstance(value.get("function_call"), Mapping):
        items.append(value["function_call"])
    found = (_call(item) for item in items if isinstance(item, Mapping))
    return [call for call in found if call is not None]


def _call(item: Mapping[str, Any]) -> ToolCall | None:
    inner = item.get("function")
    source = inner if isinstance(inner, Mapping) else item
    name = first(source, _NAME_KEYS)
    name = name.strip("'\"") if isinstance(name, str) else ""  # CrewAI writes the repr of a name
    call_id, item_id = _ids(item)
    if not name and call_id is None:
        return None
    arguments = first(source, _ARGUMENT_KEYS)
    return ToolCall(name, {} if arguments == "" else arguments, call_id, item_id)


def _ids(item: Mapping[str, Any]) -> tuple[str | None, str | None]:
    call_id = _text_or_none(first(item, _ID_KEYS))
    item_id = _text_or_none(item.get("id"))
    return call_id, item_id if item_id != call_id else None


def _result(item: Mapping[str, Any]) -> ToolResult:
    origin = item.get("origin")
    call = _call(origin) if isinstance(origin, Mapping) else None
    call_id = call.call_id if call is not None else _text_or_none(first(item, _ID_KEYS))
    value = first(item, _VALUE_KEYS)
    if not isinstance(value, Mapping):
        return ToolResult(call_id, value, _failed(item), None, call)
    if value.get("type") == "execution-denied" or value.get("denied") is True:
        return ToolResult(call_id, value.get("reason"), _failed(item), False, call)
    if value.get("type") in _TYPED_VALUES and "value" in value:
        failed = True if str(value["type"]).startswith("error-") else _failed(item)
        return ToolResult(call_id, value["value"], failed, None, call)
    return ToolResult(call_id, value, _failed(item), None, call)


def _approval(item: Mapping[str, Any]) -> ToolResult | None:
    """A person's decision on a call (Microsoft Agent Framework). An approval says nothing about the result."""
    inner, approved = item.get("function_call"), item.get("approved")
    call = _call(inner) if isinstance(inner, Mapping) else None
    if call is None or approved is not False:
        return None
    return ToolResult(call.call_id, None, None, False, call)


def _failed(item: Mapping[str, Any]) -> bool | None:
    for key in ("is_error", "isError", "error"):
        if isinstance(item.get(key), bool):
            return bool(item[key])
    status = item.get("status")
    return status == "error" if status in ("error", "success") else None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
