"""Decoding the arguments of a call, by the shape of the value and not by who wrote it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import parse_json

SINGLE: Final = "__single__"
"""Stands for the name of an argument that the instrumentation dropped."""
MAX_LITERAL_CHARS: Final = 20_000
MAX_LITERAL_NODES: Final = 1_500
_NODES: Final = ",:[{(-+~"
"""Marks that stand for a value more in a Python literal: each costs microseconds to parse."""
MAX_DECODED_CHARS: Final = 262_144
"""Longer arguments are taken as the text they are: to decode them would hold up the host."""
MAX_DEPTH: Final = 100
_REDACTED: Final = frozenset(
    (
        "__REDACTED__",
        "[REDACTED]",
        "<REDACTED>",
        "REDACTED",
        "***",
        "<redacted>",
        "[redacted]",
        "[Scrubbed due to 'auth']",
    )
)
_INJECTED: Final = frozenset(("ctx", "run_manager", "callbacks", "config", "state", "store", "runtime"))


class Decoded(NamedTuple):
    """A decoded value, and the tool call id if the value held one."""

    value: Any = None
    call_id: str | None = None


UNKNOWN: Final = Decoded()


def is_redacted(value: Any) -> bool:
    """Whether a value is a placeholder that stands for hidden content."""
    return isinstance(value, str) and (
        value in _REDACTED or value.startswith(("[Scrubbed due to", "<masked", "[MASKED")) or value == "__MASKED__"
    )


def decode_arguments(value: Any, *, single: bool = False) -> Decoded:
    """The arguments a tool was called with; ``UNKNOWN`` if they are absent, hidden or cut off.

    Understands JSON text, Python reprs, maps, and the wrappers of OpenLLMetry (``inputs`` beside ``input_str``),
    decorators (``args`` and ``kwargs``), MCP (``tool_name`` and ``arguments``) and LangChain tool calls. Text that is
    none of these is what the model sent and is kept; with ``single`` it is the value of a one-argument call.
    """
    if value is None or is_redacted(value):
        return UNKNOWN
    if not isinstance(value, str):
        try:
            return _unwrap(plain(value))
        except RecursionError:
            return UNKNOWN
    text = value.strip()
    if text[:1] in ("{", "[") and len(text) <= MAX_DECODED_CHARS:
        return _decode_structure(text, value)
    if single:
        return Decoded(_scalar_or_single(value))
    return Decoded(value)


def plain(value: Any, depth: int = 0) -> Any:
    """Attribute maps, tuples and Python literals as JSON-like dicts with text keys, and lists.

    Raises:
        RecursionError: nested deeper than ``MAX_DEPTH`` levels.
    """
    if depth > MAX_DEPTH:
        raise RecursionError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return value


def _scalar_or_single(text: str) -> Any:
    if is_redacted(text):
        return None
    return {SINGLE: text}


def _decode_structure(text: str, original: str) -> Decoded:
    try:
        return _unwrap(parse_json(text))
    except (ValueError, RecursionError):
        pass
    literal = python_literal(text)
    if literal is not None:
        return _unwrap(literal)
    if text.startswith('{"input_str"') or original.endswith("…"):
        return UNKNOWN  # a wrapper cut off by an attribute length limit: what is left is mostly metadata
    return Decoded(original)


def python_literal(text: str) -> Any:
    """The value of a Python repr, None if it is none or too long to parse."""
    if len(text) > MAX_LITERAL_CHARS or sum(map(text.count, _NODES)) > MAX_LITERAL_NODES:
        return None
    try:
        return plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _unwrap(value: Any) -> Decoded:
    if not isinstance(value, dict):
        return Decoded(value)
    if "input_str" in value and ("inputs" in value or "kwargs" in value):
        return _openllmetry(value)
    keys = value.keys()
    if "kwargs" in keys and keys <= {"args", "kwargs", "sanitize_inputs_outputs"}:
        return Decoded(_positional(value))
    if keys == {"tool_name", "arguments"}:
        return Decoded(value["arguments"])
    if value.get("type") == "tool_call" and isinstance(value.get("args"), dict):
        call_id = value.get("id")
        return Decoded(value["args"], call_id if isinstance(call_id, str) else None)
    return Decoded(value)


def _openllmetry(value: dict[str, Any]) -> Decoded:
    extra = value.get("kwargs")
    call_id = extra.get("tool_call_id") if isinstance(extra, dict) else None
    inputs = value.get("inputs")
    if inputs is None:
        literal = python_literal(str(value["input_str"]))
        inputs = literal if literal is not None else value["input_str"]
    return Decoded(inputs, call_id if isinstance(call_id, str) else None)


def _positional(value: dict[str, Any]) -> Any:
    """Keyword arguments alone where there are no positional ones; injected framework objects dropped."""
    kwargs = value["kwargs"]
    if not isinstance(kwargs, dict):
        return value
    kwargs = {key: item for key, item in kwargs.items() if not (key in _INJECTED and _is_object_repr(item))}
    args = value.get("args")
    return {"args": args, "kwargs": kwargs} if args else kwargs


def _is_object_repr(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("<") and " object at 0x" in value
