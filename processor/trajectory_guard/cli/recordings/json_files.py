"""JSON files of any size: JSON lines, one document over many lines, and what can still be read of broken ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any, Final, NamedTuple

import orjson

from trajectory_guard.cli.recordings.diagnostics import MIB, Diagnostics, Limits
from trajectory_guard.cli.recordings.json_stream import BOM, load_ijson, read_in_pieces
from trajectory_guard.cli.recordings.streams import BLANK, MissingLibraryError, starts_json
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.extras import install

STREAM_BYTES: Final = 32 * MIB
"""Values larger than this are read in pieces if ``ijson`` is installed."""
_TOKEN: Final = re.compile(r'"(?:resourceSpans|resource_spans|scopeSpans|scope_spans|spans|steps)"\s*:\s*\[|'
                           r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)  # fmt: skip
_OBJECT: Final = b'{"'
"""How an object begins that a program has written into a line of a log."""
_OTLP: Final = frozenset(("resourceSpans", "resource_spans"))
_CLOSING: Final = {"{": "}", "[": "]"}


class Value(NamedTuple):
    """A decoded JSON value and the line it starts on, None if that is not known."""

    value: Any
    line: int | None


class _Line(NamedTuple):
    number: int
    data: bytes
    whole: bool
    """False if the line is longer than allowed: ``data`` is its beginning."""


def read_json(
    stream: IO[bytes], name: str, diagnostics: Diagnostics, limits: Limits, *, logged: bool = False
) -> Iterator[Value]:
    """Values of JSON lines, or of one document, which is recognised by a first line that is not complete.

    Parameters:
        logged: the file may be a log that has other text before each object, and lines without one.
    """
    lines = _lines(stream, _whole_bytes(limits))
    first = next(lines, None)
    if first is None:
        if diagnostics.failures(name) == 0:
            diagnostics.fail(name, "is empty")
        return
    if not first.whole:
        yield from _oversized(first, stream, name, diagnostics, limits)
        return
    if logged and not starts_json(first.data):
        objects = _behind_prefixes(chain((first,), lines), name, diagnostics)
        if (start := next(objects, None)) is not None:
            yield from _read_lines(chain((start,), objects), stream, name, diagnostics, limits)
            return
    try:
        value = _decode(first.data)
    except (ValueError, RecursionError) as error:
        yield from _after_broken_first_line(first, error, lines, stream, name, diagnostics, limits)
        return
    yield Value(value, first.number)
    others = _behind_prefixes(lines, name, diagnostics) if logged else lines
    yield from _read_lines(others, stream, name, diagnostics, limits)


def decode_json(data: bytes, name: str, diagnostics: Diagnostics) -> Iterator[Value]:
    """The value in ``data``."""
    try:
        yield Value(_decode(data), None)
    except (ValueError, RecursionError) as error:
        diagnostics.fail(name, f"not valid JSON: {_reason(error)}")


def _decode(data: bytes) -> Any:
    """A JSON value. OTLP writes big integers as text, so only other values need the slower, exact decoder."""
    try:
        value = orjson.loads(data.removeprefix(BOM))
    except ValueError:
        value = None
    if isinstance(value, dict) and not _OTLP.isdisjoint(value):
        return value
    return parse_json(data.decode("utf-8-sig"))


def _whole_bytes(limits: Limits) -> int:
    """Size up to which a value is read whole."""
    return limits.document_bytes if load_ijson() is None else min(STREAM_BYTES, limits.document_bytes)


def _lines(stream: IO[bytes], limit: int) -> Iterator[_Line]:
    """Lines that are not blank."""
    number = 0
    while data := stream.readline(limit + 1):
        number += 1
        whole = len(data) <= limit or data.endswith(b"\n")
        if data.strip(BLANK):
            yield _Line(number, data, whole)


# --- JSON lines ----------------------------------------------------------------------------------------------


def _behind_prefixes(lines: Iterator[_Line], name: str, diagnostics: Diagnostics) -> Iterator[_Line]:
    """The lines of a log that have an object, each from there on; the others are counted."""
    plain = 0
    for line in lines:
        start = 0 if starts_json(line.data) else line.data.find(_OBJECT)
        if start < 0:
            plain += 1
        else:
            yield line._replace(data=line.data[start:])
    if plain:
        diagnostics.note(name, f"lines without a JSON object that were left out: {plain:,}")


def _read_lines(
    lines: Iterator[_Line], stream: IO[bytes], name: str, diagnostics: Diagnostics, limits: Limits
) -> Iterator[Value]:
    for line in lines:
        if not line.whole:
            yield from _oversized(line, stream, name, diagnostics, limits)
            return
        try:
            value = _decode(line.data)
        except (ValueError, RecursionError) as error:
            cut = "" if line.data.endswith(b"\n") else "; the file ends here: truncated?"
            diagnostics.fail(name, f"not valid JSON: {_reason(error)}{cut}", line.number)
            continue
        yield Value(value, line.number)


def _after_broken_first_line(
    first: _Line,
    error: Exception,
    lines: Iterator[_Line],
    stream: IO[bytes],
    name: str,
    diagnostics: Diagnostics,
    limits: Limits,
) -> Iterator[Value]:
    """Either one document over several lines, or JSON lines of which the first is broken."""
    second = next(lines, None)
    value = _telemetry_line(first, second)
    if second is not None and value is not None:
        diagnostics.fail(name, f"not valid JSON: {_reason(error)}", first.number)
        yield Value(value, second.number)
        yield from _read_lines(lines, stream, name, diagnostics, limits)
        return
    data = b"\n" * (first.number - 1) + first.data
    if second is not None:
        data += b"\n" * (second.number - first.number - 1) + second.data
    if not starts_json(first.data):
        diagnostics.fail(name, "is neither JSON (OTLP or step lines) nor an OTLP protobuf message", first.number)
        return
    limit = _whole_bytes(limits)
    data += stream.read(max(0, limit + 1 - len(data)))
    if len(data) > limit:
        yield from _in_pieces(data, stream, name, diagnostics, limits, first.number)
    else:
        yield from _document(data, first.number, name, diagnostics)


def _telemetry_line(first: _Line, second: _Line | None) -> Any:
    """The value of a second line that is complete in itself, None if it may be part of a document."""
    if second is None or not second.whole or first.data.strip(BLANK) == b"[":
        return None
    try:
        value = _decode(second.data)
    except (ValueError, RecursionError):
        return None
    known = isinstance(value, dict) and ("steps" in value or not _OTLP.isdisjoint(value))
    return value if known else None


# --- one document --------------------------------------------------------------------------------------------


def _document(data: bytes, line: int, name: str, diagnostics: Diagnostics) -> Iterator[Value]:
    try:
        value = _decode(data)
    except (ValueError, RecursionError) as error:
        diagnostics.fail(name, f"not valid JSON: {_reason(error)}", getattr(error, "lineno", line))
        value = salvage(data.decode("utf-8-sig", "replace"))
        if value is not None:
            yield Value(value, line)
        return
    yield Value(value, line)


def salvage(text: str) -> Any:
    """A document that ends too early, without the span or step in which it ends; None if nothing is whole."""
    opened: list[str] = []
    cut: tuple[int, str] | None = None
    for token in _TOKEN.finditer(text):
        kind = token.group()[-1] if token.group()[0] == '"' and len(token.group()) > 1 else token.group()
        if kind in "{[":
            opened.append(token.group() if kind == "[" else kind)
        elif kind in "}]" and opened:
            opened.pop()
            if kind == "}" and opened and len(opened[-1]) > 1:
                cut = token.end(), "".join(_CLOSING[one[-1]] for one in reversed(opened))
    if cut is None:
        return None
    try:
        return parse_json(text[: cut[0]] + cut[1])
    except (ValueError, RecursionError):
        return None


def _oversized(line: _Line, stream: IO[bytes], name: str, diagnostics: Diagnostics, limits: Limits) -> Iterator[Value]:
    yield from _in_pieces(line.data, stream, name, diagnostics, limits, line.number)


def _in_pieces(
    begun: bytes, stream: IO[bytes], name: str, diagnostics: Diagnostics, limits: Limits, line: int
) -> Iterator[Value]:
    """The rest of a file from a value on that is too large to read whole."""
    try:
        for value in read_in_pieces(begun, stream, name, diagnostics):
            yield Value(value, None)
    except MissingLibraryError:
        allowed = limits.document_bytes // MIB
        diagnostics.fail(
            name,
            f"a single JSON value of more than {allowed} MiB; raise --max-document-mb, or let ijson read it in pieces: "
            f"{install('cli')}",
            line,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (column {error.colno})"
    return str(error) or type(error).__name__
