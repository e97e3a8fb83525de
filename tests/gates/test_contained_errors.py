"""Whatever goes wrong in the guard between its decision and the agent: the agent goes on as if it had no guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates import agent_node, graph_gate, middleware
from trajectory_guard.gates.graph_gate import GraphGate
from trajectory_guard.telemetry import LOGGER

from .agents import NUDGED_THEN_STOPPED, TASK, agent_builder, new_board, outline, repeats, search
from .agents import agent_node as agent_function

UNGUARDED = "hatatatatatata"
"""``outline`` of an agent that repeats one call six times, then answers."""
POLICY = repeats(6)


def guarded_graph(board: FlagBoard, **more: Any) -> Any:
    return apply_guard(agent_builder(POLICY), board=board, **more).compile()


def guarded_agent(board: FlagBoard, **more: Any) -> Any:
    guard = TrajectoryGuardMiddleware(board=board, **more)
    return create_agent(ScriptedChatModel(policy=POLICY), [search], middleware=[guard])


def graph_with_a_node(board: FlagBoard, **more: Any) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_function(POLICY))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("guard", TrajectoryGuardNode(board=board, **more))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "guard")
    return builder.compile()


def run(graph: Any, is_async: bool) -> str:
    result = asyncio.run(graph.ainvoke(TASK)) if is_async else graph.invoke(TASK)
    return outline(result["messages"])


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("an error of the guard")


SURFACES = {"graph": guarded_graph, "middleware": guarded_agent, "node": graph_with_a_node}
EVERY = tuple(SURFACES)
ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@ASYNC
@pytest.mark.parametrize(
    ("surface", "owner", "part"),
    [
        *((surface, GraphGate, part) for surface in EVERY for part in ("act", "decide", "follow_branch")),
        *((surface, graph_gate, "note_status") for surface in EVERY),
        ("graph", agent_node, "split_status"),
        ("graph", GraphGate, "has_to_decide"),
        ("middleware", GraphGate, "has_to_decide"),
        ("middleware", middleware, "remembering"),
        ("middleware", middleware, "whole_status"),
    ],
)
def test_an_error_in_a_gate_lets_the_agent_go_on(
    surface: str, owner: Any, part: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = new_board(cursor=True)
    graph = SURFACES[surface](board)
    monkeypatch.setattr(owner, part, fails)

    assert run(graph, is_async) == UNGUARDED
    assert board.counts["errors.gate"] > 0


@ASYNC
@pytest.mark.parametrize("surface", EVERY)
@pytest.mark.parametrize(("text", "course"), [("nudged", UNGUARDED), ("closing", "hatatatNatatata")])
def test_a_nudge_or_closing_message_that_cannot_be_written_is_left_out_and_the_run_goes_on(
    text: str, course: str, surface: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = new_board()
    graph = SURFACES[surface](board)
    monkeypatch.setattr(GraphGate, text, fails)

    assert run(graph, is_async) == course
    assert board.counts["errors.gate"] > 0


@ASYNC
@pytest.mark.parametrize(
    ("surface", "owner", "part", "cursor"),
    [
        ("graph", agent_node._Writes, "_with_nudge", False),
        ("graph", agent_node, "all_messages", True),
        ("graph", agent_node, "keep_out_of_streams", False),
        ("middleware", middleware, "keep_out_of_streams", False),
        ("middleware", TrajectoryGuardMiddleware, "_recorded", True),
    ],
)
def test_an_error_behind_the_agent_does_not_undo_its_work(
    surface: str, owner: Any, part: str, cursor: bool, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = new_board(cursor=cursor)
    graph = SURFACES[surface](board)
    monkeypatch.setattr(owner, part, fails)

    assert run(graph, is_async).replace("N", "") in (UNGUARDED, NUDGED_THEN_STOPPED.replace("N", ""))
    assert board.counts["errors.gate"] > 0


class Raising(logging.Filter):
    """A filter of the application's that fails."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("an error of the application's filter")


@pytest.fixture
def failing_filter() -> Iterator[None]:
    logger, one = logging.getLogger(LOGGER), Raising()
    logger.addFilter(one)
    yield
    logger.removeFilter(one)


@ASYNC
@pytest.mark.parametrize("surface", EVERY)
def test_a_log_filter_that_raises_changes_no_run(surface: str, is_async: bool, request: pytest.FixtureRequest) -> None:
    plain = run(SURFACES[surface](new_board(cursor=True)), is_async)
    request.getfixturevalue("failing_filter")
    board = new_board(cursor=True)

    assert run(SURFACES[surface](board), is_async) == plain
    assert board.counts["errors.gate"] == 0
