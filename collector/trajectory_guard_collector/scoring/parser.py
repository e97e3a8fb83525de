"""Finds the agent spans in a request, and converts them to the views that the dialects read; all others stay unread."""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from trajectory_guard.dialects.base import ARGUMENT_KEYS, MAX_NAME_CHARS, RESULT_KEYS, Dialect
from trajectory_guard.dialects.span import SPAN_KINDS, SpanEvent, SpanView
from trajectory_guard.dialects.table import table_of
from trajectory_guard.spans.length_limits import LengthLimits
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.otlp.lazy import Request, SpanHeader
from trajectory_guard_collector.otlp.structure import TooDeepError, decode_into, decoded, decoded_in_part
from trajectory_guard_collector.scoring.items import Item, ResourceInfo
from trajectory_guard_collector.scoring.traces import Trace
from trajectory_guard_collector.tenants import tenant_of

_MAX_CACHED: Final = 1_024
_MAX_CACHED_BYTES: Final = 4 << 20
_LARGE: Final = 4_096
_AT_A_STRETCH: Final = 16
T = TypeVar("T")
OpaqueSpan = tuple[bytes, bytes, bytes, Any, int]
"""A span without agent attributes, or one nested too deeply to be read: ids of its trace, of itself and of its parent,
the field that holds it, and its index there. A plain tuple, since nine spans in ten are one of these."""
_STATUS: Final = ("unset", "ok", "error")
_NANO: Final = 1e9
_CONTENT: Final = frozenset((*ARGUMENT_KEYS, *RESULT_KEYS))
_MAX_KEYS: Final = 4_096
_KEYS: Final[dict[str, str]] = {}
"""Names of attributes, so that a hundred thousand spans in memory share them."""
_MAX_KEPT_CHARS: Final = 512
_MAX_KEPT_METADATA_CHARS: Final = 8_192
_MAX_KEPT_KEYS: Final = 64
_MAX_KEPT_RESOURCE_CHARS: Final = 4_096
_KEPT_FIRST: Final = ("service.", "deployment.", "langfuse.environment")
"""Beginnings of the attributes of resources that dashboards filter by, and that Langfuse reads."""
_ITEM: Final = re.compile(r"\.\d")
"""In the name of an attribute that holds a part of a list: ``llm.output_messages.3.message.role``."""


class AgentSpan:
    """An agent span and its place in the request.

    Attributes:
        holder, place: the repeated field of bytes that holds the span, and its index there.
        group, scope: the enclosing ``ResourceSpans``, and the serialized scope.
        origin: the resource of the span, as far as its step keeps it; ``view`` has the whole.
        trace_id, span_id, parent_id: sixteen, eight and eight bytes, none for the parent of a root.
        key: trace id and span id.
        span, view: the span as protobuf and as the dialects read it; kept_view: the view without content.
        size: length of the serialized span in bytes.
        trace: its trace; set when the span is remembered.
        item: the step or usage made of the span; set when the span is scored.
    """

    __slots__ = (
        "group", "holder", "item", "kept_view", "key", "origin", "parent_id", "place", "scope", "size", "span",
        "span_id", "trace", "trace_id", "view",
    )  # fmt: skip

    def __init__(
        self, place: tuple[Any, Any, int], origin: ResourceInfo, scope: bytes, span: Span, view: SpanView, size: int
    ) -> None:
        self.group, self.holder, self.place = place
        self.origin = origin
        self.scope = scope
        self.span = span
        self.trace_id: bytes = span.trace_id
        self.span_id: bytes = span.span_id
        self.parent_id: bytes = span.parent_span_id if span.parent_span_id != span.span_id else b""
        self.key = self.trace_id + self.span_id
        self.view = view
        self.kept_view = strip_content(view)
        self.size = size
        self.trace: Trace | None = None
        self.item: Item | None = None


class ParsedRequest:
    """A request whose spans are sorted into agent spans and others.

    Attributes:
        too_deep: number of agent spans among the others, since they are nested too deeply to be read.
    """

    def __init__(self, request: Any) -> None:
        self.request = request
        self.too_deep = 0
        self.agent_spans: list[AgentSpan] = []
        self.opaque_spans: list[OpaqueSpan] = []

    @property
    def count(self) -> int:
        """Spans in the request."""
        return len(self.agent_spans) + len(self.opaque_spans)


