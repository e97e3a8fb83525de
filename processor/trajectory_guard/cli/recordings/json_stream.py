"""One JSON value too large for memory, read in pieces with ``ijson``: OTLP requests of a few hundred spans each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import IO, Any, Final

from trajectory_guard.cli.recordings.diagnostics import MIB, Diagnostics
from trajectory_guard.cli.recordings.streams import MissingLibraryError

SPANS_PER_PIECE: Final = 512
_BUFFER_BYTES: Final = 16 * MIB
"""Buffer size: the parser rescans an unfinished text with every buffer; with small ones 400 MB take minutes."""
BOM: Final = b"\xef\xbb\xbf"
_GROUPS: Final = ("resourceSpans", "resource_spans")
_SCOPED: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_SCOPE: Final = ("scope", "instrumentationLibrary")

Events = Iterator[tuple[str, Any]]


def load_ijson() -> Any:
    """The library, None if it is not installed."""
    try:
        return importlib.import_module("ijson")
    except ImportError:
        return None


class _CutError(Exception):
    """The events ended within a value."""


class _Chained:
    """``begun``, then the rest of a stream."""

    def __init__(self, begun: bytes, stream: IO[bytes]) -> None:
        self._begun, self._stream = begun.removeprefix(BOM), stream

    def read(self, size: int = -1) -> bytes:
        if not self._begun:
            return self._stream.read(size)
        data = self._begun[:size] if size >= 0 else self._begun
        self._begun = self._begun[len(data) :]
        return data


def read_in_pieces(begun: bytes, stream: IO[bytes], name: str, diagnostics: Diagnostics) -> Iterator[Any]:
    """Values of a stream of JSON values: OTLP requests in pieces, other values whole.

    Spans that stand before their resource or scope are held until it is known. A syntax error is reported and ends
    the stream; everything before it is yielded.

    Raises:
        MissingLibraryError: ``ijson`` is not installed.
    """
    events = _events(_Chained(begun, stream), name, diagnostics)
    try:
        for event, value in events:
            if event == "start_map":
                yield from _top(events)
            elif event not in ("start_array", "end_array"):
                yield value
    except _CutError:
        return


def _events(source: _Chained, name: str, diagnostics: Diagnostics) -> Events:
    """Parser events; an error is reported and ends them."""
    ijson = load_ijson()
    if ijson is None:
        raise MissingLibraryError("ijson is not installed")
    try:
        yield from ijson.basic_parse(source, multiple_values=True, use_float=True, buf_size=_BUFFER_BYTES)
    except (ijson.JSONError, UnicodeDecodeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        diagnostics.fail(name, f"not valid JSON from here on, read up to the last whole span: {reason.strip()}")


def _top(events: Events) -> Iterator[Any]:
    """An object that is no part of another: the spans of a request are yielded as they are parsed."""
    plain: dict[str, Any] = {}
    streamed = False
    for key in _keys(events):
        if key in _GROUPS:
            streamed = True
            for _ in _objects(events):
                yield from _group(events)
        else:
            plain[key] = _build(events)
    if not streamed:
        yield plain


def _group(events: Events) -> Iterator[dict[str, Any]]:
    resource: Any = None
    held: list[dict[str, Any]] = []
    for key in _keys(events):
        if key == "resource":
            resource = _build(events)
        elif key in _SCOPED:
            for _ in _objects(events):
                for scoped in _scope(events):
                    if resource is None:
                        held.append(scoped)
                    else:
                        yield _request(resource, scoped)
        else:
            _build(events)
    for scoped in held:
        yield _request(resource, scoped)


def _request(resource: Any, scoped: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def _scope(events: Events) -> Iterator[dict[str, Any]]:
    scope: Any = None
    spans: list[Any] = []
    try:
        for key in _keys(events):
            if key == "spans":
                for _ in _objects(events):
                    spans.append(_build(events, started=True))
                    if scope is not None and len(spans) >= SPANS_PER_PIECE:
                        yield {"scope": scope, "spans": spans}
                        spans = []
            elif key in _SCOPE:
                scope = _build(events)
            else:
                _build(events)
    except _CutError:
        pass  # the spans before the cut are good
    if spans:
        yield {"scope": scope, "spans": spans}


# --- events --------------------------------------------------------------------------------------------------


def _keys(events: Events) -> Iterator[str]:
    """Keys of the object that has begun; the caller consumes the value of each."""
    for event, value in events:
        if event == "end_map":
            return
        yield value


def _objects(events: Events) -> Iterator[None]:
    """Objects of the list that is about to begin; the caller consumes each after its start. Other items are skipped."""
    event, _ = next(events, ("", None))
    if event != "start_array":
        _skip(event, events)
        return
    for event, _ in events:
        if event == "end_array":
            return
        if event == "start_map":
            yield
        else:
            _skip(event, events)


def _skip(event: str, events: Events) -> None:
    if event in ("start_map", "start_array"):
        _build(events, started=True, event=event)


def _build(events: Events, *, started: bool = False, event: str = "start_map") -> Any:
    """The next value, or the one that has just begun with ``event``."""
    builder, depth = load_ijson().ObjectBuilder(), 0
    if started:
        builder.event(event, None)
        depth = 1
    for kind, value in events:
        builder.event(kind, value)
        depth += (kind in ("start_map", "start_array")) - (kind in ("end_map", "end_array"))
        if depth == 0:
            return builder.value
    raise _CutError
