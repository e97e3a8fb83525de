"""Agents that send spans with the OpenTelemetry SDK: some stuck, some not. What they do is counted in the tests by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context

SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS
MODEL_TOKENS = 60_000
MODEL_USD = 0.25
REWORDED = ("return policy", "policy for returns", "what is the return policy", "returns policy", "the policy on returns",
            "return policies")  # fmt: skip


class Call(NamedTuple):
    """A tool call and what came back; ``model`` says whether a priced model call led to it."""

    tool: str
    args: dict[str, Any]
    result: str
    model: bool = False


def stubborn(calls: int, *, model: bool = False) -> list[Call]:
    """The same call again and again."""
    return [Call("search", {"query": "return policy"}, "No results found", model)] * calls


def rewording() -> list[Call]:
    """The same question in other words."""
    return [Call("lookup", {"query": words}, "No results found") for words in REWORDED]


def reading(pages: int, first: int = 1) -> list[Call]:
    """Something new with each call."""
    return [
        Call("read_page", {"page": page}, f"Text of page {page}: {page * page}") for page in range(first, first + pages)
    ]


def conversation(
    service: str, name: str, agent: str, calls: Sequence[Call], *, start_s: float = 0.0
) -> list[ReadableSpan]:
    """The spans of one run, with times of their own, a second a call."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("agent")
    about = {"gen_ai.conversation.id": name, "gen_ai.agent.name": agent}
    begin = START_NS + round(start_s * SECOND_NS)
    run = tracer.start_span(f"invoke_agent {agent}", start_time=begin, attributes={
        **about, "gen_ai.operation.name": "invoke_agent",
    })  # fmt: skip
    inside = set_span_in_context(run)
    for at, call in enumerate(calls):
        now = begin + at * SECOND_NS
        if call.model:
            chat = tracer.start_span("chat", inside, start_time=now, attributes={
                **about, "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": MODEL_TOKENS - 100,
                "gen_ai.usage.output_tokens": 100, "gen_ai.usage.cost": MODEL_USD,
            })  # fmt: skip
            chat.end(now + SECOND_NS // 4)
        tool = tracer.start_span(f"execute_tool {call.tool}", inside, start_time=now + SECOND_NS // 3, attributes={
            **about, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": f"{name}-{start_s}-{at}", "gen_ai.tool.call.arguments": json.dumps(call.args),
            "gen_ai.tool.call.result": call.result,
        })  # fmt: skip
        tool.end(now + SECOND_NS // 2)
    run.end(begin + len(calls) * SECOND_NS)
    return list(memory.get_finished_spans())


def exporter(grpc: str | None = None, http: str | None = None, **options: Any) -> SpanExporter:
    """The SDK's exporter for one of the two protocols."""
    if grpc is not None:
        return GrpcExporter(endpoint=grpc, insecure=True, **options)
    return HttpExporter(endpoint=f"http://{http}/v1/traces", **options)


def send(through: SpanExporter, *conversations: Sequence[ReadableSpan]) -> int:
    """Export conversations, one request each; the number of spans."""
    for spans in conversations:
        assert through.export(spans).name == "SUCCESS"
    return sum(map(len, conversations))


def several(count: int, service: str, agent: str, calls: Sequence[Call]) -> list[list[ReadableSpan]]:
    """The same run in several conversations."""
    return [conversation(service, f"{service}-{number}", agent, calls) for number in range(count)]


def trace_ids(*conversations: Sequence[ReadableSpan]) -> set[str]:
    spans = itertools.chain(*conversations)
    return {format(span.context.trace_id, "032x") for span in spans if span.context is not None}
