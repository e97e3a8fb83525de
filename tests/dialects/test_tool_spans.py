"""Which spans are tool calls, what they are called, and which only look like one (T0 to T8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import extract_step, span_view
from trajectory_guard.core.steps import ModelTokens, Usage
from trajectory_guard.dialects.table import DIALECTS, recognise
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.transcripts.assemble import extract_steps

EXECUTE = {"gen_ai.operation.name": "execute_tool"}

ACCEPTED: list[tuple[str, dict[str, Any], str, str, str]] = [
    # rule, attributes, span name, dialect, tool
    ("T1 attribute", {**EXECUTE, "gen_ai.tool.name": "search"}, "x", "semconv", "search"),
    ("T1 span name", EXECUTE, "execute_tool search", "semconv", "search"),
    ("T1 running tool", EXECUTE, "running tool: search", "semconv", "search"),
    ("T2", {"langsmith.span.kind": "tool", "gen_ai.tool.name": "search"}, "x", "langsmith", "search"),
    ("T2 with T1", {**EXECUTE, "langsmith.span.kind": "tool"}, "search", "langsmith", "search"),
    ("T3", {"langfuse.observation.type": "tool"}, "search", "langfuse", "search"),
    ("T4", {"traceloop.span.kind": "tool", "traceloop.entity.name": "search"}, "x", "openllmetry", "search"),
    ("T4 span name", {"traceloop.span.kind": "tool"}, "search.tool", "openllmetry", "search"),
    ("T5", {"tool.name": "search", "openinference.span.kind": "TOOL"}, "x", "openinference", "search"),
    ("T5 agent in the name", {"tool.name": "ask_agent", "openinference.span.kind": "AGENT"}, "x", "openinference", "ask_agent"),
    ("T5 llamaindex", {"traceloop.span.kind": "task", "tool.name": "search"}, "FunctionAgent.task", "openllmetry", "search"),
    ("T7", {"logfire.msg_template": "Function: {name}", "name": "search"}, "Function: {name}", "logfire", "search"),
    ("MCP", {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search"}, "tools/call search", "mcp", "search"),
    ("named only", {"gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c"}, "running tool", "semconv", "search"),
]  # fmt: skip


@pytest.mark.parametrize(
    "attributes, name, dialect, tool", [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED]
)
def test_tool_spans_are_recognised(attributes: dict[str, Any], name: str, dialect: str, tool: str) -> None:
    step = extract_step(span_view(attributes, name))
    assert step is not None
    assert (step.dialect, step.tool_name) == (dialect, tool)


REJECTED: list[tuple[str, dict[str, Any]]] = [
    ("T0 pending", {**EXECUTE, "gen_ai.tool.name": "search", "logfire.span_type": "pending_span"}),
    ("T0 mcp list", {**EXECUTE, "gen_ai.tool.name": "search", "mcp.method.name": "tools/list"}),
    *(
        (f"T0 {operation}", {"gen_ai.operation.name": operation, "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c"})
        for operation in (
            "chat", "generate_content", "text_completion", "embeddings", "invoke_agent", "create_agent", "invoke_workflow",
            "execute_task", "handoff", "agent_handoff", "goto", "plan", "retrieval",
        )
    ),
    ("T5 model that offers a tool", {"tool.name": "search", "openinference.span.kind": "LLM"}),
    ("T6 hand-off", {"openinference.span.kind": "TOOL"}),
    ("T8 inner duplicate", {"traceloop.span.kind": "task", "traceloop.entity.name": "FunctionTool.task"}),
    ("traceloop task", {"traceloop.span.kind": "task", "traceloop.entity.name": "plan"}),
    ("langfuse generation", {"langfuse.observation.type": "generation"}),
    ("langsmith chain", {"langsmith.span.kind": "chain"}),
    ("logfire other", {"logfire.msg_template": "Agent run: {name!r}"}),
    ("tool name alone", {"gen_ai.tool.name": "search"}),
    ("database", {"db.system": "postgresql"}),
    ("nothing", {}),
]  # fmt: skip


@pytest.mark.parametrize("attributes", [row[1] for row in REJECTED], ids=[row[0] for row in REJECTED])
def test_spans_that_only_look_like_tools_are_none(attributes: dict[str, Any]) -> None:
    assert extract_step(span_view(attributes, "handoff to bob")) is None


def test_every_accepted_span_carries_a_marker_of_its_dialect() -> None:
    for _, attributes, name, _, _ in ACCEPTED:
        span = span_view(attributes, name)
        dialect = recognise(span)
        assert dialect is not None
        assert not attributes.keys().isdisjoint(dialect.markers)
    assert set().union(*(dialect.markers for dialect in DIALECTS)) == DIALECTS.markers


def test_transport_inside_a_framework_span_of_the_same_tool_is_one_call() -> None:
    outer = span_view({**EXECUTE, "gen_ai.tool.name": "search"}, span_id="1" * 16)
    client = span_view({**EXECUTE, "gen_ai.tool.name": "search", "mcp.method.name": "tools/call"}, span_id="2" * 16, parent_id="1" * 16, kind="client")  # fmt: skip
    server = client._replace(span_id="3" * 16, parent_id="2" * 16, kind="server")
    assert [step.span_id for step in extract_steps([server, client, outer])] == ["1" * 16]


def test_a_tool_inside_another_tool_is_a_call_of_its_own() -> None:
    outer = span_view({**EXECUTE, "gen_ai.tool.name": "research"}, span_id="1" * 16)
    inner = span_view({**EXECUTE, "gen_ai.tool.name": "search"}, span_id="2" * 16, parent_id="1" * 16, start=10.1)
    assert [step.tool_name for step in extract_steps([inner, outer])] == ["research", "search"]


def test_usage_is_read_from_model_calls_only() -> None:
    tokens = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20}
    usage = model_usage(span_view({"gen_ai.operation.name": "chat", **tokens, "gen_ai.usage.cost": 0.5}))
    assert usage == Usage(100, 20, 0.5, seconds=0.5)
    assert model_usage(span_view({"gen_ai.operation.name": "invoke_agent", **tokens})) is None
    llm = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 7, "llm.token_count.completion": 3}
    assert model_usage(span_view(llm)) == Usage(7, 3, 0.0, seconds=0.5)


def test_tokens_without_a_cost_are_kept_by_model_until_somebody_asks_for_their_price() -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small", "gen_ai.usage.input_tokens": 100}
    usage = model_usage(span_view(chat))
    assert usage is not None
    assert usage.unpriced == (ModelTokens("small", 100, 0),)
    priced = model_usage(span_view({**chat, "gen_ai.usage.cost": 0.5}))
    assert priced is not None
    assert (priced.cost_usd, priced.unpriced) == (0.5, ())


@pytest.mark.parametrize("tokens", ["many", -5, float("nan"), float("inf"), None, [1]])
def test_absurd_usage_counts_as_nothing(tokens: Any) -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": tokens}
    assert model_usage(span_view(chat)) == Usage(0, 0, 0.0, seconds=0.5)


@pytest.mark.parametrize("total", ["gen_ai.usage.total_tokens", "llm.usage.total_tokens"])
@pytest.mark.parametrize("scope", ["google_generativeai", "vertexai"])
def test_what_gemini_thought_counts_where_only_the_total_holds_it(scope: str, total: str) -> None:
    call = {
        "gen_ai.operation.name": "generate_content", "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20, total: 900,
    }  # fmt: skip
    usage = model_usage(span_view(call, scope=f"opentelemetry.instrumentation.{scope}"))
    assert usage == Usage(100, 800, 0.0, seconds=0.5)
    unclear = model_usage(span_view({**call, total: 0}, scope=f"opentelemetry.instrumentation.{scope}"))
    assert unclear == Usage(100, 20, 0.0, seconds=0.5)
    older = {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 20, total: 900}
    older |= {"llm.request.type": "completion"}
    assert model_usage(span_view(older, scope=f"opentelemetry.instrumentation.{scope}")) == Usage(100, 20, seconds=0.5)


# Found: the model of a Langfuse generation was not read, so that its calls had no price; nor were tokens under the names
# that OpenAI gives them.
@pytest.mark.parametrize(
    "names", [("input", "output"), ("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")]
)
def test_a_generation_of_langfuse_names_its_model_and_counts_its_tokens(names: tuple[str, str]) -> None:
    generation = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "small",
        "langfuse.observation.usage_details": json.dumps({names[0]: 100, names[1]: 5, "total": 105}),
    }
    usage = model_usage(span_view(generation))
    assert usage is not None
    assert usage.unpriced == (ModelTokens("small", 100, 5),)


@pytest.mark.parametrize(
    ("counted", "wanted"),
    [
        ({"input": 1_000, "output": 100, "total": 15_000, "input_cache_read": 11_000, "output_reasoning": 2_900,
          "output_priority": 3_000}, (12_000, 3_000)),
        ({"input": 1_000, "output": 100, "input_cache_creation": 500, "input_audio": None}, (1_500, 100)),
        ({"input": 1_000, "output": 100, "total": 1_100, "input_cached": 800}, (1_000, 100)),  # a part of the above
        ({"input_tokens": 1_000, "output_tokens": 100, "input_tokens_details": {"cached_tokens": 800}}, (1_000, 100)),
    ],
)  # fmt: skip
def test_tokens_that_langfuse_counts_apart_count(counted: dict[str, Any], wanted: tuple[int, int]) -> None:
    usage = model_usage(
        span_view({
            "langfuse.observation.type": "generation", "langfuse.observation.usage_details": json.dumps(counted),
        })
    )  # fmt: skip
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == wanted
