"""The content of a call: its arguments and result, decoded by the shape of the value, and its outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.core.content.outcome import classify
from trajectory_guard.core.fingerprints import object_text, parse_json
from trajectory_guard.core.literals import parse_literal
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import INTERRUPTED, SUCCESS, Outcome
from trajectory_guard.dialects.base import written
from trajectory_guard.dialects.span import CutOff, SpanView
from trajectory_guard.dialects.table import DENIED_KEY, DIALECTS, DialectTable, KeySet

# --- arguments -----------------------------------------------------------------------------------------------

SINGLE: Final = "__single__"
"""Stands for the name of an argument that the instrumentation dropped."""
MAX_LITERAL_CHARS: Final = 20_000
MAX_LITERAL_NODES: Final = 1_500
_NODES: Final = ",:[{(-+~"
"""Marks that stand for a value more in a Python literal: each costs microseconds to parse."""
MAX_DECODED_CHARS: Final = 262_144
"""Longer arguments are taken as the text they are: to decode them would hold up the host."""
MAX_DEPTH: Final = 100
_WRAPPED: Final = '{"input_str"'
"""How OpenLLMetry's object around the arguments begins."""
_REDACTED: Final = frozenset(("redacted", "redacted-by-litellm"))
_MEDIA: Final = ("audio", "base64 image", "binary", "file", "image", "img", "photo", "picture", "screenshot", "video")
_LEFT_OUT: Final = ("", " attached", " content", " data", " data omitted", " elided", " omitted", " removed")
_MARKED_REDACTED: Final = frozenset(
    (
        "content redacted",
        "filtered",
        "fully masked due to failed mask function",
        "masked",
        "redacted content",
        "scrubbed",
        *(f"{medium}{left_out}" for medium in _MEDIA for left_out in _LEFT_OUT),
    )
)
"""Placeholders only within brackets and the like: tools answer with these words, too."""
_AROUND: Final = "[]<>()*_\"' "
_REDACTED_MARKS: Final = '_[<R*("'
"""One of these begins each placeholder of a tool."""
_REDACTED_STARTS: Final = ("[Scrubbed due to", "<masked", "[MASKED")
_MIN_STARS: Final = 3
_MAX_REDACTED_CHARS: Final = 64
"""A longer text is no placeholder: to look it up would hash all of it."""
_INJECTED: Final = frozenset(("ctx", "run_manager", "callbacks", "config", "state", "store", "runtime"))


class Decoded(NamedTuple):
    """A decoded value, and the tool call id if the value held one."""

    value: Any = None
    call_id: str | None = None


UNKNOWN_ARGUMENTS: Final = Decoded()


def is_redacted(value: Any) -> bool:
    """Whether a value is a placeholder that stands for hidden content.

    >>> [is_redacted(one) for one in ("__REDACTED__", "<masked>", "****", "[Scrubbed due to 'auth']", "masked", "{}")]
    [True, True, True, True, False, False]
    >>> is_redacted("[image]"), is_redacted("<image omitted>"), is_redacted("image"), is_redacted("[file: a.txt]")
    (True, True, False, False)
    """
    if not isinstance(value, str):
        return False
    if value.startswith(_REDACTED_STARTS):
        return True
    if len(value) > _MAX_REDACTED_CHARS:
        return False
    words = value.strip(_AROUND).lower()
    if not words:
        return value.count("*") >= _MIN_STARS and not value.strip('*"')
    return words in _REDACTED or (words in _MARKED_REDACTED and value[0] in _AROUND)


def decode_arguments(value: Any, *, single: bool = False) -> Decoded:
    """The arguments a tool was called with; ``UNKNOWN_ARGUMENTS`` if they are absent, hidden or cut off.

    Understands JSON text, Python reprs, maps, and the wrappers of OpenLLMetry (``inputs`` beside ``input_str``),
    decorators (``args`` and ``kwargs``), MCP (``tool_name`` and ``arguments``) and LangChain tool calls. Text that is
    none of these is what the model sent and is kept; with ``single`` it is the value of a one-argument call.
    """
    if value is None or value.__class__ is CutOff:
        return UNKNOWN_ARGUMENTS
    if value.__class__ is not str and not isinstance(value, str):
        try:
            return _unwrap(plain(value))
        except RecursionError:
            return UNKNOWN_ARGUMENTS
    if value[:1] in _REDACTED_MARKS and is_redacted(value):
        return UNKNOWN_ARGUMENTS
    text = value.strip()
    if text[:1] == '"' and len(text) <= MAX_DECODED_CHARS:
        text = object_text(text)
    if text[:1] in ("{", "[") and len(text) <= MAX_DECODED_CHARS:
        try:
            return _unwrap(parse_json(text))
        except (ValueError, RecursionError):
            return _decode_literal(text, value)
    if text.startswith(_WRAPPED):
        return UNKNOWN_ARGUMENTS  # beside them stand ids, which are others in each call
    if single:
        return Decoded(_scalar_or_single(value))
    return Decoded({} if text == "None" else value)  # Agent Framework writes so that there are none


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


