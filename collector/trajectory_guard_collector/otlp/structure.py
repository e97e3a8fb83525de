"""The structure of an export request, read from its bytes: how many resources, scopes and items there are, and where.

Two bytes are enough for a resource, a span or an attribute. So a message of 64 MiB may hold 32 million of them, which
would take gigabytes and minutes to decode. Here they are counted before anything is decoded, and the work can be
interrupted everywhere. The three signals have the same structure: resources (field 1) with scopes (field 2) with items
(field 2); resource and scope themselves are field 1 of the message around them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from trajectory_guard_collector.errors import BadDataError, TooLargeError
from trajectory_guard_collector.otlp import lazy as wire
from trajectory_guard_collector.otlp.bounds import MAX_ELEMENTS, MAX_FIELDS
from trajectory_guard_collector.otlp.signals import Signal

_LIGHT: Final = 2 * MAX_FIELDS
"""Bytes within which nothing can have more fields than are allowed by default."""
_USUAL_BYTES: Final = 1 << 20
"""Bytes within which protobuf finds the spans of a few resources and scopes in some milliseconds, however many."""
_FEW: Final = 64
_MAX_DEPTH: Final = 100
"""Messages within each other that protobuf decodes below the outermost one."""
_AT_A_STRETCH: Final = 256
_PART_ELEMENTS: Final = 2_048
_PART_BYTES: Final = 1 << 20
_HEAVY_HEAD: Final = 65_536
_HEADS_IN_PART: Final = 4
_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
_RESOURCES: Final = 1
_ITSELF: Final = 1
_CHILDREN: Final = 2
_DATA_POINTS: Final = 1
_METRIC_KINDS: Final = frozenset(field.number for field in Metric.DESCRIPTOR.oneofs_by_name["data"].fields)
_REQUESTS: Final[dict[Signal, str]] = {
    Signal.TRACES: "ExportTraceServiceRequest",
    Signal.METRICS: "ExportMetricsServiceRequest",
    Signal.LOGS: "ExportLogsServiceRequest",
}
_READ: Final[dict[int, Descriptor]] = {_ITSELF: InstrumentationScope.DESCRIPTOR, _CHILDREN: Span.DESCRIPTOR}
"""Items of a scope that are decoded whole."""


Field = tuple[int, int, int, int]
"""Number (0 if the value has no length of its own), and the places of the tag, of the value and of its end."""
M = TypeVar("M", bound=Message)
_TEXT: Final = FieldDescriptor.TYPE_STRING
_BAD: Final = dict.fromkeys(range(56448, 56576), "?")
"""As which ``surrogateescape`` shows bytes that are no text."""


class RequestPart(NamedTuple):
    """A part of a trace request that is a request itself: its bytes, its spans, and all its elements."""

    data: bytes
    spans: int
    elements: int


class TooDeepError(DecodeError):
    """A message has more messages within each other than protobuf decodes. It may be what its sender means."""


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """The fields of the message between two places.

    Raises:
        BadDataError: it is not in protobuf's wire format.
    """
    while at < end:
        start, tag = at, data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, start, end)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            if at >= end:
                raise _malformed(start)
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1, end)
            value, at = at, at + size
            number = tag >> 3
        else:
            value, number = at, 0
            at = _varint(data, at, end)[1] if kind == 0 else at + _FIXED_SIZES.get(kind, end)
        if at > end or tag < 8:
            raise _malformed(start)
        yield number, start, value, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + 10, end)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    raise _malformed(at)


def _malformed(at: int) -> BadDataError:
    return BadDataError(f"malformed protobuf at byte {at}")


# --- texts ------------------------------------------------------------------------------------------------------------

# Protobuf refuses a whole message for a text that is no UTF-8: a sender cut it off within a character, or has bytes
# where text belongs. OpenTelemetry's other programs let them pass, so they arrive from there, in one batch with the
# spans of others. Such a message is decoded with a question mark for each byte that is no text.


def decoded(kind: type[M], data: bytes) -> M:
    """A message, its texts mended if need be.

    Raises:
        TooDeepError: it is nested too deeply.
        google.protobuf.message.DecodeError: the bytes are no such message.
    """
    message = kind()
    decode_into(message, data)
    return message


def decoded_in_part(kind: type[M], data: bytes) -> M:
    """As ``decoded``, without those of its fields that are nested too deeply."""
    try:
        return decoded(kind, data)
    except TooDeepError:
        message = kind()
        for _, tag, _, end in fields(data, 0, len(data)):
            with suppress(TooDeepError):
                message.MergeFrom(decoded(kind, data[tag:end]))
        return message


def decode_into(message: Message, data: bytes) -> None:
    """As ``decoded``, into a message whose content is replaced."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        message.ParseFromString(_mended(data, message.DESCRIPTOR))


