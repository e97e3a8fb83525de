"""Decoding the result of a call, by the shape of the value."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.spans.arguments import is_redacted, plain, python_literal


class Payload(NamedTuple):
    """The content of a result attribute.

    Attributes:
        text: payload as the model saw it (JSON values as compact JSON text), None if unknown.
        error: whether the payload itself reports a failed call; None if it reports neither success nor failure.
        call_id: tool call id, if the payload holds one.
        control: the payload is control flow (a LangGraph ``Command``), not a result.
    """

    text: str | None = None
    error: bool | None = None
    call_id: str | None = None
    control: bool = False


UNKNOWN: Final = Payload()
_REPR_CONTENT: Final = re.compile(
    r"^content=(?P<content>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|\[.*?\])(?= |$)", re.DOTALL
)
_COMMAND_CONTENT: Final = re.compile(r"content=('[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")")
_REPR_ID: Final = re.compile(r"tool_call_id='([^']*)'")
_REPR_STATUS: Final = re.compile(r"status='(error|success)'")
_MAX_REPR_CHARS: Final = 262_144
_OBJECT_REPR: Final = re.compile(r"\A\[?<[\w.]+ object at 0x[0-9a-fA-F]+>(?:, <[\w.]+ object at 0x[0-9a-fA-F]+>)*\]?$")
_WRAPPER_KEYS: Final = ("output", "kwargs", "tool_call_id", "goto", "result", 'data"', "\\u")
_MESSAGE_KEYS: Final = frozenset(("tool_call_id", "status", "artifact", "additional_kwargs"))


def decode_result(value: Any) -> Payload:
    """The payload of a result attribute; ``UNKNOWN`` if it is absent or hidden."""
    if value is None or is_redacted(value):
        return UNKNOWN
    if not isinstance(value, str):
        try:
            return _from_value(plain(value), None)
        except RecursionError:
            return UNKNOWN
    text = value.strip()
    if text[:1] == '"' or (text[:1] == "{" and _may_be_wrapper(text)):
        try:
            return _from_value(parse_json(text), value)
        except (ValueError, RecursionError):
            return Payload(value)
    if text.startswith(("content=", "Command(")):
        return _from_repr(value)
    return UNKNOWN if is_object_repr(text) else Payload(value)


def _may_be_wrapper(text: str) -> bool:
    """Whether a JSON object may be one of those ``_from_dict`` knows: most payloads are not and need no decoding."""
    for key in _WRAPPER_KEYS:  # noqa: SIM110  a generator would cost more than the searches
        if key in text:
            return True
    return False


def _from_value(value: Any, original: str | None) -> Payload:
    """``original`` is the text the value was decoded from: kept verbatim where the value is the payload itself."""
    if isinstance(value, str):
        return Payload(value)
    if isinstance(value, dict):
        found = _from_dict(value)
        if found is not None:
            return found
    return Payload(original if original is not None else as_text(value))


def _from_dict(value: dict[str, Any]) -> Payload | None:
    keys = value.keys()
    if "output" in keys and keys <= {"output", "kwargs"}:
        return _from_output(value["output"])
    if value.get("type") == "tool" and isinstance(value.get("data"), dict):
        return _message(value["data"])
    if value.get("lc") == 1 and isinstance(value.get("kwargs"), dict):
        return _message(value["kwargs"])
    if "content" in keys and (_MESSAGE_KEYS & keys) and "tool_call_id" in keys:
        return _message(value)
    if {"graph", "update", "goto"} <= keys:
        return _command(value)
    if "tool_output" in keys and "tool_name" in keys:
        return _llamaindex_outer(value)
    if "raw_output" in keys and "is_error" in keys:
        return _llamaindex(value)
    if "result" in keys and keys <= {"result", "is_error", "isError"}:
        failed = value.get("is_error", value.get("isError"))
        return Payload(as_text(value["result"]), bool(failed) if failed is not None else None)
    return None


def _from_output(output: Any) -> Payload:
    inner = output[0] if isinstance(output, list) and len(output) == 1 else output
    found = _from_dict(inner) if isinstance(inner, dict) else None
    return found if found is not None else Payload(as_text(output))


def _message(message: dict[str, Any]) -> Payload:
    status, call_id = message.get("status"), message.get("tool_call_id")
    return Payload(
        as_text(message.get("content")),
        None if status is None else status == "error",
        call_id if isinstance(call_id, str) else None,
    )


def _command(command: dict[str, Any]) -> Payload:
    """A hand-off: its result is the tool message inside the update, if there is one."""
    update = command.get("update")
    messages = update.get("messages") if isinstance(update, dict) else None
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict):
            inner = _from_dict(message)
            if inner is not None and inner.call_id is not None:
                return inner._replace(control=True)
    return Payload(control=True)


def _llamaindex_outer(value: dict[str, Any]) -> Payload:
    inner = value["tool_output"]
    found = _llamaindex(inner) if isinstance(inner, dict) else Payload(as_text(inner))
    call_id = value.get("tool_id")
    return found._replace(call_id=call_id if isinstance(call_id, str) else None)


def _llamaindex(value: dict[str, Any]) -> Payload:
    raw, failed = value.get("raw_output"), bool(value.get("is_error"))
    blocks = value.get("blocks")
    if (raw is None or failed) and isinstance(blocks, list) and blocks:
        texts = [block.get("text", "") for block in blocks if isinstance(block, dict)]
        return Payload("\n".join(str(text) for text in texts), failed)
    return Payload(as_text(raw), failed)


def _from_repr(text: str) -> Payload:
    if len(text) > _MAX_REPR_CHARS:
        return Payload(text)
    call_id, status = _REPR_ID.search(text), _repr_status(text)
    found = Payload(
        None, None if status is None else status[1] == "error", call_id[1] if call_id else None,
        control=text.lstrip().startswith("Command("),
    )  # fmt: skip
    content = _COMMAND_CONTENT.search(text) if found.control else _REPR_CONTENT.search(text.lstrip())
    if content is None:
        return found if found.control else found._replace(text=text)
    literal = python_literal(content[1])
    return found._replace(text=as_text(literal) if literal is not None else content[1])


def _repr_status(text: str) -> re.Match[str] | None:
    """``status=`` of a message, not the end of a longer name."""
    found = _REPR_STATUS.finditer(text)
    return next((match for match in found if not text[: match.start()][-1:].strip()), None)


def as_text(value: Any) -> str:
    """Text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def is_object_repr(text: str) -> bool:
    """``<pkg.Class object at 0x…>``, alone or in a list: an object was written down where its content was meant."""
    return text.startswith(("<", "[<")) and _OBJECT_REPR.match(text) is not None
