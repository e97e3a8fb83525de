"""Agents beside each other are never each other's repeats; an agent that repeats itself is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.collector.in_process import RecordingBoard, evaluate_in_process
from tests.helpers import capture, extract_step, span_view
from trajectory_guard.core.policy import Level
from trajectory_guard.dialects.base import Dialect, Identity
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, table_of
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.transcripts.assemble import extract_steps

ADK = "gcp.vertex.agent"
GENAI = "opentelemetry.instrumentation.google_genai"
SEMCONV_TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"q": "x"}',
    "gen_ai.tool.call.result": "No results",
}  # fmt: skip
ADK_TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
    "gcp.vertex.agent.tool_call_args": '{"q": "x"}', "gcp.vertex.agent.tool_response": '{"result": "No results"}',
}  # fmt: skip
OPENINFERENCE_TOOL = {
    "openinference.span.kind": "TOOL", "tool.name": "search", "input.value": '{"q": "x"}', "output.value": "No results",
}  # fmt: skip
TRACELOOP_TOOL = {
    "traceloop.span.kind": "tool", "traceloop.entity.name": "search", "traceloop.entity.input": '{"q": "x"}',
    "traceloop.entity.output": "No results",
}  # fmt: skip
LLAMAINDEX_TOOL = {
    "traceloop.span.kind": "task", "tool.name": "search", "tool.arguments": '{"q": "x"}',
    "traceloop.entity.output": '{"tool_output": {"raw_output": "No results"}}',
}  # fmt: skip
LANGFUSE_TOOL = {
    "langfuse.observation.type": "tool", "langfuse.observation.input": '{"q": "x"}',
    "langfuse.observation.output": "No results",
}  # fmt: skip

VENDORS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], str | None]] = {
    "google adk 1.14": (ADK, "agent_run [{}]", {}, ADK_TOOL, "{}"),
    "google adk 1.14, with an attribute of the application": (ADK, "agent_run [{}]", {"team": "desk"}, ADK_TOOL, "{}"),
    "google adk 1, openinference": (
        "openinference.instrumentation.google_adk", "agent_run [{}]", {"openinference.span.kind": "AGENT"}, ADK_TOOL, "{}",
    ),
    "google adk 2": (ADK, "invoke_agent {}", {"gen_ai.operation.name": "invoke_agent"}, ADK_TOOL, "{}"),
    "semantic conventions": ("app", "invoke_agent {}", {"gen_ai.operation.name": "invoke_agent"}, SEMCONV_TOOL, "{}"),
    "openinference": (
        "openinference.instrumentation.smolagents", "{}.run", {"openinference.span.kind": "AGENT"}, OPENINFERENCE_TOOL,
        "{}",
    ),
    "llamaindex, openinference": (
        "openinference.instrumentation.llama_index", "FunctionAgent.run", {"openinference.span.kind": "CHAIN"},
        OPENINFERENCE_TOOL, None,
    ),
    "llamaindex, openinference, which names the kind of a span as it ends": (
        "openinference.instrumentation.llama_index", "FunctionAgent.run", {}, OPENINFERENCE_TOOL, None,
    ),
    "llamaindex, openllmetry": (
        "opentelemetry.instrumentation.llamaindex", "FunctionAgent.workflow", {"traceloop.span.kind": "workflow"},
        LLAMAINDEX_TOOL, None,
    ),
    "google-genai, automatic function calling": (
        GENAI, "generate_content model", {"gen_ai.operation.name": "generate_content"}, SEMCONV_TOOL, None,
    ),
    "openllmetry": ("app", "{}", {"traceloop.span.kind": "agent", "traceloop.entity.name": "{}"}, TRACELOOP_TOOL, "{}"),
    "langfuse": ("langfuse-sdk", "{}", {"langfuse.observation.type": "agent"}, LANGFUSE_TOOL, "{}"),
}  # fmt: skip
"""Scope, name and attributes of an agent's span, the attributes of a tool span, and the agent's name, {} for itself."""


def team(vendor: str, names: Sequence[str], calls: int) -> list[SpanView]:
    """Agents at the same time under one span, each with as many equal calls."""
    scope, name, attributes, tool, _ = VENDORS[vendor]
    spans = [span_view({"session.id": "s"}, "turn", span_id="f" * 16, start=0.0, end=90.0, scope="app")]
    for at, agent in enumerate(names):
        own = f"{at + 1:016x}"
        marks = {key: value.format(agent) for key, value in attributes.items()}
        spans.append(
            span_view(
                marks, name.format(agent), span_id=own, parent_id="f" * 16, start=1.0 + at / 100, end=80.0, scope=scope
            )
        )
        for call in range(calls):
            start = 2.0 + call + at / 100
            spans.append(
                span_view(tool, "search", span_id=f"{at + 1:08x}{call + 1:08x}", parent_id=own, start=start, end=start + 0.005, scope=scope)
            )  # fmt: skip
    return spans


def test_runs_of_smolagents_that_openlit_names_when_they_end_are_told_apart() -> None:
    """Ten runs of one agent below one span: each looks up the same thing once, in a step of its own."""
    board, provider = RecordingBoard(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=TracerProvider()))
    tracer = provider.get_tracer("openlit.instrumentation.smolagents")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "main"}

    def run_once(calls: int) -> None:
        with tracer.start_as_current_span("invoke_agent main") as agent:
            for at in range(calls):
                with tracer.start_as_current_span(f"invoke_agent main step_{at + 1}") as step:
                    with tracer.start_as_current_span("execute_tool search") as call:
                        call.set_attributes(SEMCONV_TOOL)
                    step.set_attributes(run)
            agent.set_attributes(run)

    batch = provider.get_tracer("app").start_as_current_span("batch", attributes={"gen_ai.conversation.id": "c"})
    with batch:
        for _ in range(10):
            run_once(1)
        run_once(5)
    found = [verdict.level for verdict in board.verdicts.values()]
    assert found == [Level.OBSERVE] * 12 + [Level.NUDGE, Level.NUDGE, Level.STOP]


def levels(spans: Sequence[SpanView]) -> list[Level]:
    return [verdict.level for verdict in evaluate_in_process(spans).values()]


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("calls", [1, 2])
def test_agents_beside_each_other_do_not_repeat_each_other(vendor: str, calls: int) -> None:
    found = levels(team(vendor, ("anna", "berta", "clara", "dora"), calls))
    assert found == [Level.OBSERVE] * 4 * calls


@pytest.mark.parametrize("vendor", VENDORS)
def test_one_agent_that_repeats_itself_beside_others_is_found(vendor: str) -> None:
    spans = team(vendor, ("anna", "berta"), 6)
    spans = [span for span in spans if span.span_id[:8] != f"{2:08x}" or span.span_id.endswith("1")]
    found = levels(spans)
    assert Level.NUDGE in found
    assert found.index(Level.NUDGE) == 3  # three calls of one agent, and one of the other


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_step_names_agent_and_instance(vendor: str) -> None:
    steps = extract_steps(team(vendor, ("anna", "berta"), 1))
    named = VENDORS[vendor][4]
    assert [step.agent_id for step in steps] == [named and named.format(name) for name in ("anna", "berta")]
    assert len({step.run for step in steps} - {None}) == 2


def test_an_iteration_of_a_loop_goes_on_where_the_one_before_stopped() -> None:
    steps = extract_steps(capture("google-adk-1.14__agents"))
    beside, looping = steps[:3], steps[3:]
    assert len({step.run for step in beside}) == 3
    assert len({step.run for step in looping}) == 1
    assert {step.agent_id for step in looping} == {"dora"}


def test_the_loop_of_one_agent_is_found_after_others_made_one_equal_call_each() -> None:
    verdicts = evaluate_in_process(capture("google-adk-1.14__agents")).values()
    levels = [verdict.level for verdict in sorted(verdicts, key=lambda one: one.step_index)]
    assert levels[:5] == [Level.OBSERVE] * 5
    assert levels[5] is Level.NUDGE


def test_an_agent_called_as_a_tool_is_another_instance_each_time() -> None:
    boss = span_view({}, "agent_run [boss]", span_id="1" * 16, scope=ADK)
    asks = [
        span_view({**ADK_TOOL, "gen_ai.tool.name": "sub"}, span_id=f"2{at}" * 8, parent_id="1" * 16, scope=ADK)
        for at in (1, 2)
    ]
    subs = [span_view({}, "agent_run [sub]", span_id=f"3{at}" * 8, scope=ADK) for at in (1, 2)]
    steps = [
        extract_step(span_view(ADK_TOOL, span_id=f"4{at}" * 8, scope=ADK), ancestors=[sub, ask, boss])
        for at, (sub, ask) in enumerate(zip(subs, asks, strict=True))
    ]
    assert [step and (step.agent_id, step.run) for step in steps] == [("sub", sub.span_id) for sub in subs]


def test_a_question_within_an_agent_is_part_of_its_work() -> None:
    agent = span_view({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent boss", span_id="1" * 16, scope="app")
    asked = [
        span_view({"gen_ai.operation.name": "generate_content"}, span_id=f"2{at}" * 8, scope=GENAI) for at in (1, 2)
    ]
    steps = [extract_step(span_view(SEMCONV_TOOL, scope=GENAI), ancestors=[one, agent]) for one in asked]
    assert [step and step.run for step in steps] == [agent.span_id] * 2


def test_a_row_may_name_agents_by_the_names_of_spans() -> None:
    row = Dialect(
        name="acme",
        scopes=("acme",),
        identity=Identity(agent_by_span_name=lambda span: span.name[6:] if span.name.startswith("actor ") else None),
    )
    table = table_of((row, *DIALECTS))
    above = [span_view({}, "actor kim", scope="acme", span_id="1" * 16)]
    step = extract_step(span_view(SEMCONV_TOOL), ancestors=above, dialects=table)
    other = extract_step(span_view(SEMCONV_TOOL), ancestors=[above[0]._replace(scope="app")], dialects=table)
    assert step is not None
    assert other is not None
    assert ((step.agent_id, step.run), (other.agent_id, other.run)) == (("kim", "1" * 16), (None, None))


@pytest.mark.parametrize(
    "identity", [Identity(agent_by_span_name=lambda span: span.name), Identity(resumes=True), Identity(no_agent=bool)]
)
def test_agents_by_the_names_of_spans_need_a_scope(identity: Identity) -> None:
    with pytest.raises(ValueError, match="acme: scopes"):
        Dialect(name="acme", identity=identity)


# Found: OpenLIT calls each turn of the OpenAI Agents SDK and each step of smolagents an agent, so that no loop of such
# an agent was found.
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("openai-agents-openlit__same", [*[Level.OBSERVE] * 2, *[Level.NUDGE] * 4]),
        ("openlit-smolagents__main", [*[Level.OBSERVE] * 3, *[Level.NUDGE] * 2, *[Level.STOP] * 2, Level.OBSERVE]),
    ],
)
def test_the_turns_of_an_agent_are_no_agents(name: str, wanted: list[Level]) -> None:
    spans = capture(name)
    verdicts = evaluate_in_process(spans)
    levels = [
        verdicts[one.span_id].level for one in sorted(spans, key=lambda one: one.start) if one.span_id in verdicts
    ]
    assert levels == wanted


def test_a_nameless_agent_of_another_scope_stays_one() -> None:
    turn = span_view({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent", span_id="c" * 16)
    tool = span_view(SEMCONV_TOOL, "execute_tool search")
    ours = extract_step(tool, ancestors=[turn])
    openlit = extract_step(tool, ancestors=[turn._replace(scope="openlit.instrumentation.openai_agents")])
    assert ours is not None
    assert openlit is not None
    assert (ours.run, openlit.run) == ("c" * 16, None)
