"""Decodes bodies to serialized export requests: compression, OTLP/JSON. All pure functions."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import orjson
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from trajectory_guard_collector.errors import BadDataError, TooLargeError
from trajectory_guard_collector.gateway.receivers.json_fields import prepare, put_back
from trajectory_guard_collector.otlp.signals import Signal

try:
    import zstandard
except ImportError:
    zstandard = None  # type: ignore[assignment]

_SLICE: Final = 4_096
"""Input bytes for zlib at a time, so that it returns little unused input at the end of each small member."""
_PIECE: Final = 1 << 20
"""Output bytes of zlib at a time."""
_ZSTD_SLICE: Final = 256
"""Input bytes for zstd at a time, since nothing else bounds its output, which is up to 8 MiB at once."""
_GZIP_BITS: Final = 31
_SHOWN: Final = 1_000
"""Characters of the parser's message, which quotes values whole."""
_CUT: Final = "the data does not end where the body ends"
_ZSTD_WINDOW: Final = 8 << 20
"""Largest window over HTTP, RFC 9659."""
MAX_JSON_ELEMENTS: Final = 1_000_000
"""Braces, brackets and commas of a JSON request outside its strings; as many are decoded in a tenth of a second."""
_STRUCTURE: Final = (b"{", b"[", b",")
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_SURROGATES: Final = re.compile(
    rb"(?:\\\\)+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escaped backslashes, pairs of surrogates, and, as the group, halves of pairs."""
_REQUESTS: Final[Mapping[Signal, type[Message]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
}
_DAMAGED: tuple[type[Exception], ...] = (EOFError, zlib.error)


def from_json(signal: Signal, body: bytes) -> bytes:
    """OTLP/JSON as a serialized export request. Unknown members are ignored, as the specification asks.

    Raises:
        BadDataError: it is not JSON, or not an export request of this signal.
        TooLargeError: it has more objects, lists and members than are decoded at a stretch.
    """
    if _outside_strings(body) > MAX_JSON_ELEMENTS:
        raise TooLargeError(f"more than {MAX_JSON_ELEMENTS} objects, lists and members in one JSON request")
    value = _loads(body)
    if not isinstance(value, dict):
        raise BadDataError(f"not a valid {_name(signal)}: a JSON object is expected, got {type(value).__name__}")
    request = _REQUESTS[signal]()
    long_texts = prepare(value, request)
    try:
        ParseDict(value, request, ignore_unknown_fields=True)
    except ParseError as error:
        raise BadDataError(f"not a valid {_name(signal)}: {str(error)[:_SHOWN]}") from None
    put_back(request, long_texts)
    return request.SerializeToString()


def _loads(body: bytes) -> Any:
    """Decoded JSON. Halves of surrogate pairs become the replacement character, as in the OpenTelemetry Collector.

    JavaScript writes one where a limit of its SDK cuts a text off within an emoji. Such a request must not be
    refused permanently: its sender would drop all spans of the batch.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        mended = _SURROGATES.sub(lambda found: found[0] if found[1] is None else b"\\ufffd", body)
        if mended == body:
            raise BadDataError(f"not valid JSON: {error}") from None
    try:
        return orjson.loads(mended)
    except orjson.JSONDecodeError as error:
        raise BadDataError(f"not valid JSON: {error}") from None


def decompress(encoding: str, body: bytes, limit: int) -> bytes:
    """A body without its ``Content-Encoding``: gzip, deflate, zlib, zstd (if ``zstandard`` is installed), identity.

    Never holds much more than ``limit`` bytes of output, regardless of the size to which the body expands.

    Raises:
        BadDataError: unknown encoding, or the body is not in it.
        TooLargeError: more than ``limit`` bytes come out.
    """
    reader = _READERS.get(encoding)
    if reader is None:
        raise BadDataError(f"Content-Encoding {encoding!r} is not known; known: {', '.join(filter(None, _READERS))}")
    # No list of pieces: millions of them may have a byte each, and take forty.
    first, more, size = b"", BytesIO(), 0
    try:
        for piece in reader(body):
            size += len(piece)
            if size > limit:
                raise TooLargeError(f"body larger than max_request_body_size_mib, {limit} bytes, after decompression")
            if size == len(piece):
                first = piece
            else:
                more.write(piece)
    except _DAMAGED as error:
        raise BadDataError(f"not valid {encoding}: {error}") from None
    return first + more.getvalue() if size > len(first) else first


def _outside_strings(body: bytes) -> int:
    """Objects, lists and members of a JSON text, at least: counting ends where it is clear that there are too many.

    The decoder cannot be interrupted, and two bytes make a list. Text within strings does not count.
    """
    if sum(piece.count(mark) for piece in _slices(body, _PIECE) for mark in _STRUCTURE) <= MAX_JSON_ELEMENTS:
        return 0
    found = end = 0
    for text in _STRING.finditer(body):
        found += sum(body.count(mark, end, text.start()) for mark in _STRUCTURE)
        end = text.end()
        if found > MAX_JSON_ELEMENTS:
            break
    return found + sum(body.count(mark, end) for mark in _STRUCTURE)


def _name(signal: Signal) -> str:
    return _REQUESTS[signal].DESCRIPTOR.name


def _whole(body: bytes) -> Iterator[bytes]:
    yield body


def _gzip(body: bytes) -> Iterator[bytes]:
    """One member after the other, with zeros between them as padding."""
    member = zlib.decompressobj(_GZIP_BITS)
    for rest in _slices(body, _SLICE):
        while rest := rest.lstrip(b"\0") if member.eof else rest:
            if member.eof:
                member = zlib.decompressobj(_GZIP_BITS)
            yield member.decompress(rest, _PIECE)
            rest = member.unconsumed_tail or member.unused_data
    if not member.eof:
        raise EOFError(_CUT)


def _zlib(body: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    for rest in _slices(body, _SLICE):
        while rest:
            if stream.eof:  # given more, it would copy all that it has been given since its end, each time
                raise EOFError(_CUT)
            yield stream.decompress(rest, _PIECE)
            rest = stream.unconsumed_tail or stream.unused_data
    if not stream.eof:
        raise EOFError(_CUT)


def _zstd(body: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)  # of all frames: one each takes 25 µs
    frame = decompressor.decompressobj()
    for rest in _slices(body, _ZSTD_SLICE):
        while rest:
            frame = decompressor.decompressobj() if frame.eof else frame
            yield frame.decompress(rest)
            rest = frame.unused_data
    if not frame.eof:
        raise EOFError(_CUT)


def _slices(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


_READERS: Final[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
    "": _whole,
    "identity": _whole,
    "gzip": _gzip,
    "deflate": _zlib,
    "zlib": _zlib,
}
if zstandard is not None:
    _DAMAGED += (zstandard.ZstdError,)
    _READERS["zstd"] = _zstd
