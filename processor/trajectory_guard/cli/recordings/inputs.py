"""Reading recorded telemetry: OTLP as JSON or protobuf, and step lines; plain or compressed; detected by content."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trajectory_guard.cli.recordings.diagnostics import Diagnostics, InputError, Limits, Recorded
from trajectory_guard.cli.recordings.json_files import Value, decode_json, read_json
from trajectory_guard.cli.recordings.protobuf_files import framing, read_protobuf
from trajectory_guard.cli.recordings.step_lines import recorded
from trajectory_guard.cli.recordings.streams import BUFFER_BYTES, Source, is_binary, is_utf16, starts_json
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.otlp import spans_from_json

__all__ = ["Diagnostics", "InputError", "Limits", "Recorded", "read"]

_OTHER_SIGNALS: Final = {"resourceLogs": "logs", "resourceMetrics": "metrics", "resourceProfiles": "profiles"}
_WRONG: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError)


Other = Callable[[Mapping[str, Any], "int | None"], bool]
"""Takes an object that is neither spans nor steps, and its line; returns whether it could read it."""


def read(
    path: str, diagnostics: Diagnostics, limits: Limits | None = None, other: Other | None = None
) -> Iterator[SpanView | Recorded]:
    """Everything in one file (``-`` is standard input), in order; problems go to ``diagnostics``.

    Parameters:
        other: is given every object that is neither spans nor steps; without it, and where it returns False, such an
            object is a problem. With it, the file may be a log with other text before each object.
    """
    name = "<stdin>" if path == "-" else path
    limits = limits or Limits()
    try:
        with Source(path, diagnostics.progress) as source:
            yield from _read_source(source, name, diagnostics, limits, other)
            if source.failure is not None:
                diagnostics.fail(name, f"cannot be read to its end: {source.failure}")
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        diagnostics.fail(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _read_source(
    source: Source, name: str, diagnostics: Diagnostics, limits: Limits, other: Other | None
) -> Iterator[SpanView | Recorded]:
    head = source.head()
    stream = io.BufferedReader(source, BUFFER_BYTES)
    binary = is_binary(head)
    framed = framing(head) if binary else None
    if not head:
        if source.failure is None:
            diagnostics.fail(name, "is empty")
    elif is_utf16(head):
        diagnostics.fail(name, "is UTF-16 text; convert it to UTF-8", 1)
    elif framed is not None:
        for message in read_protobuf(stream, framed, name, diagnostics, limits):
            values = decode_json(message, name, diagnostics) if isinstance(message, bytes) else [Value(message, None)]
            for value in values:
                yield from _items(value, name, diagnostics, other)
    elif binary and not starts_json(head):
        diagnostics.fail(name, "is neither JSON (OTLP or step lines) nor an OTLP protobuf message", 1)
    else:
        for value in read_json(stream, name, diagnostics, limits, logged=other is not None):
            yield from _items(value, name, diagnostics, other)


# --- what a value holds --------------------------------------------------------------------------------------


def _items(
    read_value: Value, name: str, diagnostics: Diagnostics, other: Other | None
) -> Iterator[SpanView | Recorded]:
    value, line = read_value
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, Mapping):
            diagnostics.fail(name, f"expected an object, got {type(one).__name__}", line)
        elif "steps" in one and (isinstance(one["steps"], list) or other is None or not other(one, line)):
            found = recorded(one, name, line, diagnostics)
            if found is not None:
                yield found
        elif "resourceSpans" in one or "resource_spans" in one:
            yield from _spans(one, name, line, diagnostics)
        elif "steps" not in one and (other is None or not other(one, line)):
            diagnostics.fail(name, _unknown(one), line)


def _unknown(value: Mapping[str, Any]) -> str:
    for key, signal in _OTHER_SIGNALS.items():
        if key in value:
            return f"holds OTLP {signal}; only traces ('resourceSpans') can be read"
    keys = ", ".join(list(map(str, value))[:5]) or "no keys"
    return f"neither 'resourceSpans' (OTLP) nor 'steps' (a trajectory); has {keys}"


def _spans(request: Mapping[str, Any], name: str, line: int | None, diagnostics: Diagnostics) -> list[SpanView]:
    """Spans of a request. If one is broken, it is reported and the others are kept."""
    try:
        spans = list(spans_from_json(request))
    except _WRONG as error:
        spans = []
        singles = list(_single_requests(request))
        if not singles:
            diagnostics.fail(name, f"not a valid OTLP trace request: {_reason(error)}", line)
        for place, single in singles:
            spans += _single_span(place, single, name, line, diagnostics)
    return spans


def _single_span(
    place: str, request: Mapping[str, Any], name: str, line: int | None, diagnostics: Diagnostics
) -> list[SpanView]:
    try:
        return list(spans_from_json(request))
    except _WRONG as error:
        diagnostics.fail(name, f"not a valid OTLP trace request: {place}: {_reason(error)}", line)
        return []


def _single_requests(request: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A request for each span of a request with something wrong in it, and the place of the span."""
    for i, group in _entries(request, "resourceSpans", "resource_spans"):
        for j, scoped in _entries(group, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            scope = scoped.get("scope") or scoped.get("instrumentationLibrary")
            for k, span in _entries(scoped, "spans"):
                single = {"resource": group.get("resource"), "scopeSpans": [{"scope": scope, "spans": [span]}]}
                yield f"resourceSpans[{i}].scopeSpans[{j}].spans[{k}]", {"resourceSpans": [single]}


def _entries(value: Mapping[str, Any], *keys: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    found = next((value[key] for key in keys if key in value), None)
    for index, one in enumerate(found if isinstance(found, list) else []):
        if isinstance(one, Mapping):
            yield index, one


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    return f"a value has the wrong type ({error})"
