"""LangGraph runs a node again for each answer to its questions, or after an error: so do the agents that it calls.

A sub-graph that keeps no state of its own (``checkpointer=False``) then starts from scratch, under the same name and
with the same question. Each execution is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from tests.gates.agents import NUDGED_THEN_STOPPED, agent_builder, calls, new_board, outline, repeats, rounds, thread
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled

EXECUTIONS = 5
QUESTION = HumanMessage("Where are my orders?", id="question")
Make = Callable[[Policy, list[BaseTool], FlagBoard | None], Callable[[list[BaseMessage]], list[BaseMessage]]]


def _plain(policy: Policy, tools: list[BaseTool], board: FlagBoard | None) -> Any:
    agent = agent_builder(policy, tools=tools).compile(checkpointer=False)
    return lambda messages: agent.invoke({"messages": messages})["messages"]


def _applied_within(policy: Policy, tools: list[BaseTool], board: FlagBoard | None) -> Any:
    builder = agent_builder(policy, tools=tools)
    agent = (apply_guard(builder, board=board) if board is not None else builder).compile(checkpointer=False)
    return lambda messages: agent.invoke({"messages": messages})["messages"]


def _guarded_invoke(policy: Policy, tools: list[BaseTool], board: FlagBoard | None) -> Any:
    agent = agent_builder(policy, tools=tools).compile(checkpointer=False)
    if board is None:
        return lambda messages: agent.invoke({"messages": messages})["messages"]
    return lambda messages: guarded_invoke(agent, {"messages": messages}, board=board)["messages"]


def _middleware(policy: Policy, tools: list[BaseTool], board: FlagBoard | None) -> Any:
    middleware = [TrajectoryGuardMiddleware(board=board)] if board is not None else []
    agent = create_agent(ScriptedChatModel(policy=policy), tools, middleware=middleware, checkpointer=False)
    return lambda messages: agent.invoke({"messages": messages})["messages"]


def _node(step: Callable[[list[BaseMessage]], str]) -> StateGraph[Any, Any, Any, Any]:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("work", lambda state: {"messages": [AIMessage(step(state["messages"]))]})
    builder.add_edge(START, "work")
    return builder


def _in_a_node(step: Any, board: FlagBoard | None) -> Any:
    return _node(step).compile(checkpointer=InMemorySaver())


def _in_a_guarded_node(step: Any, board: FlagBoard | None) -> Any:
    builder = _node(step) if board is None else apply_guard(_node(step), agent="work", board=board)
    return builder.compile(checkpointer=InMemorySaver())


def _in_a_guarded_copy(step: Any, board: FlagBoard | None) -> Any:
    graph = _node(step).compile(checkpointer=InMemorySaver())
    return graph if board is None else guard_compiled(graph, agent="work", board=board)


def _in_an_entrypoint(step: Any, board: FlagBoard | None) -> Any:
    @entrypoint(checkpointer=InMemorySaver())
    def flow(state: Any) -> str:
        return step(state["messages"])

    return flow


WAYS: dict[str, tuple[Make, Callable[[Any, FlagBoard | None], Any]]] = {
    "apply_guard": (_plain, _in_a_guarded_node),
    "guard_compiled": (_plain, _in_a_guarded_copy),
    "apply_guard of the agent": (_applied_within, _in_an_entrypoint),
    "guarded_invoke in a node": (_guarded_invoke, _in_a_node),
    "guarded_invoke in an entrypoint": (_guarded_invoke, _in_an_entrypoint),
    "middleware in a node": (_middleware, _in_a_node),
    "middleware in an entrypoint": (_middleware, _in_an_entrypoint),
}
ways = pytest.mark.parametrize("way", WAYS)
again = pytest.mark.parametrize("why", ["answers", "errors"])


def _run(way: str, why: str, policy: Policy, board: FlagBoard | None) -> list[str]:
    """Outlines of all prompts and of the messages in which each execution ended."""
    seen: list[str] = []
    make, within = WAYS[way]

    def noting(messages: Any, turn: int) -> AIMessage:
        seen.append(outline(messages))
        return policy(messages, turn)

    @tool
    def search(query: str) -> str:
        """Search the orders."""
        return f"{query}: two shirts, paid, shipped on Monday with the usual carrier"

    agent = make(noting, [search], board)
    executions = 0

    def step(messages: list[BaseMessage]) -> str:
        nonlocal executions
        said = agent(messages)
        seen.append(f"ended: {outline(said)}")
        executions += 1
        if why == "errors" and executions < EXECUTIONS:
            raise ConnectionError("the mail server is away")
        if why == "answers":
            return " ".join([interrupt(f"question {number}") for number in range(EXECUTIONS - 1)])
        return str(said[-1].content)

    graph, state = within(step, board), {"messages": [QUESTION]}  # type: Any, Any
    for _ in range(EXECUTIONS):
        with suppress(ConnectionError):
            graph.invoke(state, thread())
        state = None if why == "errors" else Command(resume="yes")
    assert executions == EXECUTIONS
    return seen


def _healthy(messages: Any, turn: int) -> AIMessage:
    done = rounds(messages)
    return AIMessage("All are shipped.") if done == 4 else calls(messages, ("search", {"query": f"order {done}"}))


def _answers(messages: Any, turn: int) -> AIMessage:
    return AIMessage("I do not need to look anything up for that: all of your orders were shipped on Monday.")


# Found: the calls of each execution were repeats of those before, and a healthy agent was nudged, and then stopped.
@ways
@again
@pytest.mark.parametrize("with_spans", [False, True], ids=["messages", "spans"])
@pytest.mark.parametrize("policy", [_healthy, _answers], ids=["works", "only answers"])
def test_a_healthy_agent_runs_again_as_unguarded(
    way: str, why: str, policy: Policy, with_spans: bool, traced: Any
) -> None:
    unguarded = _run(way, why, policy, None)

    assert _run(way, why, policy, traced() if with_spans else new_board()) == unguarded


@ways
@again
@pytest.mark.parametrize(
    "with_spans", [pytest.param(False, id="messages"), pytest.param(True, id="spans", marks=pytest.mark.slow)]
)
def test_a_loop_in_each_execution_is_nudged_and_stopped(way: str, why: str, with_spans: bool, traced: Any) -> None:
    found = _run(way, why, repeats(), traced() if with_spans else new_board())

    assert [one for one in found if one.startswith("ended")] == EXECUTIONS * [f"ended: {NUDGED_THEN_STOPPED}"]
