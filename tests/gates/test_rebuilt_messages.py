"""Middleware or a node that rebuilds the conversation before each model call: every message gets a new id."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    TASK,
    agent_node,
    calls,
    lookup,
    new_board,
    obeys,
    outline,
    repeats,
    rounds,
    search,
    thread,
)


def _rebuilt(state: Any) -> dict[str, Any]:
    copies = [message.model_copy(update={"id": str(uuid.uuid4())}) for message in state["messages"]]
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *copies]}


class _Rebuilds(AgentMiddleware[Any, Any, Any]):
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return _rebuilt(state)


def _middleware(policy: Policy, **options: Any) -> Any:
    middleware = [TrajectoryGuardMiddleware(board=new_board(), **options), _Rebuilds()]
    return create_agent(
        ScriptedChatModel(policy=policy), [search, lookup], middleware=middleware, checkpointer=InMemorySaver()
    )


def _node(policy: Policy, **options: Any) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("rebuild", _rebuilt)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode([search, lookup]))
    builder.add_edge(START, "rebuild")
    builder.add_edge("rebuild", "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "rebuild")
    guarded = apply_guard(builder, agent="agent", tools="rebuild", board=new_board(), **options)
    return guarded.compile(checkpointer=InMemorySaver())


def _works(messages: Any, turn: int) -> AIMessage:
    done = rounds(messages)
    return AIMessage("Done.") if done == 8 else calls(messages, ("lookup", {"key": f"item {done}"}))


WAYS = pytest.mark.parametrize("way", [_middleware, _node])


# Found: such an agent was nudged before every model call, and never stopped.
@pytest.mark.parametrize("role", ["user", "system"])
@WAYS
def test_a_loop_is_nudged_once_and_stopped_in_each_user_turn(way: Any, role: str) -> None:
    graph = way(repeats(30), nudge_role=role)

    first = graph.invoke(TASK, thread(recursion_limit=120))["messages"]
    second = graph.invoke({"messages": [("user", "And now?")]}, thread(recursion_limit=120))["messages"]

    assert outline(first) == NUDGED_THEN_STOPPED
    assert outline(second) == 2 * NUDGED_THEN_STOPPED


@pytest.mark.parametrize(("policy", "expected"), [(obeys, NUDGED_THEN_FINISHED), (_works, "h" + "at" * 8 + "a")])
@WAYS
def test_agents_that_listen_or_work_are_not_stopped(way: Any, policy: Policy, expected: str) -> None:
    assert outline(way(policy).invoke(TASK, thread(recursion_limit=120))["messages"]) == expected
