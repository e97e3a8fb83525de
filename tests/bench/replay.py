"""``trajectory-guard replay`` on a recorded file: time per span, and whether memory grows with the file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import orjson

from tests.bench import shapes
from tests.bench.measure import Effort
from tests.bench.report import Row

CALLS_PER_TRACE = 8
SPANS_PER_LINE = 100
SMALLER = 10
FLAT = 1.5
BEYOND_WINDOW = 500_000  # in smaller files the window that puts spans in order is still filling up
_START_NS = 1_790_000_000_000_000_000
_RUSAGE_BYTES = 1 if sys.platform == "darwin" else 1_024


class Run(NamedTuple):
    """One replay: seconds by the wall and peak resident memory in bytes, interpreter and imports included."""

    seconds: float
    peak: int


def rows(effort: Effort) -> Iterator[Row]:
    """A file of ``effort.spans`` spans, beside one with a tenth of them."""
    with tempfile.TemporaryDirectory() as folder:
        small = _replay(Path(folder) / "small.jsonl", effort.spans // SMALLER)
        large = _replay(Path(folder) / "large.jsonl", effort.spans)
    name = f"replay, file of {effort.spans:,} spans"
    yield Row(f"{name}: per span", large.seconds / effort.spans * 1e6, "us")
    versus = f"at {effort.spans // SMALLER:,} spans"
    most = FLAT if effort.spans >= BEYOND_WINDOW else None
    yield Row(f"{name}: peak memory", large.peak, "bytes", small.peak, versus, most, True)


def _replay(file: Path, spans: int) -> Run:
    with file.open("wb") as out:
        for line in _lines(spans):
            out.write(line + b"\n")
    started = perf_counter()
    command = [sys.executable, "-m", "trajectory_guard.cli.main", "replay", "--json", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    file.unlink()
    return Run(seconds, usage.ru_maxrss * _RUSAGE_BYTES)


def _lines(spans: int) -> Iterator[bytes]:
    """Export requests of ``SPANS_PER_LINE`` spans, as the collector's file exporter writes them."""
    every = islice(_spans(), spans)
    while batch := list(islice(every, SPANS_PER_LINE)):
        scope = {"scope": {"name": "bench"}, "spans": batch}
        yield orjson.dumps({"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]})


def _spans() -> Iterator[dict[str, Any]]:
    """One trace after the other: distinct tool calls, each with a model call and an HTTP request, below an agent."""
    number = 0
    while True:
        conversation = f"conversation-{number}"
        identity: shapes.Attributes = [("gen_ai.conversation.id", conversation)]
        first = number
        for _ in range(CALLS_PER_TRACE):
            tool = shapes.semconv(conversation, number)
            chat: shapes.Attributes = [
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.usage.input_tokens", 900),
                ("gen_ai.usage.output_tokens", 40),
                *identity,
            ]
            request = shapes.http(conversation, number)
            yield _span(first, 3 * number + 1, "chat gpt", chat)
            yield _span(first, 3 * number + 2, request.name, request.attributes)
            yield _span(first, 3 * number + 3, tool.name, tool.attributes)
            number += 1
        agent: shapes.Attributes = [("gen_ai.operation.name", "invoke_agent"), *identity]
        yield _span(first, 0, "invoke_agent support", agent)


def _span(trace: int, number: int, name: str, attributes: shapes.Attributes) -> dict[str, Any]:
    start = _START_NS + (3 * trace + number) * 1_000_000
    root = f"{(trace + 1) << 32:016x}"
    span = {
        "traceId": f"{trace + 1:032x}",
        "spanId": f"{((trace + 1) << 32) + number:016x}",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 500_000),
        "attributes": [{"key": key, "value": _value(value)} for key, value in attributes],
    }
    return span if number == 0 else {**span, "parentSpanId": root}


def _value(value: Any) -> dict[str, Any]:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}
