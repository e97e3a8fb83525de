"""A load as agents make it: recorded runs as model and tool spans, in traces whose root ends last, out of order.

46 % of the spans are tool calls, 46 % model calls, the rest roots of traces with six steps each. In half of the runs
only the root names the conversation. Spans arrive up to ``JITTER_S`` seconds after their end, one in fifty twice.
The same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

RUNS: Final = Path(__file__).parents[1] / "data" / "trajectories_sample.jsonl.gz"
JITTER_S: Final = 5.0
STEPS_PER_TRACE: Final = 6
BATCH: Final = 256
_TWICE: Final = 0.02
_START_S: Final = 1_700_000_000.0
_CONTENT_CHARS: Final = 2_000


class Load(NamedTuple):
    """Serialized requests in order of arrival, and how many spans and different tool calls are in them."""

    requests: list[bytes]
    spans: int
    steps: int


def recorded_load(*, seed: int = 0, copies: int = 2, jitter_s: float = JITTER_S, together: int = 40) -> Load:
    """The load.

    Parameters:
        copies: conversations made of each recorded run.
        jitter_s: seconds between the end of a span and its arrival, at most.
        together: runs under way at the same time.
    """
    chance = random.Random(seed)
    with gzip.open(RUNS, "rt", encoding="utf-8") as file:
        runs = [json.loads(line) for line in file] * copies
    arrivals: list[tuple[float, Span]] = []
    steps = 0
    free = [0.0] * together  # when each of the places is free for another run
    for number, run in enumerate(runs):
        place = min(range(together), key=free.__getitem__)
        spans = list(_spans(run, f"run-{number}", number % 2 == 0, _START_S + free[place], chance))
        steps += len(run["steps"])
        free[place] = spans[-1].end_time_unix_nano / 1e9 - _START_S + 1.0
        for span in spans:
            end = span.end_time_unix_nano / 1e9
            arrivals.append((end + chance.uniform(0.0, jitter_s), span))
            if chance.random() < _TWICE:
                arrivals.append((end + chance.uniform(0.0, 2 * jitter_s), span))
    arrivals.sort(key=lambda arrival: arrival[0])
    ordered = [span for _, span in arrivals]
    requests = [_request(ordered[at : at + BATCH]) for at in range(0, len(ordered), BATCH)]
    return Load(requests, len(ordered), steps)


def _spans(run: Mapping[str, Any], name: str, named: bool, at: float, chance: random.Random) -> Iterator[Span]:
    """Spans of one run; the last one ends last."""
    for first in range(0, len(run["steps"]), STEPS_PER_TRACE):
        trace, root, started = chance.randbytes(16), chance.randbytes(8), at
        for step in run["steps"][first : first + STEPS_PER_TRACE]:
            thinking, working = chance.uniform(0.5, 3.0), chance.uniform(0.05, 1.0)
            model = {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": 900,
                "gen_ai.usage.output_tokens": 60,
            }  # fmt: skip
            yield _span(trace, root, chance, "chat gpt-5", model, at, thinking)
            at += thinking
            yield _tool(trace, root, chance, step, name if named else None, at, working)
            at += working
        yield _span(trace, b"", chance, "POST /chat", {"session.id": name}, started, at - started + 0.01, span_id=root)
        at += chance.uniform(1.0, 20.0)


def _tool(
    trace: bytes, root: bytes, chance: random.Random, step: Mapping[str, Any], conversation: str | None, at: float,
    seconds: float,
) -> Span:  # fmt: skip
    result = step.get("result")
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step["tool"],
        "gen_ai.tool.call.arguments": json.dumps(step.get("args"))[:_CONTENT_CHARS],
    }
    if result is not None:
        attributes["gen_ai.tool.call.result"] = (result if isinstance(result, str) else json.dumps(result))[
            :_CONTENT_CHARS
        ]
    if conversation is not None:
        attributes["gen_ai.conversation.id"] = conversation
    span = _span(trace, root, chance, f"execute_tool {step['tool']}", attributes, at, seconds)
    if step.get("outcome") == "error":
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _span(
    trace: bytes, parent: bytes, chance: random.Random, name: str, attributes: Mapping[str, Any], at: float,
    seconds: float, *, span_id: bytes = b"",
) -> Span:  # fmt: skip
    span = Span(
        trace_id=trace, span_id=span_id or chance.randbytes(8), parent_span_id=parent, name=name,
        start_time_unix_nano=round(at * 1e9), end_time_unix_nano=round((at + seconds) * 1e9),
    )  # fmt: skip
    for key, value in attributes.items():
        one = span.attributes.add(key=key)
        if isinstance(value, int):
            one.value.int_value = value
        else:
            one.value.string_value = value.encode("utf-8", "replace").decode()
    return span


def _request(spans: list[Span]) -> bytes:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "agents"
    group.scope_spans.add(spans=spans).scope.name = "load"
    return message.SerializeToString()
