"""The span of an intervention names the first step of the loop alike, whether a gate or a span has found it."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gates.agents import TASK, agent_builder, new_board, repeats
from trajectory_guard import apply_guard, telemetry
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.fingerprints import args_hash, id_symbol
from trajectory_guard.core.steps import SUCCESS, StepRecord
from trajectory_guard.otel.publishing import publish


def first_steps(exporter: InMemorySpanExporter) -> set[object]:
    found = ((one.attributes or {}).get(telemetry.LOOP_FIRST_STEP) for one in exporter.get_finished_spans())
    return {one for one in found if one is not None}


def traced() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def test_a_step_of_a_span_is_named_by_its_span_id() -> None:
    provider, exporter = traced()
    board = new_board()
    with provider.get_tracer("app").start_as_current_span("agent"):
        for at in range(3):
            step = StepRecord(
                f"{at + 0xABC0:016x}", "t", "search", args_hash({"query": "x"}), result_hash(SUCCESS, "No results"),
                outcome_type=SUCCESS, timestamp=float(at),
            )  # fmt: skip
            verdict = board.observe(step)
            assert verdict is not None
            publish(verdict, board, redact=False)
    assert verdict.intervenes
    assert first_steps(exporter) == {f"{0xABC0:016x}"}


def test_a_step_read_from_messages_is_named_by_digits_that_stand_for_it() -> None:
    provider, exporter = traced()
    graph = apply_guard(agent_builder(repeats(3)), board=new_board()).compile()
    with provider.get_tracer("app").start_as_current_span("agent"):
        messages = graph.invoke(TASK)["messages"]
    request = next(one for one in messages if getattr(one, "tool_calls", None))
    assert first_steps(exporter) == {id_symbol(f"{request.id}/{request.tool_calls[0]['id']}").hex()}
