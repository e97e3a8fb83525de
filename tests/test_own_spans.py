"""The guard's own spans are no steps, whatever other vendors' processors write into them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.collector.in_process import RecordingBoard
from trajectory_guard import telemetry
from trajectory_guard.cli.doctor.capture import look_at
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.otel.sdk_spans import PUBLIC, view_of
from trajectory_guard.transcripts.assemble import extract_steps


class OpenInference(SpanProcessor):
    """As OpenInference's processors for Pydantic AI and OpenLIT: a span that names a tool becomes one of a tool call."""

    def on_end(self, span: Any) -> None:
        if telemetry.TOOL in span.attributes:
            added = {"openinference.span.kind": "TOOL", "tool.name": span.attributes[telemetry.TOOL]}
            span._attributes = {**span.attributes, **added}


def test_spans_of_the_guard_that_another_processor_turns_into_tool_calls_do_not_count() -> None:
    board, exporter, provider = RecordingBoard(), InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    guard = TrajectoryGuardProcessor(board=board, tracer_provider=provider)
    for one in (OpenInference(), guard, SimpleSpanProcessor(exporter)):
        provider.add_span_processor(one)
    tracer = provider.get_tracer("app")
    call = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": '{"q":"x"}',
        "gen_ai.tool.call.result": "We are closed on Mondays and open from Tuesday to Sunday.",
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"}
    with tracer.start_as_current_span("invoke_agent a", attributes=agent):
        for _ in range(7):
            with tracer.start_as_current_span("execute_tool search", attributes=call):
                pass

    spans = exporter.get_finished_spans()
    own = [span for span in spans if span.name == telemetry.SPAN_NAME]
    assert {(span.attributes or {})["openinference.span.kind"] for span in own} == {"TOOL"}
    assert [(span.attributes or {})[telemetry.STEP_INDEX] for span in own] == [2, 4]  # the nudge and the stop
    assert board.read("c").steps == 7
    views = [view_of(span, *PUBLIC.ended(span)[:3]) for span in spans]
    assert len(extract_steps(views)) == len(look_at(views).tools) == 7
