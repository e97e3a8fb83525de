"""Made-up telemetry of any size, written fast: OTLP JSON lines as the OpenTelemetry Collector's file exporter does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

SPANS_PER_TRACE = 100
LOOP_EVERY = 100
TRACES_PER_CONVERSATION = 4
TRACES_PER_REQUEST = 2
EPOCH_NS = 1_790_000_000_000_000_000
DIALECTS = ("semconv", "openinference", "langfuse", "openllmetry")

_RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "synthetic"}}]}
_PROMPT = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Please look into the order. " * 350}]}])


def synthetic_spans(n: int, path: Path) -> None:
    """Write ``n`` spans: 10 % tool spans in four dialects, 1 % of the traces loop on one call.

    A trace has 100 spans (an agent, ten model calls, ten tool calls, the rest HTTP). Every other trace names a
    conversation, which four traces share. Children stand before their parents; the traces of a request are interleaved.
    """
    with path.open("w", encoding="utf-8") as file:
        left, first = n, 0
        while left > 0:
            traces = [list(_trace(first + at)) for at in range(TRACES_PER_REQUEST)]
            spans = [span for together in zip(*traces, strict=True) for span in together][:left]
            left -= len(spans)
            first += TRACES_PER_REQUEST
            file.write(_request(spans))


def loops_in(n: int) -> int:
    """How many traces of a file of ``n`` spans loop (``n`` in whole requests)."""
    return -(-n // SPANS_PER_TRACE // LOOP_EVERY)


def _request(spans: list[str]) -> str:
    scope = '{"name":"synthetic","version":"1"}'
    return f'{{"resourceSpans":[{{"resource":{json.dumps(_RESOURCE)},"scopeSpans":[{{"scope":{scope},"spans":[{",".join(spans)}]}}]}}]}}\n'


def _trace(number: int) -> Iterator[str]:
    trace, dialect = f"{number + 1:032x}", DIALECTS[number % len(DIALECTS)]
    loops = number % LOOP_EVERY == 0
    root = f"{number + 1:08x}{0:08x}"
    start = EPOCH_NS + number * 1_000_000_000
    for at in range(1, SPANS_PER_TRACE):
        attributes = _http(at)
        if at % 10 == 1:
            attributes = _chat()
        elif at % 10 == 2:
            attributes = _tool(dialect, 0 if loops else at, number)
        yield _span(trace, f"{number + 1:08x}{at:08x}", root, f"step {at}", start + at * 10_000_000, attributes)
    yield _span(trace, root, "", "invoke_agent support", start, _agent(number))


def _span(trace: str, span: str, parent: str, name: str, start: int, attributes: dict[str, str]) -> str:
    listed = ",".join(
        f'{{"key":"{key}","value":{{"stringValue":{json.dumps(value)}}}}}' for key, value in attributes.items()
    )
    end = start + (8_000_000 if parent else 1_000_000_000)
    return (
        f'{{"traceId":"{trace}","spanId":"{span}","parentSpanId":"{parent}","name":"{name}","kind":1,'
        f'"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","attributes":[{listed}],"status":{{}}}}'
    )


def _agent(number: int) -> dict[str, str]:
    named = {"gen_ai.conversation.id": f"conversation-{number // TRACES_PER_CONVERSATION}"} if number // 4 % 2 else {}
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support", **named}


def _chat() -> dict[str, str]:
    return {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small", "gen_ai.input.messages": _PROMPT}


def _http(at: int) -> dict[str, str]:
    return {"http.request.method": "GET", "url.full": f"https://api.example.com/v1/things/{at}", "note": "x" * 400}


def _tool(dialect: str, at: int, number: int) -> dict[str, str]:
    args = json.dumps({"order": at, "customer": "c" * 40})
    result = json.dumps({"order": at, "kind": "retail", "lines": ["item"] * 20, "checksum": at * 7919})
    if dialect == "semconv":
        return {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup",
            "gen_ai.tool.call.id": f"call_{number}_{at}" if at else "",
            "gen_ai.tool.call.arguments": args, "gen_ai.tool.call.result": result,
        }  # fmt: skip
    if dialect == "openinference":
        return {"openinference.span.kind": "TOOL", "tool.name": "lookup", "input.value": args, "output.value": result}
    if dialect == "langfuse":
        return {
            "langfuse.observation.type": "tool", "langfuse.observation.input": args,
            "langfuse.observation.output": result,
        }  # fmt: skip
    return {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "lookup", "traceloop.entity.input": args,
        "traceloop.entity.output": result,
    }  # fmt: skip
