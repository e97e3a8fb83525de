"""What a gate reads from messages stays out of telemetry where the operator keeps content out of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard import apply_guard
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import NUDGED_THEN_STOPPED, TASK, agent_builder, new_board, nudges, outline, repeats

CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
CONTENT = {"gen_ai.tool.call.arguments": '{"query": "hours"}', "gen_ai.tool.call.result": "Open from nine to five."}
SECRET = "return policy"


def written_by(caplog: Any, before: Mapping[str, Any] | None) -> tuple[str, str]:
    """Telemetry of a looping run after a tool span with these attributes, and the nudge that the agent has read."""
    board, exporter, provider = new_board(), InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    if before is not None:
        tracer.start_span("execute_tool search", attributes=CALL | before).end()
    graph = apply_guard(agent_builder(repeats()), board=board).compile()
    with caplog.at_level(logging.DEBUG, "trajectory_guard"), tracer.start_as_current_span("request"):
        messages = graph.invoke(TASK)["messages"]
    assert outline(messages) == NUDGED_THEN_STOPPED
    spans = [f"{span.name} {dict(span.attributes or {})}" for span in exporter.get_finished_spans()]
    assert any("trajectory_guard.intervention" in span for span in spans)
    return "\n".join([*spans, *caplog.messages]), nudges(messages)[0].content


@pytest.fixture(autouse=True)
def _no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)


def test_reasons_quote_what_spans_show(caplog):
    telemetry, nudge = written_by(caplog, CONTENT)
    assert SECRET in telemetry
    assert SECRET in nudge


ARGUMENTS = {"gen_ai.tool.call.arguments": CONTENT["gen_ai.tool.call.arguments"]}


@pytest.mark.parametrize("held", [{}, ARGUMENTS], ids=["nothing", "arguments"])
def test_reasons_quote_nothing_where_tool_spans_hold_not_all_content(caplog, held):
    telemetry, nudge = written_by(caplog, held)
    assert SECRET not in telemetry
    assert SECRET in nudge


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false"),
        ("TRACELOOP_TRACE_CONTENT", "false"),
        ("OPENINFERENCE_HIDE_OUTPUTS", "true"),
    ],
)
def test_reasons_quote_nothing_where_a_variable_switches_content_off(caplog, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    telemetry, nudge = written_by(caplog, None)
    assert SECRET not in telemetry
    assert SECRET in nudge


def test_without_spans_and_variables_reasons_are_whole(caplog):
    telemetry, _ = written_by(caplog, None)
    assert SECRET in telemetry