class _Scope(NamedTuple):
    """A scope, and whether its spans may name agents without any of the attributes."""

    decoded: InstrumentationScope
    may_name_agents: bool


class RequestParser:
    """Parses requests.

    Parameters:
        table: the dialects in use; a span with none of their keys, and none that names a conversation, an agent or
            the usage of a model, is left unread, unless its scope is one whose spans name agents without any key.
        separate_by: resource attributes that form the tenant.
        learns_limits: texts that are as long as a limit of their sender are unknown. The limit is learned from the
            requests before, so that parsers that read different requests do not agree.
    """

    def __init__(
        self, table: tuple[Dialect, ...], separate_by: Sequence[str] = (), *, learns_limits: bool = False
    ) -> None:
        self._separate_by = separate_by
        self._learns_limits = learns_limits
        self._table = combined = table_of(table)
        self._interesting = combined.interesting | combined.name_keys
        self._named_scopes = combined.named_scopes
        self._origins: OrderedDict[bytes, tuple[ResourceInfo, Mapping[str, Any]]] = OrderedDict()
        self._scopes: OrderedDict[bytes, _Scope] = OrderedDict()
        self._limits: OrderedDict[bytes, LengthLimits] = OrderedDict()  # by resource: a limit is that of a process

    def read(self, data: bytes) -> ParsedRequest:
        """``parsing`` without interruption."""
        return at_once(self.parsing(data))

    def parsing(self, data: bytes) -> Generator[None, None, ParsedRequest]:
        """Sort the spans of a serialized request, yielding wherever the event loop may do other work.

        Raises:
            google.protobuf.message.DecodeError: the bytes are no ``ExportTraceServiceRequest``.
        """
        request = Request.FromString(data)
        parsed, is_opaque = ParsedRequest(request), self._interesting.isdisjoint
        opaque_spans = parsed.opaque_spans
        header = SpanHeader()  # one for all: a message for each span would take a quarter longer
        decode = header.ParseFromString
        for group in request.resource_spans:
            for scoped in group.scope_spans:
                holder, source = scoped.spans, None
                scope, may_name_agents = _cached(self._scopes, scoped.scope, self._scope)
                for place, raw in enumerate(holder):
                    try:
                        decode(raw)
                    except DecodeError:
                        decode_into(header, raw)
                    if not may_name_agents and is_opaque(header.attributes):
                        opaque_spans.append((header.trace_id, header.span_id, header.parent_span_id, holder, place))
                        if place % _AT_A_STRETCH == 0:
                            yield
                    else:
                        if source is None:
                            source = self._source(group, scoped.scope, scope)
                        try:
                            parsed.agent_spans.append(_seen(raw, (group, holder, place), *source))
                        except TooDeepError:  # the sender would drop the whole request if it were refused
                            parsed.too_deep += 1
                            opaque_spans.append((header.trace_id, header.span_id, header.parent_span_id, holder, place))
                        yield
        return parsed

    def shed(self) -> None:
        """Forget the names of attributes, to free memory."""
        _KEYS.clear()
        self._table.shed()

    def _source(
        self, group: Any, scope: bytes, named: InstrumentationScope
    ) -> tuple[ResourceInfo, Mapping[str, Any], LengthLimits | None, bytes, InstrumentationScope]:
        """Resource of spans, as it is kept and with all attributes, what is known of its length limits, and their
        scope, serialized and decoded.
        """
        origin, attributes = _cached(self._origins, group.resource, self._origin)
        limits = _cached(self._limits, group.resource, lambda _: LengthLimits()) if self._learns_limits else None
        return origin, attributes, limits, scope, named

    def _scope(self, data: bytes) -> _Scope:
        scope = decoded_in_part(InstrumentationScope, data)
        return _Scope(scope, scope.name.startswith(self._named_scopes))

    def _origin(self, data: bytes) -> tuple[ResourceInfo, Mapping[str, Any]]:
        attributes = resource_attributes(data)
        service = str(attributes.get("service.name", "unknown_service"))
        kept = kept_attributes(attributes, (*self._separate_by, *_KEPT_FIRST))
        return ResourceInfo(kept, service, tenant_of(attributes, self._separate_by)), attributes


