"""A tool node decides which errors of its tools the model reads; the gate before its calls changes nothing in that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import FlagBoard, GuardConfig, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

from .agents import TASK, calls, rounds


@tool
def pay(amount: str) -> str:
    """Pay."""
    raise PermissionError("the token has expired")


@tool
def convert(amount: int) -> str:
    """Convert."""
    raise ValueError("no such currency")


def handler(error: ValueError) -> str:
    return f"handled: {error}"


def outcome(run: Callable[..., Any], handles: Any, name: str, args: dict[str, Any], **options: Any) -> str:
    """What the model reads of the call, or the error that ends the run."""

    def policy(messages: Any, turn: int) -> AIMessage:
        return AIMessage("I have told the user.") if rounds(messages) else calls(messages, (name, args))

    model = ScriptedChatModel(policy=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([pay, convert], handle_tool_errors=handles))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    if options:
        apply_guard(builder, **options)
    try:
        return str(run(builder.compile())["messages"][2].content)
    except Exception as error:
        return f"raises {type(error).__name__} from {type(error.__context__).__name__}"


@pytest.mark.parametrize(
    "handles",
    [True, False, "Sorry.", (ValueError,), ValueError, handler],
    ids=["all", "none", "a text", "a tuple", "a class", "a function"],
)
@pytest.mark.parametrize(
    ("name", "args"), [("pay", {"amount": "1"}), ("convert", {"amount": "no number"}), ("convert", {"amount": 1})]
)
@pytest.mark.parametrize("run", [lambda graph: graph.invoke(TASK), lambda graph: asyncio.run(graph.ainvoke(TASK))])
def test_errors_are_handled_or_raised_as_without_the_gate(
    run: Callable[..., Any], name: str, args: dict[str, Any], handles: Any
) -> None:
    expected = outcome(run, handles, name, args)

    assert outcome(run, handles, name, args, board=FlagBoard(), refuse_pointless=True) == expected
    assert outcome(run, handles, name, args, board=FlagBoard(GuardConfig(cursor=True))) == expected
