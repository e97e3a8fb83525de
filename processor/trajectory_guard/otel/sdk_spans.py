"""Reading the spans of the SDK, directly where that is known to be safe.

The properties of an SDK span run Python code and copy what they return, for every span of the application. A class of
spans whose private fields held what its properties said, in a test with one span, is read by its fields; all other
spans are read by their properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from trajectory_guard.dialects.span import SpanEvent, SpanView, with_cut_off

Attributes = Mapping[str, Any]
Parts = tuple[str, int, int, "str | None", Sequence[Event], "int | None", "int | None", str, "str | None"]
TRACE_ID: Final = 0
SPAN_ID: Final = 1
IS_REMOTE: Final = 2
"""Places in a ``SpanContext``, which is a tuple."""
_KINDS: Final = {kind._value_: kind.name.lower() for kind in SpanKind}
_STATUS: Final = {StatusCode.UNSET._value_: "unset", StatusCode.OK._value_: "ok", StatusCode.ERROR._value_: "error"}


class SpanReader(NamedTuple):
    """How the spans of a class are read.

    Fields:
        ended: context, context of the parent, attributes, and the length at which these are cut off, if there is one.
        live: context of the parent, name, and attributes: those of a live span are not copied.
        parts: name, kind, status, its description, events, start, end, name and version of the scope; kind and status
            as numbers, times in nanoseconds.
    """

    ended: Callable[[ReadableSpan], tuple[SpanContext | None, SpanContext | None, Attributes, int | None]]
    live: Callable[[ReadableSpan], tuple[SpanContext | None, str, Attributes]]
    parts: Callable[[ReadableSpan], Parts]


def _plain_attributes(span: ReadableSpan) -> Attributes:
    attributes = span.attributes
    if attributes is None:
        return {}
    copy = getattr(attributes, "copy", None)
    return copy() if copy is not None else dict(attributes)


def _limit_of(attributes: Any) -> int | None:
    """The length at which the SDK has cut texts off: its own attributes know it, and no property of a span does."""
    return getattr(attributes, "max_value_len", None)


def limit_of(span: ReadableSpan) -> int | None:
    """The length at which the SDK cuts the texts of a span off, None if at none."""
    return _limit_of(getattr(span, "_attributes", None))


def _public_parts(span: ReadableSpan) -> Parts:
    kind, status, scope = span.kind, span.status, span.instrumentation_scope
    return (
        span.name,
        SpanKind.INTERNAL._value_ if kind is None else kind._value_,
        status.status_code._value_,
        status.description,
        span.events,
        span.start_time,
        span.end_time,
        scope.name if scope is not None else "",
        scope.version if scope is not None else None,
    )


PUBLIC: Final = SpanReader(
    ended=lambda span: (
        span.context,
        span.parent,
        _plain_attributes(span),
        limit_of(span),
    ),
    live=lambda span: (span.parent, span.name, _plain_attributes(span)),
    parts=_public_parts,
)
"""By the properties of the span."""
_DIRECT: Final = SpanReader(
    ended=attrgetter("_context", "_parent", "_attributes._dict", "_attributes.max_value_len"),
    live=attrgetter("_parent", "_name", "_attributes._dict"),
    parts=attrgetter(
        "_name", "_kind._value_", "_status._status_code._value_", "_status._description", "_events._dq", "_start_time",
        "_end_time", "_instrumentation_scope._name", "_instrumentation_scope._version",
    ),
)  # fmt: skip
"""By its fields. Raises AttributeError if a span that was made by hand has others."""


@cache
def readers() -> Mapping[type, SpanReader]:
    """The classes of spans that can be read by their fields, tested with one span of the installed SDK."""
    try:
        return {type(span): _DIRECT for span in _sample() if _agrees(span)}
    except Exception:  # noqa: BLE001  another SDK: whatever it is, its properties work
        return {}


class _Last(SpanProcessor):
    ended: ReadableSpan

    def on_end(self, span: ReadableSpan) -> None:
        self.ended = span


def _sample() -> tuple[ReadableSpan, ...]:
    """A live span and an ended one, made without a provider: nothing exports or counts them."""
    last = _Last()
    span: Span = sdk._Span(
        "name",
        SpanContext(0x1F, 0x2F, is_remote=False),
        parent=SpanContext(0x1F, 0x3F, is_remote=True),
        resource=Resource({"key": "value"}),
        attributes={"key": "value", "list": ("a", "b")},
        kind=SpanKind.CLIENT,
        span_processor=last,
        instrumentation_scope=InstrumentationScope("scope", "1"),
    )
    span.start(start_time=1_000)
    span.add_event("event", {"key": "value"})
    span.set_status(Status(StatusCode.ERROR, "description"))
    span.end(end_time=2_000)
    return span, last.ended


def _agrees(span: ReadableSpan) -> bool:
    """Whether fields and properties of a span hold the same."""
    context = span.context
    by_place = (context[TRACE_ID], context[SPAN_ID], context[IS_REMOTE])
    return (
        (context.trace_id, context.span_id, context.is_remote) == by_place
        and _DIRECT.ended(span) == PUBLIC.ended(span)
        and _DIRECT.live(span) == PUBLIC.live(span)
        and _DIRECT.parts(span)[:4] == PUBLIC.parts(span)[:4]
        and tuple(_DIRECT.parts(span)[4]) == tuple(PUBLIC.parts(span)[4])
        and _DIRECT.parts(span)[5:] == PUBLIC.parts(span)[5:]
    )


def marked(attributes: Attributes, limit: int | None) -> Attributes:
    """``attributes`` with ``CutOff`` in place of texts as long as the limit that they were stored under."""
    return with_cut_off(attributes, limit.__le__) if limit else attributes


def view_of(
    span: ReadableSpan,
    context: SpanContext | None,
    parent: SpanContext | None,
    attributes: Attributes,
    reader: SpanReader = PUBLIC,
) -> SpanView:
    """A ``SpanView`` of a live or finished SDK span with this context, parent and these attributes."""
    try:
        name, kind, status, description, events, start, end, scope, version = reader.parts(span)
    except AttributeError:
        name, kind, status, description, events, start, end, scope, version = PUBLIC.parts(span)
    start = start or 0
    return SpanView(
        name,
        attributes,
        f"{context[TRACE_ID]:032x}" if context is not None else "",
        f"{context[SPAN_ID]:016x}" if context is not None else "",
        f"{parent[SPAN_ID]:016x}" if parent is not None else None,
        _KINDS[kind],
        _STATUS[status],
        description or "",
        [SpanEvent(event.name, marked(event.attributes or {}, _limit_of(event.attributes))) for event in tuple(events)]
        if events
        else (),
        start / 1e9,
        (end or start) / 1e9,
        scope,
        version,
    )
