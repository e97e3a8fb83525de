"""``ChatMessage`` holds a role of any name: with that of the user it is a person's, as ``HumanMessage`` is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from tests.gates.agents import agent_builder, calls, new_board, nudges
from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

THREAD: Any = {"configurable": {"thread_id": "1"}}
ROLES = {
    "user": lambda text: ChatMessage(text, role="user"),
    "human": lambda text: ChatMessage(text, role="human"),
    "HumanMessage": HumanMessage,
}


@tool
def get_order(number: str) -> str:
    """Look up an order."""
    return f"Order {number} has been shipped and will be with you on Tuesday."


def looks_up_once(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    if messages[-1].type == "tool":
        return AIMessage("It is shipped.")
    return calls(messages, ("get_order", {"number": "17"}))


def looks_up_again_and_again(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    return calls(messages, ("get_order", {"number": "17"}))


def with_apply_guard(policy: Any) -> Any:
    builder = agent_builder(policy, tools=[get_order])
    return apply_guard(builder, board=new_board()).compile(checkpointer=InMemorySaver())


def with_middleware(policy: Any) -> Any:
    guard = TrajectoryGuardMiddleware(board=new_board())
    return create_agent(
        ScriptedChatModel(policy=policy), [get_order], middleware=[guard], checkpointer=InMemorySaver()
    )  # fmt: skip


@pytest.mark.parametrize("build", [with_apply_guard, with_middleware])
@pytest.mark.parametrize("role", list(ROLES))
def test_each_question_is_a_user_turn(build: Callable[[Any], Any], role: str) -> None:
    graph = build(looks_up_once)
    for _ in range(8):
        messages = graph.invoke({"messages": [ROLES[role]("Where is my order?")]}, THREAD)["messages"]
    assert [one.type for one in messages[-3:]] == ["ai", "tool", "ai"]
    assert nudges(messages) == []
    assert {one.text for one in messages if one.type == "ai" and not one.tool_calls} == {"It is shipped."}


@pytest.mark.parametrize("build", [with_apply_guard, with_middleware])
def test_a_loop_within_the_turn_is_found(build: Callable[[Any], Any]) -> None:
    graph = build(looks_up_again_and_again)
    messages = graph.invoke({"messages": [ChatMessage("Where is my order?", role="user")]}, THREAD)["messages"]
    assert nudges(messages)
    assert messages[-1].text.startswith("I could not get any further with this: get_order was called")
