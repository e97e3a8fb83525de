"""A graph that removes the agent's answer and asks again sees no recovery in the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.gates.agents import TASK, nudges, thread
from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.gates.said import Answers

MOST = 40


def rejecting(board: Any) -> tuple[Any, list[int]]:
    """An agent whose answers a second node removes, and the number of messages of each of its model calls."""
    asked: list[int] = []

    def answer(messages: Any, turn: int) -> AIMessage:
        asked.append(len(messages))
        return AIMessage("I cannot do it like this, sorry.")

    model = ScriptedChatModel(policy=answer)

    def check(state: MessagesState) -> dict[str, Any]:
        newest = state["messages"][-1]
        return {} if is_guard_message(newest) else {"messages": [RemoveMessage(id=str(newest.id))]}

    def onwards(state: MessagesState) -> str:
        ended = state["messages"] and state["messages"][-1].type == "ai"
        return END if ended or len(asked) >= MOST else "agent"

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("check", check)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "check")
    builder.add_conditional_edges("check", onwards, ["agent", END])
    apply_guard(builder, agent="agent", board=board)
    return builder.compile(), asked


def test_an_answer_that_is_removed_each_time_is_no_recovery(traced: Callable[..., Any]) -> None:
    graph, asked = rejecting(traced())
    messages = graph.invoke(TASK, thread("removed"))["messages"]

    assert len(nudges(messages)) == 2
    assert is_guard_message(messages[-1])
    assert len(asked) == 11


def test_only_another_answer_says_more() -> None:
    answers, run = Answers(), ("t", "r")
    said = [answers.says_more(run, *one) for one in (("a", ""), ("a", ""), ("b", ""), ("b", "b"), ("a", "b"), ("", ""))]
    assert said == [True, False, True, False, True, True]
    assert answers.says_more(("t", "other"), "a", "")
    assert answers.says_more(run, "", "b")  # an answer without words is no repetition
