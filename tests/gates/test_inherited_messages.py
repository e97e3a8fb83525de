"""Agents of one graph hand their messages on, and none is held responsible for the calls of another one.

Without a thread id and without spans nothing but the messages says who has made a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph_supervisor import create_supervisor

from tests.gates.agents import TASK, calls, closing, lookup, new_board, nudges, search, thread
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import ScriptedChatModel


def _agent(name: str, script: Callable[[int], AIMessage], middleware: list[Any]) -> Any:
    """An agent whose model answers by how often it was asked."""
    asked = iter(range(1_000))
    model = ScriptedChatModel(policy=lambda messages, turn: script(next(asked)))
    return create_agent(model, [search, lookup], middleware=middleware, name=name)


def _request(name: str, args: dict[str, Any]) -> AIMessage:
    return calls([], (name, args))


def _stuck(times: int) -> Callable[[int], AIMessage]:
    return lambda at: _request("search", {"query": "refund"}) if at < times else AIMessage("The manual has nothing.")


def _recovers(at: int) -> AIMessage:
    if at == 0:
        return _request("search", {"query": "refund"})
    return _request("lookup", {"key": "refund"}) if at == 1 else AIMessage("The policy is in the record.")


def _two(times: int, board: FlagBoard, how: str) -> Any:
    own = (lambda: [TrajectoryGuardMiddleware(board=board)]) if how == "middleware" else list[Any]
    builder = StateGraph(MessagesState)
    builder.add_node("first", _agent("first", _stuck(times), own()))
    builder.add_node("second", _agent("second", _recovers, own()))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    if how == "apply_guard":
        apply_guard(builder, board=board)
    return builder.compile()


@pytest.mark.parametrize("config", [{}, thread()], ids=["no thread", "thread"])
@pytest.mark.parametrize("times", [2, 4, 9])
@pytest.mark.parametrize("how", ["apply_guard", "middleware", "guarded_invoke"])
def test_the_calls_of_the_agent_before_are_not_its_own(
    how: str, times: int, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    board = new_board()
    graph = _two(times, board, how)
    run = (lambda *given: guarded_invoke(graph, *given, board=board)) if how == "guarded_invoke" else graph.invoke
    messages: list[BaseMessage] = run(TASK, config)["messages"]
    assert messages[-1].content == "The policy is in the record."
    of_first = 0 if times < 3 else 1
    assert len(nudges(messages)) == of_first
    assert len(closing(messages)) == (1 if times > 5 else 0)
    assert sum("TRAJECTORY_NUDGE" in one.getMessage() for one in caplog.records) == of_first


@pytest.mark.parametrize("mode", ["last_message", "full_history"])
@pytest.mark.parametrize("how", ["apply_guard", "guarded_invoke", "middleware"])
def test_a_supervisor_that_gives_out_a_list_is_left_alone(how: str, mode: Any) -> None:
    """Each hand-off has a text of its own, and the worker a call of its own; its answer is always the same."""
    board, sent = new_board(), []

    @tool
    def send_invoice(number: int) -> str:
        """Send an invoice."""
        sent.append(number)
        return "sent"

    def works(at: int) -> AIMessage:
        return _request("send_invoice", {"number": at // 2 + 1}) if at % 2 == 0 else AIMessage("Done.")

    def gives_out(at: int) -> AIMessage:
        if at == 12:
            return AIMessage("All twelve invoices are out.")
        message = _request("transfer_to_worker", {})
        return message.model_copy(update={"content": f"Now invoice {at + 1}"})

    middleware = [TrajectoryGuardMiddleware(board=board)] if how == "middleware" else []
    asked, worked = iter(range(100)), iter(range(100))
    worker = create_agent(
        ScriptedChatModel(policy=lambda messages, turn: works(next(worked))), [send_invoice],
        middleware=middleware, name="worker",
    )  # fmt: skip
    builder = create_supervisor(
        [worker], model=ScriptedChatModel(policy=lambda messages, turn: gives_out(next(asked))), output_mode=mode
    )
    if how == "apply_guard":
        apply_guard(builder, board=board)
    graph = builder.compile()
    config: Any = {"recursion_limit": 200}
    if how == "guarded_invoke":
        messages = guarded_invoke(graph, TASK, config, board=board)["messages"]
    else:
        messages = graph.invoke(TASK, config)["messages"]
    assert sent == list(range(1, 13))
    assert messages[-1].content == "All twelve invoices are out."
    assert closing(messages) == []


def _reviewer(name: str, middleware: list[Any]) -> Any:
    """Looks up its guide, the same each time, and writes a remark."""

    def policy(messages: list[BaseMessage], turn: int) -> AIMessage:
        if messages[-1].type == "tool":
            return AIMessage(f"Chapter {turn} has {turn * 17} words too many.", name=name)
        return calls(messages, ("lookup", {"key": f"guide of {name}"}))

    return create_agent(ScriptedChatModel(policy=policy), [lookup], middleware=middleware, name=name)


@pytest.mark.parametrize("config", [{}, thread()], ids=["no thread", "thread"])
@pytest.mark.parametrize("how", ["apply_guard", "middleware", "guarded_invoke"])
def test_reviewers_that_look_up_the_same_for_each_draft_are_not_stopped(how: str, config: dict[str, Any]) -> None:
    board, drafts = new_board(), iter(range(1_000))
    own = (lambda: [TrajectoryGuardMiddleware(board=board)]) if how == "middleware" else list[Any]
    builder = StateGraph(MessagesState)
    builder.add_node("writer", lambda state: {"messages": [AIMessage(f"Draft {next(drafts)}", name="writer")]})
    builder.add_node("style", _reviewer("style", own()))
    builder.add_node("facts", _reviewer("facts", own()))
    builder.add_edge(START, "writer")
    builder.add_conditional_edges("writer", lambda state: "style" if len(state["messages"]) < 60 else END)
    builder.add_edge("style", "facts")
    builder.add_edge("facts", "writer")
    if how == "apply_guard":
        apply_guard(builder, board=board)
    graph = builder.compile()
    run = (lambda *given: guarded_invoke(graph, *given, board=board)) if how == "guarded_invoke" else graph.invoke
    messages: list[BaseMessage] = run(TASK, {**config, "recursion_limit": 100})["messages"]
    assert len(messages) >= 60
    assert closing(messages) == []
    told = [place for place, one in enumerate(messages) if one in nudges(messages)]
    drafts_before = [sum(one.name == "writer" for one in messages[:place]) for place in told]
    assert drafts_before == [9], "after eight drafts of which the guides say nothing new"
