"""``guarded_invoke`` on a graph whose agents are all in sub-graphs: the result says how they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.gates.agents import (
    STOP_AT,
    TASK,
    agent_builder,
    async_context,
    lookup,
    new_board,
    repeats,
    search,
    thread,
    works,
)
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, guarded_ainvoke, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel


def plain_agent(policy: Policy, board: FlagBoard) -> Any:
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup])


def own_graph(policy: Policy, board: FlagBoard) -> Any:
    return agent_builder(policy).compile()


def guarded_agent(policy: Policy, board: FlagBoard) -> Any:
    guard = TrajectoryGuardMiddleware(board=board)
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=[guard])


def deeper(policy: Policy, board: FlagBoard) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("deep", own_graph(policy, board))
    builder.add_edge(START, "deep")
    return builder.compile()


def in_a_function(policy: Policy, board: FlagBoard) -> Any:
    inner = guarded_agent(policy, board)

    def delegate(state: MessagesState) -> dict[str, Any]:
        return {"messages": inner.invoke(state)["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("delegate", delegate)
    builder.add_edge(START, "delegate")
    return builder.compile()


def parent(*inner: Any) -> Any:
    builder, before = StateGraph(MessagesState), START
    for place, graph in enumerate(inner):
        builder.add_node(f"inner{place}", graph)
        builder.add_edge(before, f"inner{place}")
        before = f"inner{place}"
    return builder.compile(checkpointer=InMemorySaver())


def invoke(graph: Any, board: FlagBoard, way: str) -> dict[str, Any]:
    if way == "ainvoke":
        found: dict[str, Any] = asyncio.run(guarded_ainvoke(graph, TASK, thread(), board=board))
        return found
    done: dict[str, Any] = guarded_invoke(graph, TASK, thread(), board=board)
    return done


ways = pytest.mark.parametrize("way", ["invoke", pytest.param("ainvoke", marks=async_context)])
kinds = pytest.mark.parametrize("make", [plain_agent, own_graph, guarded_agent, deeper, in_a_function])


@ways
@kinds
def test_a_loop_in_a_sub_graph(make: Callable[..., Any], way: str) -> None:
    board = new_board()
    status = invoke(parent(make(repeats(), board)), board, way)["loop_status"]
    assert (status["status"], status["steps_taken"], status["nudges_sent"]) == ("stopped", STOP_AT, 1)
    assert status["stop"]["steps_taken"] == STOP_AT
    assert "state" not in status


@ways
@kinds
def test_healthy_work_in_a_sub_graph(make: Callable[..., Any], way: str) -> None:
    board = new_board()
    status = invoke(parent(make(works(4), board)), board, way)["loop_status"]
    assert (status["status"], status["steps_taken"]) == ("ok", 4)


@ways
def test_of_two_agents_the_one_that_was_stopped(way: str) -> None:
    board = new_board()
    graph = parent(own_graph(repeats(), board), own_graph(lambda messages, turn: works(20)(messages, turn), board))
    assert invoke(graph, board, way)["loop_status"]["status"] == "stopped"


# Found: the result of LangGraph's newer form was returned without the status.
@pytest.mark.newest
@ways
def test_the_result_of_the_newer_form_has_it_in_its_value(way: str) -> None:
    board = new_board()
    graph = parent(plain_agent(repeats(), board))
    if way == "ainvoke":
        done = asyncio.run(guarded_ainvoke(graph, TASK, thread(), board=board, version="v2"))
    else:
        done = guarded_invoke(graph, TASK, thread(), board=board, version="v2")

    assert done.value["loop_status"]["status"] == "stopped"
    assert not done.interrupts


def test_a_caller_that_asks_for_other_keys_gets_those() -> None:
    board = new_board()
    done = guarded_invoke(parent(plain_agent(works(2), board)), TASK, thread(), board=board, output_keys=["messages"])
    assert list(done) == ["messages"]
