"""OTLP protobuf files: requests one after the other, bare or each with its length before it.

The layout is detected by content: bare (a request, or several concatenated, which is the same), four bytes big-endian
before each message (the OpenTelemetry Collector's file exporter with ``format: proto`` or with compression), and a
varint before each message (``writeDelimitedTo``). See the README of the Collector's ``fileexporter``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import IO, Any, Final

from trajectory_guard.cli.recordings.diagnostics import Diagnostics, Limits
from trajectory_guard.cli.recordings.streams import ZSTD_MAGIC, MissingLibraryError, zstd_decompress
from trajectory_guard.extras import missing

Decode = Callable[[bytes], Mapping[str, Any]]
_RESOURCE_SPANS: Final = 0x0A
_SPANS: Final = 0x12
_FIRST_FIELDS: Final = (0x0A, 0x12, 0x1A)
_MAX_VARINT_BYTES: Final = 10


class Framing(Enum):
    """The kind of length prefix before each message."""

    BARE = "nothing"
    FOUR_BYTES = "its length in four bytes, big-endian"
    VARINT = "its length as a varint"


class _BrokenError(ValueError):
    """The bytes are no protobuf, or end in the middle, after ``partial``."""

    def __init__(self, reason: str, partial: bytes = b"") -> None:
        super().__init__(reason)
        self.partial = partial


def framing(head: bytes) -> Framing | None:
    """How messages are separated in a file that starts so; None if it holds no OTLP trace messages."""
    if _looks_like_request(head, None):
        return Framing.BARE
    if _looks_like_message(head[4:], int.from_bytes(head[:4], "big")):
        return Framing.FOUR_BYTES
    try:
        size = _varint(io.BytesIO(head))
    except _BrokenError:
        return None
    return Framing.VARINT if _looks_like_request(head[_varint_bytes(size) :], size) else None


def _looks_like_message(data: bytes, size: int) -> bool:
    return data[:1] == b"{" or data[:4] == ZSTD_MAGIC or _looks_like_request(data, size)


def _looks_like_request(data: bytes, size: int | None) -> bool:
    """Whether ``data`` begins a request of ``size`` bytes whose first field is a resource's spans."""
    if data[:1] != bytes([_RESOURCE_SPANS]):
        return False
    try:
        inner = _varint(io.BytesIO(data[1:]))
    except _BrokenError:
        return False
    start = 1 + _varint_bytes(inner)
    fits = size is None or start + inner <= size
    return fits and (inner == 0 or start >= len(data) or data[start] in _FIRST_FIELDS)


def read_protobuf(
    stream: IO[bytes], framed: Framing, name: str, diagnostics: Diagnostics, limits: Limits
) -> Iterator[Mapping[str, Any] | bytes]:
    """Decoded requests, one resource at a time; JSON messages within a framed file come as bytes.

    Errors name the byte offset of the message.
    """
    decode = _decoder(name, diagnostics)
    if decode is None:
        return
    if framed is Framing.BARE:
        yield from _resources(stream, 0, decode, name, diagnostics, limits)
        return
    counted = _Offset(stream)
    while True:
        start = counted.offset
        try:
            size = _four_bytes(counted) if framed is Framing.FOUR_BYTES else _optional_varint(counted)
            if size is None:
                return
            message = _exactly(counted, size, limits)
        except _BrokenError as error:
            diagnostics.fail(name, f"byte {start}: {error}")
            return
        yield from _message(message, start, decode, name, diagnostics, limits)


def _message(
    data: bytes, start: int, decode: Decode, name: str, diagnostics: Diagnostics, limits: Limits
) -> Iterator[Mapping[str, Any] | bytes]:
    try:
        data = zstd_decompress(data, limits.document_bytes) if data[:4] == ZSTD_MAGIC else data
    except MissingLibraryError:
        raise
    except ValueError as error:
        diagnostics.fail(name, f"message at byte {start}: {error}")
        return
    if data[:1] == b"{":
        yield data
    else:
        yield from _resources(io.BytesIO(data), start, decode, name, diagnostics, limits)


