"""The agent, the conversation and the batch of a step, by every key that names them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import batch_label, extract_step, span_view, tool_view
from trajectory_guard.spans.identity import agent_name, all_conversation_ids, conversation_id
from trajectory_guard.transcripts.assemble import extract_steps

CONVERSATIONS: list[tuple[dict[str, Any], str | None]] = [
    ({"gen_ai.conversation.id": "c"}, "c"),
    ({"session.id": "s"}, "s"),
    ({"traceloop.association.properties.thread_id": "t"}, "t"),
    ({"traceloop.association.properties.session_id": "s"}, "s"),
    ({"traceloop.association.properties.conversation_id": "c"}, "c"),
    ({"langfuse.observation.metadata.thread_id": '"thread-A"'}, "thread-A"),
    ({"langfuse.trace.metadata.thread_id": '"thread-A"'}, "thread-A"),
    ({"langsmith.metadata.thread_id": "t"}, "t"),
    ({"langsmith.metadata.session_id": "s"}, "s"),
    ({"metadata": '{"thread_id": "t", "x": 1}'}, "t"),
    ({"metadata": {"thread_id": "t"}}, "t"),
    ({"metadata": '{"session_id": "s", "thread_id": "t"}'}, "s"),
    ({"group_id": "g"}, "g"),
    ({"gen_ai.conversation.id": "c", "session.id": "s"}, "c"),
    ({"session.id": "s", "traceloop.association.properties.thread_id": "t"}, "s"),
    ({"gen_ai.conversation.id": "", "session.id": "s"}, "s"),
    ({"traceloop.association.properties.thread_id": 17}, "17"),
    ({"metadata": '{"thread_id": '}, None),
    ({"metadata": "[1]"}, None),
    ({"user.id": "u"}, None),
    # Found: Logfire writes the group of a trace without one as JSON text, which made all such traces one conversation.
    ({"group_id": "null"}, None),
    ({"traceloop.association.properties.session_id": "None", "session.id": "s"}, "s"),
    ({"session.id": "undefined"}, None),
    ({"metadata": {"session_id": "null", "thread_id": "t"}}, "t"),
]


@pytest.mark.parametrize("attributes, wanted", CONVERSATIONS)
def test_conversation_keys_in_order(attributes: dict[str, Any], wanted: str | None) -> None:
    assert conversation_id(attributes) == wanted


def test_all_names_of_a_conversation_are_listed() -> None:
    attributes = {
        "session.id": "s",
        "traceloop.association.properties.thread_id": "t",
        "metadata": '{"conversation_id": "c"}',
    }
    assert set(all_conversation_ids(attributes)) == {"s", "t", "c"}
    assert all_conversation_ids({"group_id": "null", "session.id": "s", "metadata": '{"thread_id": "None"}'}) == ["s"]


def test_a_conversation_named_by_an_ancestor_is_the_trajectory() -> None:
    step = extract_step(tool_view(), ancestors=[span_view({}), span_view({"gen_ai.conversation.id": "c"})])
    assert step is not None
    assert step.trajectory_id == "c"


def test_a_conversation_named_anywhere_in_the_trace_is_the_trajectory() -> None:
    sibling = span_view({"gen_ai.conversation.id": "c"}, span_id="9" * 16)
    assert [step.trajectory_id for step in extract_steps([tool_view(), sibling])] == ["c"]


def test_without_any_name_the_trace_is_the_trajectory() -> None:
    assert [step.trajectory_id for step in extract_steps([tool_view()])] == ["a" * 32]


AGENT_SPANS: list[tuple[str, dict[str, Any], str, str, str | None]] = [
    ("invoke_agent attribute", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "alice"}, "x", "", "alice"),
    ("invoke_agent name", {"gen_ai.operation.name": "invoke_agent"}, "invoke_agent alice", "", "alice"),
    ("constant name", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "OpenAI Agent"}, "x", "", None),
    ("AGENT", {"openinference.span.kind": "AGENT", "agent.name": "alice"}, "x", "", "alice"),
    ("AGENT node", {"openinference.span.kind": "AGENT", "graph.node.id": "alice"}, "x", "", "alice"),
    ("AGENT live", {"openinference.span.kind": "AGENT"}, "alice.run", "", "alice"),
    ("AGENT tool", {"openinference.span.kind": "AGENT", "tool.name": "ask_agent"}, "ask_agent", "", None),
    ("traceloop", {"traceloop.span.kind": "agent", "traceloop.entity.name": "alice"}, "alice.agent", "", "alice"),
    ("langfuse", {"langfuse.observation.type": "agent"}, "alice", "", "alice"),
    ("logfire", {"logfire.msg_template": "Agent run: {name!r}", "name": "alice"}, "x", "", "alice"),
    ("graph", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "my_graph"}, "x", "opentelemetry.instrumentation.langchain", None),
    ("HTTP", {"http.request.method": "GET"}, "GET /", "", None),
]  # fmt: skip


@pytest.mark.parametrize(
    "attributes, name, scope, wanted", [row[1:] for row in AGENT_SPANS], ids=[row[0] for row in AGENT_SPANS]
)
def test_the_nearest_agent_span_names_the_agent(
    attributes: dict[str, Any], name: str, scope: str, wanted: str | None
) -> None:
    assert agent_name(tool_view(), [span_view({}), span_view(attributes, name, scope=scope)]) == wanted


@pytest.mark.parametrize(
    "extra, wanted",
    [
        ({"gen_ai.agent.name": "alice"}, "alice"),
        ({"gen_ai.agent.name": "OpenAI Agent"}, None),
        ({"traceloop.association.properties.lc_agent_name": "alice"}, "alice"),
        ({"langfuse.observation.metadata.lc_agent_name": '"alice"'}, "alice"),
        ({"langsmith.metadata.lc_agent_name": "alice"}, "alice"),
        ({"metadata": '{"lc_agent_name": "alice"}'}, "alice"),
        ({"traceloop.association.properties.langgraph_checkpoint_ns": "alice:1-2|tools:3-4"}, "alice"),
        ({"traceloop.association.properties.langgraph_checkpoint_ns": "tools:3-4"}, None),
        ({"gen_ai.agent.id": "0190c3a0-run"}, None),
        ({}, None),
    ],
)
def test_the_tool_span_names_the_agent(extra: dict[str, Any], wanted: str | None) -> None:
    assert agent_name(tool_view(extra=extra), []) == wanted


def test_old_openllmetry_keeps_the_agent_inside_its_wrapper() -> None:
    wrapper = json.dumps({"input_str": "{}", "metadata": {"langgraph_checkpoint_ns": "bob:1|tools:2"}, "inputs": {}})
    # the wrapper's first key decides, as the instrumentation writes it
    span = span_view({"traceloop.span.kind": "tool", "traceloop.entity.input": wrapper}, "search.tool")
    assert agent_name(span, []) == "bob"


def test_calls_of_one_super_step_share_a_batch_label() -> None:
    key = "traceloop.association.properties.langgraph_step"
    namespace = "traceloop.association.properties.langgraph_checkpoint_ns"
    one = batch_label(tool_view(extra={key: 2, namespace: "tools:1"}))
    other = batch_label(tool_view(extra={key: 2, namespace: "tools:2"}))
    assert one == other is not None
    assert batch_label(tool_view(extra={key: 3, namespace: "tools:1"})) != one
    assert batch_label(tool_view(extra={key: 2, namespace: "alice:1|tools:1"})) != one
    assert batch_label(tool_view(extra={key: 2}, trace_id="c" * 32)) != batch_label(tool_view(extra={key: 2}))
    assert batch_label(tool_view()) is None


def test_an_attribute_of_the_application_named_path_is_no_part_of_a_task() -> None:
    place = {"langgraph_step": 1, "langgraph_checkpoint_ns": "agent:1|look_up:1"}
    task = {**place, "langgraph_path": ["__pregel_push", ["__pregel_pull", "agent"], 7, True]}
    for extra in ({}, {"path": "/orders"}):
        assert batch_label(tool_view(extra={"metadata": json.dumps(task), **extra})) is None
        assert batch_label(tool_view(extra={"metadata": json.dumps(place), **extra})) is not None