def _mended(data: bytes, kind: Any) -> bytes:
    """The message, as long as before, with a question mark for each byte that is no text."""
    found, waiting = bytearray(data), [(0, len(data), kind, 0)]
    try:
        while waiting:
            at, end, descriptor, depth = waiting.pop()
            if depth > _MAX_DEPTH:
                raise TooDeepError(f"more than {_MAX_DEPTH} messages within each other")
            for number, _, start, stop in fields(data, at, end):
                field = descriptor.fields_by_number.get(number)
                if field is None:
                    continue
                if field.message_type is not None:
                    waiting.append((start, stop, field.message_type, depth + 1))
                elif field.type == _TEXT:
                    text = data[start:stop].decode("utf-8", "surrogateescape")
                    found[start:stop] = text.translate(_BAD).encode("utf-8")
    except BadDataError as error:
        raise DecodeError(str(error)) from None
    return bytes(found)


# --- counting --------------------------------------------------------------------------------------------------------


def count(
    signal: Signal, data: bytes, *, max_elements: int = MAX_ELEMENTS, max_fields: int = MAX_FIELDS
) -> Generator[None, None, int]:
    """Count the spans, data points or log records of a serialized export request, and check that it is one.

    Metrics and log records are decoded one by one, since no other part of the collector does; the scorer decodes spans.

    Parameters:
        max_elements: resources, scopes, items and data points, and fields beside them, that it may have.
        max_fields: fields at any depth that a span, and the resource and the scope of one, may have.

    Raises:
        BadDataError: it is malformed.
        TooLargeError: it exceeds one of the bounds.
    """
    if signal is Signal.TRACES and len(data) <= _USUAL_BYTES:
        usual = _usual_spans(data, max_elements)
        if usual is not None:
            return usual
    tally = _Tally(signal, data, max_elements, max_fields)
    try:
        for number, _, start, end in fields(data, 0, len(data)):
            if tally.full_stretch():
                yield
            if number == _RESOURCES:
                yield from tally.resource(start, end)
    except TooLargeError:
        raise
    except BadDataError as error:
        raise BadDataError(f"not a valid {_REQUESTS[signal]}: {error}") from None
    return tally.items


def _usual_spans(data: bytes, most: int) -> int | None:
    """Spans of a usual request, counted in C; None if it has more than ``most``, many resources or scopes, or anything
    very large, or is malformed."""
    try:
        if not _has_few_groups(data):
            return None
        resources = wire.Request.FromString(data).resource_spans
    except (BadDataError, DecodeError):
        return None
    found = 0
    for resource in resources:
        for scope in resource.scope_spans:
            spans = scope.spans
            found += len(spans)
            if found > most or max(len(resource.resource), len(scope.scope), *map(len, spans)) > _LIGHT:
                return None
    return found


def _has_few_groups(data: bytes) -> bool:
    left = _FEW
    for number, _, start, end in fields(data, 0, len(data)):
        left -= 1
        if number == _RESOURCES and left >= 0:
            left -= sum(1 for _ in islice(fields(data, start, end), left + 1))
        if left < 0:
            return False
    return True


