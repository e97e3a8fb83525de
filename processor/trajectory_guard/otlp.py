"""OTLP to ``SpanView``: JSON encoding of ``ExportTraceServiceRequest`` (hex ids, string or integer enums)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trajectory_guard.dialects.span import SPAN_KINDS, SpanEvent, SpanView

_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_STATUS: Final = {0: "unset", 1: "ok", 2: "error"}
_STATUS_NAMES: Final = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_KIND_NAMES: Final = {f"SPAN_KIND_{name.upper()}": number for number, name in enumerate(SPAN_KINDS) if number}


def spans_from_json(request: Mapping[str, Any]) -> Iterator[SpanView]:
    """Spans of one request (a decoded JSON object), in order. Keys may be camelCase or snake_case.

    Raises:
        ValueError: the object has no ``resourceSpans``; a span lacks its ids.
    """
    groups = _get(request, "resourceSpans", "resource_spans")
    if not isinstance(groups, list):
        raise ValueError("not an OTLP trace request: no 'resourceSpans' list")
    for group in groups:
        if not isinstance(group, Mapping):
            raise ValueError(f"not an OTLP trace request: 'resourceSpans' holds a {type(group).__name__}")
        resource = _attributes((group.get("resource") or {}).get("attributes"))
        for scoped in _get(group, "scopeSpans", "scope_spans", "instrumentationLibrarySpans") or []:
            scope = scoped.get("scope") or scoped.get("instrumentationLibrary") or {}
            for span in scoped.get("spans") or []:
                yield _span(span, str(scope.get("name", "")), scope.get("version") or None, resource)


def _get(value: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        if key in value:
            return value[key]
    return None


def _span(span: Mapping[str, Any], scope: str, version: str | None, resource: Mapping[str, Any]) -> SpanView:
    status = span.get("status") or {}
    return SpanView(
        name=str(span.get("name", "")),
        attributes=_attributes(span.get("attributes")),
        trace_id=_required_id(span, "traceId", "trace_id", 32),
        span_id=_required_id(span, "spanId", "span_id", 16),
        parent_id=hex_id(_get(span, "parentSpanId", "parent_span_id") or "", 16) or None,
        kind=SPAN_KINDS[_enum(span.get("kind", 0), _KIND_NAMES) % len(SPAN_KINDS)],
        status=_STATUS.get(_enum(status.get("code", 0), _STATUS_NAMES), "unset"),
        status_description=str(status.get("message", "")),
        events=[
            SpanEvent(str(event.get("name", "")), _attributes(event.get("attributes")))
            for event in span.get("events") or []
        ],
        start=_seconds(_get(span, "startTimeUnixNano", "start_time_unix_nano")),
        end=_seconds(_get(span, "endTimeUnixNano", "end_time_unix_nano")),
        scope=scope,
        scope_version=version,
        resource=resource,
        dropped=_enum(_get(span, "droppedAttributesCount", "dropped_attributes_count") or 0, {}),
    )


def _required_id(span: Mapping[str, Any], camel: str, snake: str, length: int) -> str:
    found = hex_id(_get(span, camel, snake), length)
    if not found:
        raise ValueError(f"span {str(span.get('name', ''))[:40]!r} has no {camel}")
    return found


def hex_id(value: Any, length: int) -> str:
    """A trace or span id as lower-case hex; accepts hex and (as protobuf's own JSON writes it) base64."""
    text = str(value or "")
    if not text or (len(text) == length and _HEX_DIGITS.issuperset(text)):
        return text.lower()
    try:
        decoded = base64.b64decode(text, validate=True).hex()
    except ValueError:
        raise ValueError(f"not an id of {length} hex digits: {text[:40]!r}") from None
    if len(decoded) != length:
        raise ValueError(f"not an id of {length} hex digits: {text[:40]!r}")
    return decoded


def _enum(value: Any, names: Mapping[str, int]) -> int:
    if isinstance(value, int):
        return value
    text = str(value)
    return names.get(text, int(text) if text.isdigit() else 0)


def _seconds(value: Any) -> float:
    try:
        return int(value) / 1e9
    except (TypeError, ValueError):
        return 0.0


def _attributes(items: Any) -> dict[str, Any]:
    return {str(item.get("key", "")): any_value(item.get("value") or {}) for item in items or []}


def any_value(value: Mapping[str, Any]) -> Any:
    """Decode an OTLP ``AnyValue``."""
    for kind, item in value.items():
        if kind in ("stringValue", "boolValue", "string_value", "bool_value"):
            return item
        if kind in ("intValue", "int_value"):
            return int(item)
        if kind in ("doubleValue", "double_value"):
            return float(item)
        if kind in ("arrayValue", "array_value"):
            return [any_value(one or {}) for one in item.get("values") or []]
        if kind in ("kvlistValue", "kvlist_value"):
            return _attributes(item.get("values"))
        if kind in ("bytesValue", "bytes_value"):
            return item
    return None
