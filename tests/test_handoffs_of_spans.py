"""Hand-offs for which the framework has no tool (OpenAI Agents): each instrumentation writes a span of its own kind."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.collector.in_process import evaluate_in_process
from tests.helpers import capture, record, span_view
from trajectory_guard import GuardConfig
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Evidence, StepRecord, Usage
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.transcripts.assemble import extract_steps

INSTRUMENTATIONS = ("openinference", "traceloop", "logfire", "otelv2", "openlit")


def handoffs(spans: list[SpanView]) -> list[StepRecord]:
    return [step for step in extract_steps(spans, model_calls=True) if step.is_toolless]


def in_order(spans: list[SpanView]) -> list[Verdict]:
    verdicts = evaluate_in_process(spans)
    return [verdicts[one.span_id] for one in sorted(spans, key=lambda one: one.start) if one.span_id in verdicts]


@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
def test_work_that_only_goes_round_is_nudged_in_the_fourth_lap(instrumentation: str) -> None:
    spans = capture(f"openai-agents-{instrumentation}__circle")
    verdicts = in_order(spans)
    assert [one.nudge is not None for one in verdicts] == [at == 7 for at in range(12)]
    found = verdicts[7]
    assert (found.level, found.types, str(found.certainty)) == (Level.NUDGE, ["TYPE_IV_PINGPONG"], "acknowledged")
    assert "The work has gone round 3 times (Billing → Triage) without a result." in found.reason


@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
def test_a_hand_off_names_both_agents_where_the_span_does(instrumentation: str) -> None:
    steps = handoffs(capture(f"openai-agents-{instrumentation}__circle"))
    assert [step.agent_id for step in steps] == ["Triage", "Billing"] * 6
    assert {step.tool_name for step in steps} == {"handoff"}
    named = [step.args and step.args["to_agent"] for step in steps]
    assert named == ([None] * 12 if instrumentation == "traceloop" else ["Billing", "Triage"] * 6)
    assert {step.result for step in steps} == {None}


@pytest.mark.parametrize(
    "name",
    [
        "openinference__work",
        "traceloop-nocontent__work",
        "openinference__turns",
        "traceloop-nocontent__turns",
        "openlit__work",
        "openlit__turns",
    ],
)
def test_agents_that_work_or_answer_before_they_hand_over_are_left_alone(name: str) -> None:
    spans = capture(f"openai-agents-{name}")
    assert len(handoffs(spans)) == 12
    assert {one.level for one in in_order(spans)} == {Level.OBSERVE}


def test_a_hand_off_is_no_tool_call() -> None:
    assert extract_steps(capture("openai-agents-openinference__circle")) == []


def test_javascript_names_the_next_agent_in_the_name_of_the_span() -> None:
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "handoff_to_carol"}
    span = span_view(attributes, "handoff to carol", scope="@arizeai/openinference-instrumentation-openai-agents")
    (step,) = handoffs([span])
    assert (step.args, step.evidence, step.dialect) == (
        {"to_agent": "carol"},
        Evidence.NO_RESULT,
        "openinference.handoff",
    )


@pytest.mark.parametrize("attributes", [{}, {"tool.name": "handoff"}, {"openinference.span.kind": "CHAIN"}])
def test_another_span_of_that_name_is_no_hand_off(attributes: dict[str, Any]) -> None:
    span = span_view({"openinference.span.kind": "TOOL", **attributes}, "handoff to carol")
    assert [step.is_toolless for step in extract_steps([span], model_calls=True)] == ([True] if not attributes else (
        [False] if "tool.name" in attributes else []
    ))  # fmt: skip


def test_a_pending_copy_of_a_hand_off_is_left_out() -> None:
    attributes = {"logfire.msg_template": "Handoff: {from_agent} → {to_agent}", "to_agent": "b"}
    assert handoffs([span_view({**attributes, "logfire.span_type": "pending_span"})]) == []
    assert len(handoffs([span_view({**attributes, "logfire.span_type": "span"})])) == 1


def test_the_ledger_counts_the_calls_of_a_model_that_no_tool_call_followed() -> None:
    ledger, trace = UsageLedger(), "a" * 32
    for answers, step in enumerate((record("search"), record("handoff")._replace(dialect="logfire.handoff"))):
        for _ in range(answers + 1):
            ledger.add(trace, "s", Usage(10, 1))
        charged = ledger.charge(step._replace(trace_id=trace))
        assert charged.usage == Usage(10 * (answers + 1), answers + 1, answers=answers)


def test_a_hand_off_is_no_sign_of_captured_content(caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard(GuardConfig())))
    tracer = provider.get_tracer("an.instrumentation")
    with tracer.start_as_current_span("run"):
        names = {"gen_ai.operation.name": "agent_handoff", "gen_ai.handoff.to_agent": "billing"}
        tracer.start_span("agent_handoff", attributes=names).end()
        for _ in range(10):
            names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
            tracer.start_span("execute_tool look", attributes=names).end()
    warned = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "neither arguments nor results" in " ".join(one.getMessage() for one in warned)
