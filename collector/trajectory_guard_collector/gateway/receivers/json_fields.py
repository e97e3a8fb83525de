"""Brings decoded OTLP/JSON into the form that protobuf's JSON parser takes, and around what it does badly.

Ids are hexadecimal in OTLP and base64 in protobuf. The parser drops what is no base64. It searches each text for halves
of surrogate pairs, which orjson has refused before, at 70 ns a character in which no other thread runs, and compares
the name of each unknown member with a pattern.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trajectory_guard_collector.errors import BadDataError

LONG_CHARS: Final = 1_024
"""Characters from which a text is kept from the parser."""
_LENGTHS: Final[Mapping[str, int]] = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_SHOWN: Final = 64


_Step = tuple[Any, str, int | None]
"""A way into a message: the step before (None at the top), the field, and the place in it if it is repeated."""


class LongText(NamedTuple):
    """A text that the parser does not get, and its place."""

    place: _Step
    text: str


def prepare(request: dict[str, Any], message: Message) -> list[LongText]:
    """Turn ids into base64, check other bytes, empty long texts, and drop unknown members and names, in place.

    Parameters:
        request: the decoded JSON.
        message: of the type that it is to become.

    Returns:
        The long texts, for ``put_back``.

    Raises:
        BadDataError: an id is not hexadecimal or has the wrong length, bytes are no base64, or a member is there under
            both of its names.
    """
    found: list[LongText] = []
    pending: list[tuple[Any, Descriptor, _Step | None]] = [(request, cast(Descriptor, message.DESCRIPTOR), None)]
    while pending:  # no recursion: the sender decides how deep its JSON is
        value, kind, before = pending.pop()
        if not isinstance(value, dict):
            continue  # the parser refuses it
        fields, seen = _fields(kind), set()
        for name, member in list(value.items()):
            field = fields.get(name)
            if field is None:
                del value[name]
                continue
            if field.name in seen:
                raise BadDataError(f"{name}: is there twice, under both of its names")
            seen.add(field.name)
            if field.is_text and member.__class__ is str and len(member) < LONG_CHARS:
                continue  # as most members
            if not isinstance(member, list):
                value[name] = _prepared(field, name, member, (before, field.name, None), pending, found)
                continue
            for index, one in enumerate(member):
                member[index] = _prepared(field, name, one, (before, field.name, index), pending, found)
    return found


def put_back(message: Message, texts: Iterable[LongText]) -> None:
    """Set the texts in the message that was parsed without them."""
    for (before, field, at), text in texts:
        holder: Any = _holder(message, before)
        if at is None:
            setattr(holder, field, text)
        else:
            getattr(holder, field)[at] = text


def _holder(message: Any, step: _Step | None) -> Any:
    steps: list[_Step] = []
    while step is not None:
        steps.append(step)
        step = step[0]
    for _, field, at in reversed(steps):
        inner = getattr(message, field)
        message = inner if at is None else inner[at]
    return message


class _Field(NamedTuple):
    name: str
    type: int
    kind: Descriptor | None
    is_text: bool


@cache
def _fields(kind: Descriptor) -> Mapping[str, _Field]:
    """The fields of a message by the names that the parser knows."""
    return {
        name: _Field(field.name, field.type, field.message_type, field.type == FieldDescriptor.TYPE_STRING)
        for field in kind.fields
        for name in (field.name, field.json_name)
    }


def _prepared(
    field: _Field, name: str, value: Any, place: _Step, pending: list[tuple[Any, Descriptor, _Step | None]],
    found: list[LongText],
) -> Any:  # fmt: skip
    if field.kind is not None:
        pending.append((value, field.kind, place))
    elif not isinstance(value, str):
        pass  # a number, or what the parser refuses
    elif field.is_text:
        if len(value) >= LONG_CHARS:
            found.append(LongText(place, value))
            return ""
    elif field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes(field.name, name, value)
    elif len(value) >= LONG_CHARS:
        if field.type == FieldDescriptor.TYPE_ENUM:
            return None  # the parser ignores a name that it does not know, and null
        raise BadDataError(f"{name}: {value[:_SHOWN]!r}… is no number")
    return value


def _bytes(field: str, name: str, text: str) -> str:
    if field in _LENGTHS:
        return _id(name, text, _LENGTHS[field])
    if not _is_base64(text):
        raise BadDataError(f"{name}: {text[:_SHOWN]!r} is not base64")
    return text


def _id(name: str, text: str, length: int) -> str:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = None
    if raw is None or len(raw) not in (0, length) or len(text) != 2 * len(raw):
        raise BadDataError(f"{name}: {text[:_SHOWN]!r} is not {2 * length} hexadecimal digits")
    return base64.b64encode(raw).decode()


def _is_base64(text: str) -> bool:
    """Whether a text is base64 in either alphabet; it may lack its padding, as protobuf has it."""
    if not text.isascii():
        return False
    digits = text.encode().rstrip(b"=")
    return len(text) - len(digits) <= 2 and len(digits) % 4 != 1 and not digits.translate(None, _BASE64)