def _resources(
    stream: IO[bytes],
    offset: int,
    decode: Decode,
    name: str,
    diagnostics: Diagnostics,
    limits: Limits,
) -> Iterator[Mapping[str, Any]]:
    """The ``ResourceSpans`` of bare requests; what is whole in the last one if the bytes end within it."""
    counted = _Offset(stream, offset)
    while tag := counted.read(1):
        start = counted.offset - 1
        try:
            if tag[0] != _RESOURCE_SPANS:
                raise _BrokenError(f"not a valid OTLP trace message (unexpected tag {tag[0]})")
            data = _exactly(counted, _varint(counted), limits)
        except _BrokenError as error:
            diagnostics.fail(name, f"byte {start}: {error}")
            if error.partial:
                yield from _decoded(_whole_part(error.partial, 2), start, decode, name, diagnostics)
            return
        yield from _decoded(data, start, decode, name, diagnostics)


def _decoded(
    data: bytes, start: int, decode: Decode, name: str, diagnostics: Diagnostics
) -> Iterator[Mapping[str, Any]]:
    try:
        yield {"resourceSpans": [decode(data)]}
    except ValueError as error:
        diagnostics.fail(name, f"byte {start}: not a valid OTLP protobuf message: {error}")


def _decoder(name: str, diagnostics: Diagnostics) -> Decode | None:
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
    except ImportError as error:
        diagnostics.fail(name, missing("looks like protobuf; reading it", error, "cli"))
        return None

    def decode(data: bytes) -> Mapping[str, Any]:
        try:
            return MessageToDict(ResourceSpans.FromString(data), use_integers_for_enums=True)
        except DecodeError as error:
            raise ValueError(str(error)) from None

    return decode


# --- wire format ---------------------------------------------------------------------------------------------


class _Offset:
    """Reads and counts."""

    def __init__(self, stream: IO[bytes], offset: int = 0) -> None:
        self._stream, self.offset = stream, offset

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.offset += len(data)
        return data


def _four_bytes(stream: Any) -> int | None:
    data: bytes = stream.read(4)
    if data and len(data) < 4:
        raise _BrokenError("ends within a length: truncated")
    return int.from_bytes(data, "big") if data else None


def _varint(stream: Any) -> int:
    value = _optional_varint(stream)
    if value is None:
        raise _BrokenError("ends early: truncated")
    return value


def _optional_varint(stream: Any) -> int | None:
    value: int = 0
    for at in range(_MAX_VARINT_BYTES):
        byte: bytes = stream.read(1)
        if not byte:
            if at == 0:
                return None
            break
        value |= (byte[0] & 0x7F) << (7 * at)
        if byte[0] < 0x80:
            return value
    raise _BrokenError("ends within a length: truncated or no protobuf")


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _encoded_varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _exactly(stream: Any, size: int, limits: Limits) -> bytes:
    if size > limits.document_bytes:
        raise _BrokenError(f"a message of {size} bytes is more than --max-document-mb allows, or this is no OTLP file")
    data: bytes = stream.read(size)
    if len(data) < size:
        raise _BrokenError(f"a message of {size} bytes ends after {len(data)}: truncated", data)
    return data


def _whole_part(data: bytes, depth: int) -> bytes:
    """A truncated ``ResourceSpans`` without its last, incomplete span."""
    stream, end = io.BytesIO(data), 0
    while True:
        try:
            tag = _optional_varint(stream)
            size = _varint(stream)
        except _BrokenError:
            return data[:end]
        body = stream.tell()
        if tag is None or body + size > len(data):
            break
        end = body + size
        stream.seek(end)
    if tag == _SPANS and depth > 1:
        inner = _whole_part(data[body:], depth - 1)
        return data[:end] + bytes([_SPANS]) + _encoded_varint(len(inner)) + inner
    return data[:end]
