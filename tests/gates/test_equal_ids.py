"""Runs without a thread id whose messages have the ids of another run: a cache keeps those of an answer, and an
application may write the same call into every conversation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from tests.gates.agents import agent_builder, closing, lookup, new_board, nudges, rounds, search
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel

_numbers = itertools.count()


def request(name: str, args: dict[str, Any], number: str) -> AIMessage:
    call = {"name": name, "args": args, "id": f"call{number}", "type": "tool_call"}
    return AIMessage("", id=f"message{number}", tool_calls=[call])


def searches(messages: list[BaseMessage], _: int) -> AIMessage:
    """The first answer comes from a cache; the later ones do not, since the tool has answered otherwise."""
    if rounds(messages) == 0:
        return request("lookup", {"key": "status"}, "0")
    new = f"-{next(_numbers)}"
    return request("search", {"query": "refund"}, new) if rounds(messages) < 3 else AIMessage("done", id=new)


def loop(messages: list[BaseMessage], _: int) -> AIMessage:
    return request("search", {"query": "refund"}, str(rounds(messages))) if rounds(messages) < 20 else AIMessage("done")


def guarded(policy: Policy, how: str, board: FlagBoard) -> Any:
    if how == "apply_guard":
        return apply_guard(agent_builder(policy), board=board).compile()
    middleware = [TrajectoryGuardMiddleware(board=board)]
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=middleware)


@pytest.mark.parametrize("how", ["middleware", "apply_guard"])
def test_a_healthy_run_that_is_answered_from_a_cache_is_left_alone_however_often(how: str) -> None:
    graph = guarded(searches, how, new_board())
    for number in range(10):
        messages = graph.invoke({"messages": [("user", f"question {number % 2}")]})["messages"]
        assert (nudges(messages), closing(messages), rounds(messages)) == ([], [], 3)


@pytest.mark.parametrize("how", ["middleware", "apply_guard"])
def test_a_loop_that_is_answered_from_a_cache_is_stopped_at_the_same_call_in_every_run(how: str) -> None:
    graph = guarded(loop, how, new_board())
    for _ in range(6):
        messages = graph.invoke({"messages": [("user", "What is the policy?")]})["messages"]
        assert (len(nudges(messages)), rounds(messages)) == (1, 5)


@pytest.mark.parametrize("how", ["middleware", "apply_guard"])
def test_a_call_that_the_application_writes_into_every_conversation_joins_none(how: str) -> None:
    graph = guarded(searches, how, new_board())
    for number in range(10):
        known = (request("lookup", {"key": "hours"}, "0"), ToolMessage("9 to 5", tool_call_id="call0"))
        messages = graph.invoke({"messages": [HumanMessage(f"question {number}"), *known]})["messages"]
        assert nudges(messages) == []
        assert messages[-1].content == "done"
