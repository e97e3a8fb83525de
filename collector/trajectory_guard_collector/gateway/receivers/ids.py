"""Trace and span ids: hexadecimal in OTLP/JSON, where protobuf's own JSON form has base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard_collector.errors import BadDataError

_LENGTHS: Final[Mapping[str, int]] = {
    "traceId": 16, "trace_id": 16,
    "spanId": 8, "span_id": 8,
    "parentSpanId": 8, "parent_span_id": 8,
}  # fmt: skip
_NO_IDS: Final = frozenset({"attributes", "resource", "body"})


def encode_ids(request: dict[str, Any]) -> None:
    """Turn the ids of a decoded OTLP/JSON request, of spans, links, log records and exemplars, into base64, in place.

    Raises:
        BadDataError: an id is not hexadecimal or has the wrong length.
    """
    pending: list[Any] = [request]
    while pending:  # no recursion: the sender decides how deep its JSON is
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            _encode_members(value, pending)


def _encode_members(value: dict[str, Any], pending: list[Any]) -> None:
    for name, member in value.items():
        if isinstance(member, str):
            if name in _LENGTHS:
                value[name] = _encode(name, member)
        elif name not in _NO_IDS:
            pending.append(member)


def _encode(name: str, text: str) -> str:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = None
    if raw is None or len(raw) not in (0, _LENGTHS[name]) or len(text) != 2 * len(raw):
        raise BadDataError(f"{name}: {text[:64]!r} is not {2 * _LENGTHS[name]} hexadecimal digits")
    return base64.b64encode(raw).decode()
