"""Converts OTLP protobuf to the views that the dialects read."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from trajectory_guard.dialects.base import ARGUMENT_KEYS, RESULT_KEYS
from trajectory_guard.dialects.span import SpanEvent, SpanView

_KINDS: Final = ("internal", "internal", "server", "client", "producer", "consumer")
_STATUS: Final = ("unset", "ok", "error")
_NANO: Final = 1e9
_CONTENT: Final = frozenset((*ARGUMENT_KEYS, *RESULT_KEYS))
_MAX_KEYS: Final = 4_096
_KEYS: Final[dict[str, str]] = {}
"""Names of attributes, so that a hundred thousand spans in memory share them."""
_MAX_KEPT_CHARS: Final = 512
_MAX_KEPT_METADATA_CHARS: Final = 8_192
_MAX_KEPT_KEYS: Final = 64


class ResourceInfo(NamedTuple):
    """The resource that spans come from.

    Fields:
        attributes: its attributes.
        service: name of the service.
        tenant: keeps equal ids of different tenants apart.
    """

    attributes: Mapping[str, Any]
    service: str
    tenant: str


def view_of(span: Span, scope: InstrumentationScope, resource: Mapping[str, Any]) -> SpanView:
    """A ``SpanView`` of a span, equal to the one read from the span's JSON encoding."""
    status, events = span.status, span.events
    return SpanView(
        span.name,
        attributes_of(span.attributes),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        _KINDS[span.kind % len(_KINDS)],
        _STATUS[status.code] if 0 <= status.code < len(_STATUS) else "unset",
        status.message,
        [SpanEvent(event.name, attributes_of(event.attributes)) for event in events] if events else [],
        span.start_time_unix_nano / _NANO,
        span.end_time_unix_nano / _NANO,
        scope.name,
        scope.version or None,
        resource,
    )


def strip_content(view: SpanView) -> SpanView:
    """The view without content and events, which is enough to recognise the span as an ancestor later."""
    short = {
        key: value
        for key, value in view.attributes.items()
        if key not in _CONTENT
        and (not isinstance(value, (str, list, dict)) or (isinstance(value, str) and len(value) <= _limit(key)))
    }
    if len(short) > _MAX_KEPT_KEYS:
        short = dict(islice(short.items(), _MAX_KEPT_KEYS))
    return view._replace(attributes=short, events=(), status_description="", resource={})


def _limit(key: str) -> int:
    return _MAX_KEPT_METADATA_CHARS if key == "metadata" else _MAX_KEPT_CHARS


def tenant_of(attributes: Mapping[str, Any], separate_by: Iterable[str]) -> str:
    """The tenant of a resource: the values of the attributes that keep equal ids apart.

    >>> tenant_of({"service.namespace": "eu"}, ("service.namespace", "deployment.environment.name"))
    'eu'
    """
    return "/".join(str(attributes.get(name, "")) for name in separate_by).strip("/")


def resource_attributes(data: bytes) -> dict[str, Any]:
    """Attributes of a serialized ``Resource``."""
    return attributes_of(Resource.FromString(data).attributes)


def attributes_of(items: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as a plain mapping; of keys that repeat the last one counts."""
    return {
        _KEYS.get(key := item.key) or _shared(key): (value := item.value).string_value or any_value(value)
        for item in items
    }


def _shared(key: str) -> str:
    if len(_KEYS) >= _MAX_KEYS:
        _KEYS.clear()
    _KEYS[key] = key
    return key


def any_value(value: AnyValue) -> Any:
    """Decode an ``AnyValue``; bytes become base64 text, as in the JSON encoding."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [any_value(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode("ascii")
    return getattr(value, kind)
