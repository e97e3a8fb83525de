"""Reading recorded telemetry: OTLP as JSON or protobuf, and step lines; plain or gzip-compressed; told by content."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from trajectory_guard.core.answers import is_empty_result
from trajectory_guard.core.fingerprints import args_hash, parse_json
from trajectory_guard.core.masking import result_hash
from trajectory_guard.core.steps import EMPTY, ERROR, OUTCOMES, SUCCESS, Evidence, StepRecord, Usage
from trajectory_guard.dialects.results import as_text
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.otlp import spans_from_json

MAX_LINE_BYTES: Final = 256 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"


class InputError(ValueError):
    """Input that cannot be read: names the file, the line where there is one, and the reason."""

    def __init__(self, source: str, reason: str, line: int | None = None) -> None:
        where = source if line is None else f"{source}:{line}"
        super().__init__(f"{where}: {reason}")


class Recorded(NamedTuple):
    """One recorded trajectory: its id and its steps in input order."""

    id: str
    steps: list[StepRecord]


@dataclass
class Sink:
    """Where a reader reports what it could not read; reading goes on."""

    errors: list[InputError] = field(default_factory=list)
    progress: Callable[[int], None] = lambda count: None

    def fail(self, source: str, reason: str, line: int | None = None) -> None:
        """Record one error."""
        self.errors.append(InputError(source, reason, line))


def read(path: str, sink: Sink) -> Iterator[SpanView | Recorded]:
    """Everything in one file (``-`` is standard input), in order; problems go to ``sink``."""
    name = "<stdin>" if path == "-" else path
    try:
        with _open(path) as stream:
            yield from _read_stream(stream, name, sink)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        sink.fail(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _open(path: str) -> IO[bytes]:
    stream: Any = sys.stdin.buffer if path == "-" else Path(path).open("rb")  # noqa: SIM115  closed by read()
    if stream.peek(2)[:2] == _GZIP:
        return cast("IO[bytes]", io.BufferedReader(cast("Any", gzip.GzipFile(fileobj=stream))))
    return cast("IO[bytes]", stream)


def _read_stream(stream: IO[bytes], name: str, sink: Sink) -> Iterator[SpanView | Recorded]:
    head = stream.peek(64)[:64] if isinstance(stream, io.BufferedReader) else b""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        sink.fail(name, "is empty")
    elif text[:1] in (b"{", b"["):
        yield from _read_json(stream, name, sink)
    elif head[:1] == b"\n":
        yield from _read_protobuf(stream.read(), name, sink)
    else:
        sink.fail(name, "is neither JSON (OTLP or step lines) nor an OTLP protobuf message", 1)


def _read_json(stream: IO[bytes], name: str, sink: Sink) -> Iterator[SpanView | Recorded]:
    """JSON lines; or one JSON document over several lines, recognised by a first line that is not complete."""
    for number, line in enumerate(stream, 1):
        sink.progress(len(line))
        if not line.strip():
            continue
        try:
            value = parse_json(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            if number == 1:
                yield from _read_document(line + stream.read(), name, sink, error)
                return
            sink.fail(name, f"not valid JSON: {error}", number)
            continue
        yield from _items(value, name, number, sink)


def _read_document(data: bytes, name: str, sink: Sink, first: Exception) -> Iterator[SpanView | Recorded]:
    try:
        value = parse_json(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        sink.fail(name, f"not valid JSON: {error or first}", 1)
        yield from _read_rest(data, name, sink)
        return
    yield from _items(value, name, 1, sink)


def _read_rest(data: bytes, name: str, sink: Sink) -> Iterator[SpanView | Recorded]:
    """What can still be read of JSON lines whose first line is broken."""
    for number, line in enumerate(data.splitlines()[1:], 2):
        if line.lstrip()[:1] != b"{":
            continue
        try:
            value = parse_json(line.decode("utf-8"))
        except (ValueError, RecursionError):
            return  # not JSON lines at all: the first error says it
        yield from _items(value, name, number, sink)


def _items(value: Any, name: str, line: int, sink: Sink) -> Iterator[SpanView | Recorded]:
    values = value if isinstance(value, list) else [value]
    for one in values:
        if not isinstance(one, Mapping):
            sink.fail(name, f"expected an object, got {type(one).__name__}", line)
        elif "steps" in one:
            yield from _recorded(one, name, line, sink)
        elif "resourceSpans" in one or "resource_spans" in one:
            try:
                yield from spans_from_json(one)
            except (ValueError, TypeError, AttributeError) as error:
                sink.fail(name, f"not a valid OTLP trace request: {error}", line)
        else:
            keys = ", ".join(list(map(str, one))[:5]) or "no keys"
            sink.fail(name, f"neither 'resourceSpans' (OTLP) nor 'steps' (a trajectory); has {keys}", line)


def _recorded(value: Mapping[str, Any], name: str, line: int, sink: Sink) -> Iterator[Recorded]:
    identifier, steps = str(value.get("id", f"{name}:{line}")), value["steps"]
    if not isinstance(steps, list):
        sink.fail(name, f"'steps' must be a list, got {type(steps).__name__}", line)
        return
    found = []
    for index, step in enumerate(steps):
        if not isinstance(step, Mapping) or not isinstance(step.get("tool"), str):
            sink.fail(name, f"steps[{index}]: 'tool' is missing or not text", line)
            continue
        try:
            found.append(_step(step, identifier, index))
        except (TypeError, ValueError) as error:
            sink.fail(name, f"steps[{index}]: {error}", line)
    yield Recorded(identifier, found)


def _step(step: Mapping[str, Any], trajectory: str, index: int) -> StepRecord:
    raw = step.get("result")
    result = raw if raw is None or isinstance(raw, str) else as_text(raw)
    args = step.get("args")
    outcome = step.get("outcome") or (EMPTY if result is not None and is_empty_result(result) else SUCCESS)
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome {outcome!r} is none of {', '.join(OUTCOMES)}")
    known = (
        Evidence.NAME_ONLY
        if args is None
        else Evidence.FULL
        if result is not None or outcome == ERROR
        else Evidence.NO_RESULT
    )
    return StepRecord(
        step_id=str(step.get("step_id") or f"{trajectory}#{index}"),
        trajectory_id=trajectory,
        tool_name=step["tool"],
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(outcome, result),
        outcome_type=outcome,
        agent_id=step.get("agent") or None,
        timestamp=float(step.get("t") or 0.0),
        duration=float(step.get("dur") or 0.0),
        args=args,
        result=result,
        evidence=known,
        usage=_usage(step),
        batch=str(step["batch"]) if step.get("batch") is not None else None,
        turn=str(step["turn"]) if step.get("turn") is not None else None,
        thought=step.get("thought") or None,
    )


def _usage(step: Mapping[str, Any]) -> Usage | None:
    tokens, cost = step.get("tokens"), step.get("cost")
    return Usage(int(tokens or 0), 0, float(cost or 0.0)) if tokens or cost else None


def _read_protobuf(data: bytes, name: str, sink: Sink) -> Iterator[SpanView]:
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        sink.fail(name, f"looks like protobuf; reading it needs {error.name}: pip install 'trajectory-guard[otlp]'")
        return
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(data)
        yield from spans_from_json(MessageToDict(request, use_integers_for_enums=True))
    except (DecodeError, ValueError) as error:
        sink.fail(name, f"not a valid OTLP protobuf message: {error}")
