"""Copies of the public gates: agents are copied with their middleware, and sent to other processes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain.agents import create_agent

from tests.gates.agents import STOP_AT, TASK, agent_builder, new_board, repeats, search, thread
from trajectory_guard import TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

kinds = pytest.mark.parametrize("kind", [TrajectoryGuardMiddleware, TrajectoryGuardNode])


def test_a_deep_copy_of_the_middleware_guards() -> None:
    guard = copy.deepcopy(TrajectoryGuardMiddleware(board=new_board()))
    agent = create_agent(ScriptedChatModel(policy=repeats()), [search], middleware=[guard])
    assert agent.invoke(TASK, thread())["loop_status"]["steps_taken"] == STOP_AT


@kinds
def test_a_deep_copy_reads_the_same_board(kind: Any) -> None:
    guard = kind(board=new_board())
    assert copy.deepcopy([guard])[0]._gate.gate.board is guard._gate.gate.board


def test_a_guarded_graph_can_be_copied_like_an_unguarded_one() -> None:
    """LangGraph itself cannot run such a copy; applications copy what holds a graph all the same."""
    board = new_board()
    graph = apply_guard(agent_builder(repeats()), refuse_pointless=True, board=board).compile()
    graph.invoke(TASK)

    twin = copy.deepcopy({"agent": graph})["agent"]

    assert twin is not graph
    assert twin.nodes["agent"]._gate.gate.board is board


@kinds
def test_pickling_says_why_it_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="belongs to the process"):
        pickle.dumps(kind(board=new_board()))