class _Tally:
    def __init__(self, signal: Signal, data: bytes, max_elements: int, max_fields: int) -> None:
        self.items = 0
        self._signal = signal
        self._data = data
        self._elements = 0
        self._max_elements = max_elements
        self._max_fields = max_fields

    def full_stretch(self) -> bool:
        """Count one more element. Returns whether it is time to yield to other work."""
        self._elements += 1
        if self._elements > self._max_elements:
            raise TooLargeError(f"more than max_elements, {self._max_elements}, resources, scopes and items together")
        return self._elements % _AT_A_STRETCH == 0

    def resource(self, at: int, end: int) -> Generator[None, None, None]:
        """Count the elements of a resource."""
        for number, _, start, stop in fields(self._data, at, end):
            if self.full_stretch():
                yield
            if number == _CHILDREN:
                yield from self._scope(start, stop)
            elif number == _ITSELF and stop - start > _LIGHT:
                yield from self._check_fields(start, stop, Resource.DESCRIPTOR)

    def _scope(self, at: int, end: int) -> Generator[None, None, None]:
        traces = self._signal is Signal.TRACES
        for number, _, start, stop in fields(self._data, at, end):
            if self.full_stretch():
                yield
            if number == _CHILDREN:
                if not traces:
                    yield from self._item(start, stop)
                    continue
                self.items += 1
            if stop - start > _LIGHT and number in _READ:
                yield from self._check_fields(start, stop, _READ[number])

    def _check_fields(self, at: int, end: int, kind: Descriptor) -> Generator[None, None, None]:
        """Count the fields of a large message that is going to be decoded, at any depth."""
        if self._signal is not Signal.TRACES:
            return
        found, waiting = 0, [(at, end, kind)]
        while waiting:
            at, end, descriptor = waiting.pop()
            for number, _, start, stop in fields(self._data, at, end):
                found += 1
                if found > self._max_fields:
                    raise TooLargeError(f"a {kind.name} with more than max_fields, {self._max_fields}, fields in it")
                if found % _AT_A_STRETCH == 0:
                    yield
                field = descriptor.fields_by_number.get(number)
                if field is not None and field.message_type is not None:
                    waiting.append((start, stop, field.message_type))

    def _item(self, at: int, end: int) -> Generator[None, None, None]:
        """Decode a metric or log record. A very large one, and one that is nested too deeply, is forwarded as it is,
        only its data points are counted."""
        yield
        if self._signal is Signal.LOGS:
            self.items += 1
            self._decoded(LogRecord, at, end)
            return
        metric = self._decoded(Metric, at, end)
        if metric is not None:
            kind = metric.WhichOneof("data")
            found = len(getattr(metric, kind).data_points) if kind else 0
            self.items += found
            self._elements += found
            return
        for number, _, start, stop in fields(self._data, at, end):
            if number in _METRIC_KINDS:
                yield from self._points(start, stop)

    def _decoded(self, kind: type[M], at: int, end: int) -> M | None:
        if end - at > _LIGHT:
            return None
        try:
            return decoded(kind, self._data[at:end])
        except TooDeepError:
            return None
        except DecodeError as error:
            raise BadDataError(f"a {kind.DESCRIPTOR.name} in it is malformed: {error}") from None

    def _points(self, at: int, end: int) -> Generator[None, None, None]:
        for number, _, _, _ in fields(self._data, at, end):
            if self.full_stretch():
                yield
            self.items += number == _DATA_POINTS


# --- cutting ---------------------------------------------------------------------------------------------------------


def parts(data: bytes) -> Iterator[RequestPart]:
    """Cut a trace request that ``count`` has passed into requests of some 2,048 resources, scopes and spans and, if no
    span is larger, about a MiB. Together they have the same content.

    Resource and scope, and whatever else is beside the spans, are repeated in every part that needs them.
    """
    cut = _Cut(b"")
    for number, tag, start, end in fields(data, 0, len(data)):
        if number != _RESOURCES:
            cut.add(data[tag:end], 1)
            continue
        for resource in _resource_parts(data, start, end):
            cut.add(_wrapped(_RESOURCES, resource.data), resource.elements, resource.spans)
            if cut.full:
                yield cut.take()
    if not cut.empty:
        yield cut.take()


def _resource_parts(data: bytes, at: int, end: int) -> Iterator[RequestPart]:
    found = list(fields(data, at, end))
    cut = _Cut(b"".join(data[tag:stop] for number, tag, _, stop in found if number != _CHILDREN))
    for number, _, start, stop in found:
        if number == _CHILDREN:
            for scope in _scope_parts(data, start, stop):
                cut.add(_wrapped(_CHILDREN, scope.data), scope.elements, scope.spans)
                if cut.full:
                    yield cut.take()
    if not cut.empty or not cut.taken:
        yield cut.take()


def _scope_parts(data: bytes, at: int, end: int) -> Iterator[RequestPart]:
    found = list(fields(data, at, end))
    cut = _Cut(b"".join(data[tag:stop] for number, tag, _, stop in found if number != _CHILDREN))
    for number, tag, _, stop in found:
        if number == _CHILDREN:
            cut.add(data[tag:stop], 1, 1)
            if cut.full:
                yield cut.take()
    if not cut.empty or not cut.taken:
        yield cut.take()


class _Cut:
    """Content collected for a part. ``head`` is repeated in each; parts are larger where it is large, so that all of
    them together do not take much more than the request."""

    def __init__(self, head: bytes) -> None:
        self.taken = False
        self._head = head
        self._max_bytes = max(_PART_BYTES, _HEADS_IN_PART * len(head))
        self._max_elements = _PART_ELEMENTS if len(head) <= _HEAVY_HEAD else MAX_ELEMENTS
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[bytes] = []
        self._elements, self._spans, self._size = 1, 0, 0

    def add(self, piece: bytes, elements: int, spans: int = 0) -> None:
        self._pieces.append(piece)
        self._elements += elements
        self._spans += spans
        self._size += len(piece)

    @property
    def empty(self) -> bool:
        return not self._pieces

    @property
    def full(self) -> bool:
        return self._elements >= self._max_elements or self._size >= self._max_bytes

    def take(self) -> RequestPart:
        part = RequestPart(b"".join((self._head, *self._pieces)), self._spans, self._elements)
        self.taken = True
        self._clear()
        return part


def _wrapped(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    size, prefix = len(value), bytearray((number << 3 | _LENGTH_DELIMITED,))
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + value
