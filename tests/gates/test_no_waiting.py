"""A gate holds up neither the event loop nor the agent: it waits for no model, and does I/O on a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.helpers import profiled
from trajectory_guard import Engine, FlagBoard, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.core.similarity.calibration import Calibration
from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings, Prepared

from .agents import NUDGED_THEN_STOPPED, TASK, agent_builder, agent_node, new_board, outline, repeats, search

POLICY = repeats(8)


def guarded_graph(**options: Any) -> Any:
    return apply_guard(agent_builder(POLICY), **options).compile()


def guarded_agent(**options: Any) -> Any:
    guard = TrajectoryGuardMiddleware(**options)
    return create_agent(ScriptedChatModel(policy=POLICY), [search], middleware=[guard])


def graph_with_a_node(**options: Any) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(POLICY))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("guard", TrajectoryGuardNode(**options))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "guard")
    return builder.compile()


SURFACES = pytest.mark.parametrize("build", [guarded_graph, guarded_agent, graph_with_a_node])


def waits(work: Callable[[], object]) -> int:
    """How often ``work`` waits on this thread for a condition that another thread brings about."""
    wait = threading.Condition.wait_for.__code__
    return profiled(work, lambda frame, event: event == "call" and frame.f_code is wait)


@SURFACES
def test_no_decision_waits_for_the_sentence_model(build: Callable[..., Any]) -> None:
    released = threading.Event()

    def embed(text: str) -> list[float]:
        released.wait(60)
        return [1.0]

    calibration = Calibration("model", 0.9, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1, 1, 1, 1, "digest", True)
    settler = BackgroundSettler(ModelSettings(), load=lambda: Prepared(embed, calibration))
    settler.start()
    while settler.state != "ready":
        time.sleep(0.001)
    settler.settle("how can I return a parcel", "sending goods back to the shop")
    board = FlagBoard()
    board.engine = Engine(settle=settler.settle)
    graph = build(board=board)
    try:
        results: list[Any] = []

        async def run() -> None:
            results.append(await graph.ainvoke(TASK))

        assert waits(lambda: asyncio.run(run())) == 0
        assert outline(results[0]["messages"]) == NUDGED_THEN_STOPPED
        assert not settler.wait(0.0)  # it was at work all the time
    finally:
        released.set()
        settler.close()


@SURFACES
def test_a_decision_that_reads_a_ledger_is_made_on_a_thread(build: Callable[..., Any], tmp_path: Path) -> None:
    threads: list[int] = []

    def state_of(state: Any) -> None:
        threads.append(threading.get_ident())

    board = new_board(budgets=[{"scope": "day", "tokens": 1_000_000}], spending_file=str(tmp_path / "spending.db"))
    asyncio.run(build(board=board, state_of=state_of).ainvoke(TASK))

    assert threads
    assert threading.get_ident() not in threads
