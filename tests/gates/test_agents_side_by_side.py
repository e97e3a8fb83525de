"""Agents that one node starts side by side, under real spans, whose models number their calls alike."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send

from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import Policy

from .agents import TASK, agent_node, new_board, outline, repeats, rounds, search, thread

AGENTS = 4
MANY = 24
"""More than a trajectory remembers of runs that have ended."""


class State(TypedDict):
    outlines: Annotated[list[str], operator.add]


def side_by_side(
    policy: Policy, tools: list[Any], board: Any, saver: Any, *, together: int, agents: int = AGENTS
) -> Any:  # fmt: skip
    """Several agents of one kind; in their first rounds, all tool calls end before a gate reads any of them."""
    all_reported = threading.Barrier(agents)

    def wait(state: MessagesState) -> dict[str, Any]:
        if rounds(state["messages"]) <= together:
            all_reported.wait(30)
        return {}

    agent: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    agent.add_node("agent", agent_node(policy))
    agent.add_node("tools", ToolNode(tools))
    agent.add_node("wait", wait)
    agent.add_edge(START, "agent")
    agent.add_conditional_edges("agent", tools_condition)
    agent.add_edge("tools", "wait")
    agent.add_edge("wait", "agent")
    graph = apply_guard(agent, tools="wait", agent="agent", board=board).compile()

    parent: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    parent.add_node("work", lambda state: {"outlines": [outline(graph.invoke(TASK)["messages"])]})
    parent.add_conditional_edges(START, lambda state: [Send("work", {})] * agents, ["work"])
    return parent.compile(checkpointer=saver)


@pytest.mark.parametrize("saved", [False, True], ids=["", "saver"])
@pytest.mark.parametrize(("times", "expected"), [(2, "hatata"), (8, "hatatatNatatS")], ids=["healthy", "looping"])
def test_each_agent_answers_for_its_own_calls(times: int, expected: str, saved: bool, traced: Any) -> None:
    board = traced()
    graph = side_by_side(repeats(times), [search], board, InMemorySaver() if saved else None, together=5)
    config = {**(thread("side by side") if saved else {}), "max_concurrency": AGENTS}

    found = graph.invoke({"outlines": []}, config)["outlines"]

    assert found == [expected] * AGENTS
    assert board.counts["errors.gate"] == 0
    assert board.counts["steps"] <= AGENTS * expected.count("t")


@pytest.mark.parametrize("with_spans", [False, True], ids=["", "spans"])
def test_each_of_many_agents_that_are_stuck_is_stopped(with_spans: bool, traced: Any) -> None:
    board = traced() if with_spans else new_board()
    graph = side_by_side(repeats(8), [search], board, None, together=5, agents=MANY)
    assert graph.invoke({"outlines": []}, {"max_concurrency": MANY})["outlines"] == ["hatatatNatatS"] * MANY