def _decode_literal(text: str, original: str) -> Decoded:
    """For what looks like JSON and is none."""
    literal = python_literal(text)
    if literal is not None:
        return _unwrap(literal)
    if text.startswith(_WRAPPED) or original.endswith("…"):
        return UNKNOWN_ARGUMENTS  # a wrapper cut off by an attribute length limit: what is left is mostly metadata
    return Decoded(original)


def python_literal(text: str) -> Any:
    """The value of a Python repr, None if it is none or too long to parse."""
    if len(text) > MAX_LITERAL_CHARS or sum(map(text.count, _NODES)) > MAX_LITERAL_NODES:
        return None
    try:
        return plain(parse_literal(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _unwrap(value: Any) -> Decoded:
    if value.__class__ is not dict:  # decoded from text, or made by ``plain``
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


# --- result --------------------------------------------------------------------------------------------------


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


UNKNOWN_RESULT: Final = Payload()
_REPR_CONTENT: Final = re.compile(
    r"^content=(?P<content>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|\[.*?\])(?= |$)", re.DOTALL
)
_COMMAND_CONTENT: Final = re.compile(r"content=('[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")")
_REPR_ID: Final = re.compile(r"tool_call_id='([^']*)'")
_REPR_STATUS: Final = re.compile(r"status='(error|success)'")
_MAX_REPR_CHARS: Final = 262_144
_OBJECT: Final = r"<[\w.<>]{1,400} object (?:[\w.<>]{1,400} )?at 0x[0-9a-fA-F]{1,16}>"
_OBJECT_REPR: Final = re.compile(rf"\A\[?{_OBJECT}(?:, {_OBJECT})*\]?\Z")
_WRAPPER_KEYS: Final = ('output"', '"kwargs"', '"tool_call_id"', '"goto"', '"result"', '"data"')
_MARKS_OF_OTHERS: Final = _REDACTED_MARKS + '"{cC'
"""A result that begins with none of these, and with no blank, is no JSON, and neither hidden nor a repr."""
_MESSAGE_KEYS: Final = frozenset(("tool_call_id", "status", "artifact", "additional_kwargs"))


def decode_result(value: Any) -> Payload:
    """The payload of a result attribute; ``UNKNOWN_RESULT`` if it is absent or hidden. Text blocks are opened."""
    found = _decode_payload(value)
    inner = unwrap(found.text) if found.text is not None else None
    if inner is not None:
        found = found._replace(text=inner.text, error=inner.error if inner.error is not None else found.error)
    text = found.text
    is_opened = text is not None and text is not value and text[:1] in _REDACTED_MARKS
    if text is not None and is_opened and (is_redacted(text) or is_object_repr(text)):
        return found._replace(text=None)  # hidden within a wrapper
    return found


def _decode_payload(value: Any) -> Payload:
    if value is None:
        return UNKNOWN_RESULT
    if value.__class__ is str:
        first = value[:1]
        if not (first in _MARKS_OF_OTHERS or first.isspace()) if first != "{" else not _may_be_wrapper(value):
            return Payload(value)  # with nothing around it: most results need no decoding
    if not isinstance(value, str):
        try:
            return _from_value(plain(value), None)
        except RecursionError:
            return UNKNOWN_RESULT
    if value[:1] in _REDACTED_MARKS and is_redacted(value):
        return UNKNOWN_RESULT
    text = value.strip()
    if text[:1] == '"' or (text[:1] == "{" and (text is value or _may_be_wrapper(text))):
        try:
            return _from_value(parse_json(text), value)
        except (ValueError, RecursionError):
            return Payload(value)
    if text.startswith(("content=", "Command(")):
        return _from_repr(value)
    return UNKNOWN_RESULT if text[:1] in ("<", "[") and is_object_repr(text) else Payload(value)


def _may_be_wrapper(text: str) -> bool:
    """Whether a JSON object may be one of those ``_from_dict`` knows: most payloads are not and need no decoding."""
    for key in _WRAPPER_KEYS:
        if key in text:
            return True
    return "\\" in text and "\\u" in text  # a key may be escaped; a single character is found ten times as fast


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
    if "content" in keys and "tool_call_id" in keys and not _MESSAGE_KEYS.isdisjoint(keys):
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
    """A hand-off: its result is the tool message inside the update, if there is one, and what the tool shows behind it.

    Not every API takes a picture as the result of a call: tools write it as the user.
    """
    update = command.get("update")
    messages = update.get("messages") if isinstance(update, dict) else None
    shown: list[str] = []
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict):
            inner = _from_dict(message)
            if inner is not None and inner.call_id is not None:
                return inner._replace(control=True, text="\n".join([inner.text or "", *shown]) if shown else inner.text)
            fields = message.get("data") or message.get("kwargs")
            if isinstance(fields, dict) and fields.get("type") == "human":
                shown.insert(0, as_text(fields.get("content")))
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
    result = as_text(literal) if literal is not None else content[1]
    shown = text.find("HumanMessage(content=", content.end()) if found.control else -1
    return found._replace(text=result if shown < 0 else f"{result}\n{text[shown:]}")


def _repr_status(text: str) -> re.Match[str] | None:
    """``status=`` of a message, not the end of a longer name."""
    found = _REPR_STATUS.finditer(text)
    return next((match for match in found if not text[: match.start()][-1:].strip()), None)


def as_text(value: Any) -> str:
    """Text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except ValueError:  # a number that Python does not write out
        return written(value)


def is_object_repr(text: str) -> bool:
    """Whether an object was written down where its content was meant, alone or in a list.

    >>> is_object_repr("<openai.Stream object at 0x7f00>"), is_object_repr("<generator object read at 0x7f00>")
    (True, True)
    >>> is_object_repr("<html>an object at 0x7f00</html>")
    False
    """
    return text.startswith(("<", "[<")) and _OBJECT_REPR.match(text) is not None


# --- outcome: control flow is never an error, and a green span is not always a success -----------------------

_CONTROL_TYPES: Final = ("GraphInterrupt", "NodeInterrupt", "ParentCommand", "GraphBubbleUp")
_CONTROL: Final = re.compile(rf"\b(?:{'|'.join(_CONTROL_TYPES)})\b|^\(?Interrupt\(value=|^\(Interrupt\(|^Command\(")
_INTERRUPT: Final = re.compile(r"\b(?:GraphInterrupt|NodeInterrupt)\b|^\(?Interrupt\(value=|^\(Interrupt\(")
_NAME_CHARS: Final = 512
_STATUS_CHARS: Final = 8_192
GENERIC_FAILURE: Final = "An error occurred while running the tool. Please try again."
_FAILED_CALL: Final = ("Error executing tool ", "Error calling tool ")
"""How answers of MCP servers begin (the SDK, FastMCP) if a tool raised. Some frameworks hand on the text alone."""


_ANY_ERROR: Final = frozenset(("", "Exception", "TOOL_ERROR", "ToolRetryError", "_OTHER"))
"""Classes that stand for any failure: of Python, of Google ADK and Pydantic AI, and of the conventions."""


def error_class(span: SpanView) -> str | None:
    """Exception type or ``error.type`` of a failed span, None if it names none."""
    named = span.attributes.get("error.type")
    if isinstance(named, str) and named and " " not in named:  # a sentence is no class
        kind = named.rsplit(".", 1)[-1]
        return bounded_name(kind) if kind not in _ANY_ERROR else None
    for event in span.events:
        named = event.attributes.get("exception.type")
        kind = named.rsplit(".", 1)[-1] if event.name == "exception" and isinstance(named, str) else ""
        if kind not in _ANY_ERROR:
            return bounded_name(kind)
    match = re.match(r"\A(\w+(?:Error|Exception))\b", span.status_description[:_NAME_CHARS])
    return match[1] if match else None


def outcome(
    span: SpanView,
    payload: Payload,
    known: KeySet,
    *,
    arguments_known: bool = False,
    absent: bool = True,
    table: DialectTable = DIALECTS,
) -> Outcome:
    """The outcome of a tool span.

    Parameters:
        known: what the names of its attributes say.
        absent: an unknown result was not written at all; false where a placeholder stands for it.
    """
    text, control, refused = payload.text, None, False
    hidden = text is None and payload == UNKNOWN_RESULT
    if hidden and any(test(span) for test in table.deferral_tests):
        return INTERRUPTED
    if hidden and absent and arguments_known and any(test(span) for test in table.approval_tests):
        return INTERRUPTED
    if known.tells_outcome or span.status_description or span.events:
        control = _control_flow(span, known)
        if control is not None and text is None and not payload.control:
            return control
        refused = span.attributes.get(DENIED_KEY) is True
    for key, test in known.refused_when:
        refused = refused or test(span.attributes[key])
    failed = control is None and (span.status == "error" or _says_error(span.attributes, payload, known))
    return classify(text if text is not None else span.status_description or None, failed=failed, refused=refused)


def _control_flow(span: SpanView, known: KeySet) -> Outcome | None:
    attributes = span.attributes
    texts = [span.status_description, written(attributes.get("error.type", ""))]
    texts += [written(attributes[key]) for key in known.status_messages]
    for event in span.events:
        if event.name == "exception":
            texts += [written(event.attributes.get(key, "")) for key in ("exception.type", "exception.message")]
    texts = [text[:_STATUS_CHARS] for text in texts if text]
    if not texts or not any(_CONTROL.search(text) for text in texts):
        return None
    return INTERRUPTED if any(_INTERRUPT.search(text) for text in texts) else SUCCESS


def _says_error(attributes: Mapping[str, Any], payload: Payload, known: KeySet) -> bool:
    if payload.error is not None:
        return payload.error
    if payload.text is not None and (payload.text == GENERIC_FAILURE or payload.text.startswith(_FAILED_CALL)):
        return True
    if known.tells_outcome and attributes.get("error.type"):
        return True
    for key, value in known.failed_when:  # noqa: SIM110  a generator would cost more than the look-ups
        if attributes[key] == value:
            return True
    return False
