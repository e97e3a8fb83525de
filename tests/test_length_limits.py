"""Attributes that the SDK cuts off at a length limit: what is missing is unknown, and no two such texts are equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

from tests.gates.agents import STOP_AT
from tests.test_span_processor import App, one_trace
from trajectory_guard import apply_guard
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Certainty

LIMIT = 300
HEAD = "\n".join(f"step {at} of the build is done" for at in range(20))


def limited() -> App:
    return App(provider=TracerProvider(span_limits=SpanLimits(max_span_attribute_length=LIMIT), shutdown_on_exit=False))


def growing_log() -> Iterator[str]:
    lines = [HEAD]
    for at in range(100):
        lines.append(f"compiled module {at} into {at * 37} objects")
        yield "\n".join(lines)


def test_results_that_differ_beyond_the_limit_are_not_one_result() -> None:
    app, log = limited(), growing_log()
    for _ in range(12):
        app.call('{"job": 1}', next(log))
    assert app.board.read("c").steps == 12
    assert app.board.read("c").level is Level.OBSERVE
    assert app.board.last_verdict("c") is None
    assert not app.errors


def test_errors_that_differ_beyond_the_limit_are_not_one_error() -> None:
    app, log = limited(), growing_log()
    for _ in range(4):
        app.call('{"job": 1}', f"Error: the build failed\n{next(log)}", **{"error.type": "BuildError"})
    found = app.board.last_verdict("c")
    assert found is not None
    assert (found.rule, found.certainty) == ("same_error", Certainty.LIKELY)  # by its class, as without content


def test_arguments_that_differ_beyond_the_limit_are_not_the_same() -> None:
    app = limited()
    for at in range(12):
        app.call(json.dumps({"text": HEAD + str(at)}), "The text is too long to be published.")
    assert app.board.read("c").level is not Level.STOP


def test_short_values_under_a_limit_are_compared() -> None:
    app = limited()
    levels = []
    for _ in range(STOP_AT):
        app.call()
        levels.append(app.board.take("c").level)
    assert levels[-1] is Level.STOP


def test_values_as_long_as_the_limit_may_be_cut_off() -> None:
    app = limited()
    for _ in range(STOP_AT):
        app.call(result="x " * (LIMIT // 2))
    assert app.board.last_verdict("c") is None


def test_prompts_that_differ_beyond_the_limit_are_not_one_prompt() -> None:
    app, log = limited(), growing_log()
    for _ in range(12):
        attributes = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "c",
            "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 5,
            "gen_ai.prompt": next(log), "gen_ai.completion": "The build goes on.",
        }  # fmt: skip
        app.tracer.start_span("chat m", one_trace(1), attributes=attributes).end()
    assert app.board.last_verdict("c") is None


@pytest.mark.parametrize("stuck", [True, False])
def test_a_gate_reads_in_the_messages_what_spans_have_lost(stuck: bool) -> None:
    app, log = limited(), growing_log()
    first = next(log)

    def spanned(work: Callable[[], str]) -> str:
        with app.tracer.start_as_current_span("execute_tool read_log") as span:
            result = work()
            values: dict[str, Any] = {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read_log",
                "gen_ai.tool.call.arguments": '{"job": 1}', "gen_ai.tool.call.result": result,
            }  # fmt: skip
            span.set_attributes(values)
            return result

    @tool
    def read_log(job: int) -> str:
        """Read the log of a job."""
        return spanned(lambda: first if stuck else next(log))

    def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
        rounds = sum(isinstance(one, ToolMessage) for one in state["messages"])
        if rounds == 12:
            return {"messages": [AIMessage("The build is done.")]}
        request = {"name": "read_log", "args": {"job": 1}, "id": f"call-{rounds}"}
        return {"messages": [AIMessage("", tool_calls=[request])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", model)
    builder.add_node("tools", ToolNode([read_log]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=app.board).compile()
    with trace.use_span(app.tracer.start_span("request")):
        messages = graph.invoke({"messages": [("user", "How is the build?")]})["messages"]
    assert sum(isinstance(one, ToolMessage) for one in messages) == (STOP_AT if stuck else 12)


# Found: conversations whose ids begin alike were one trajectory under a short limit, and one's calls were dropped as
# those of another.
@pytest.mark.parametrize("place", ["tool", "agent"])
def test_ids_that_differ_beyond_the_limit_are_not_one_conversation(place: str) -> None:
    app = limited()
    for at in range(3):
        named = {"gen_ai.conversation.id": "projects/support/" * (LIMIT // 10) + str(at)}
        in_tool, in_agent = (named, {}) if place == "tool" else ({}, named)
        with app.tracer.start_as_current_span("invoke_agent a", attributes=in_agent) as agent:
            app.call("{}", "Open from 9 to 5.", **{"gen_ai.conversation.id": "", **in_tool})
        assert app.board.read(f"{agent.get_span_context().trace_id:032x}").steps == 1
    assert not app.errors