def _seen(
    raw: bytes, place: tuple[Any, Any, int], origin: ResourceInfo, attributes: Mapping[str, Any],
    limits: LengthLimits | None, scope: bytes, named: InstrumentationScope,
) -> AgentSpan:  # fmt: skip
    span = decoded(Span, raw)
    view = view_of(span, named, attributes)
    if limits is not None:
        view = limits.mark(view)
    return AgentSpan(place, origin, scope, span, view, len(raw))


def _cached(table: OrderedDict[bytes, T], data: bytes, read: Callable[[bytes], T]) -> T:
    """Decode ``data``, or return the cached result: the spans of an application share resource and scope."""
    value = table.get(data)
    if value is None:
        value = table[data] = read(data)
        # A sender decides how large its resources are, and whether any two are equal.
        full = len(data) > _LARGE and sum(map(len, table)) > _MAX_CACHED_BYTES
        while len(table) > 1 and (full or len(table) > _MAX_CACHED):
            table.popitem(last=False)
            full = full and sum(map(len, table)) > _MAX_CACHED_BYTES
    return value


def view_of(span: Span, scope: InstrumentationScope, resource: Mapping[str, Any]) -> SpanView:
    """A ``SpanView`` of a span, equal to the one read from the span's JSON encoding."""
    status, events = span.status, span.events
    return SpanView(
        span.name,
        attributes_of(span.attributes),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        SPAN_KINDS[span.kind % len(SPAN_KINDS)],
        _STATUS[status.code] if 0 <= status.code < len(_STATUS) else "unset",
        status.message,
        [SpanEvent(event.name, attributes_of(event.attributes)) for event in events] if events else [],
        span.start_time_unix_nano / _NANO,
        span.end_time_unix_nano / _NANO,
        scope.name,
        scope.version or None,
        resource,
        span.dropped_attributes_count,
    )


def strip_content(view: SpanView) -> SpanView:
    """The view without content and events, which is enough to recognise the span as an ancestor later."""
    short = {
        key: value
        for key, value in view.attributes.items()
        if key not in _CONTENT
        and (
            (len(value) <= _MAX_KEPT_CHARS or (key == "metadata" and len(value) <= _MAX_KEPT_METADATA_CHARS))
            if isinstance(value, str)
            else not isinstance(value, (list, dict))
        )
    }
    if len(short) > _MAX_KEPT_KEYS:  # messages spread over attributes, which may stand before what names the agent
        named = ((key, value) for key, value in short.items() if _ITEM.search(key) is None)
        short = dict(islice(named, _MAX_KEPT_KEYS))
    # The constructor takes a third of the time of ``_replace``.
    return SpanView(
        view.name, short, view.trace_id, view.span_id, view.parent_id, view.kind, view.status, "", (), view.start,
        view.end, view.scope, view.scope_version, {},
    )  # fmt: skip


def kept_attributes(attributes: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    """The attributes of a resource that its steps keep, for guard spans that come after the request: a sender decides
    how large its resources are, and how many differ.

    Parameters:
        first: beginnings of the names that take precedence where not all attributes find room.
    """
    kept: dict[str, Any] = {}
    room = _MAX_KEPT_RESOURCE_CHARS
    for key, value in sorted(attributes.items(), key=lambda one: not one[0].startswith(first)):
        size = len(key) + len(value if isinstance(value, str) else str(value))
        if size <= room and len(kept) < _MAX_KEPT_KEYS:
            kept[key] = value
            room -= size
    return kept


def resource_attributes(data: bytes) -> dict[str, Any]:
    """Attributes of a serialized ``Resource``; those that are nested too deeply are left out."""
    return attributes_of(decoded_in_part(Resource, data).attributes)


def attributes_of(items: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as a plain mapping; of keys that repeat the last one counts."""
    return {
        _KEYS.get(key := item.key) or _shared(key): (value := item.value).string_value
        or value.int_value
        or any_value(value)
        for item in items
    }


def _shared(key: str) -> str:
    if len(key) > MAX_NAME_CHARS:
        return key
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
