"""Agents that the functions of a graph's nodes call: guarded with the graph, or named in a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled

from .agents import TASK, async_context, new_board, outline, repeats, search

STOPPED = "hatatatNatatS"
UNGUARDED = "hatatatatatatatata"


def _worker(*middleware: Any) -> Any:
    return create_agent(ScriptedChatModel(policy=repeats()), [search], middleware=middleware, name="worker")


WORKER = _worker()
GUARDED = _worker(TrajectoryGuardMiddleware(board=new_board()))


def _asks(agent: Any, state: Any) -> dict[str, Any]:
    return {"messages": agent.invoke(TASK)["messages"]}


def closure() -> Any:
    worker = _worker()
    return lambda state: _asks(worker, state)


def coroutine() -> Any:
    worker = _worker()

    async def node(state: Any) -> dict[str, Any]:
        return {"messages": (await worker.ainvoke(TASK))["messages"]}

    return node


def decorated() -> Any:
    asks = closure()

    @wraps(asks)
    def node(state: Any) -> Any:
        return asks(state)

    return node


def partly_called() -> Any:
    return partial(_asks, _worker())


def called_by_keyword() -> Any:
    def node(state: Any, agent: Any) -> dict[str, Any]:
        return _asks(agent, state)

    return partial(node, agent=_worker())


def runnable() -> Any:
    return RunnableLambda(closure())


def sequence() -> Any:
    return RunnableLambda(lambda state: TASK) | _worker() | (lambda state: {"messages": state["messages"]})


def parts_that_lead_back() -> Any:
    worker = _worker()

    def node(state: Any, again: bool = False) -> dict[str, Any]:
        return _asks(worker, state) if again else itself(state)

    itself = partial(node, again=True)
    return node


def _compiled(node: Any, way: str) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("research", node)
    builder.add_edge(START, "research")
    if way == "apply_guard":
        return apply_guard(builder, board=new_board()).compile()
    return guard_compiled(builder.compile(), board=new_board())


def _ran(messages: list[Any]) -> str:
    return outline(messages[1:])  # without the parent's own request


WAYS = pytest.mark.parametrize("way", ["apply_guard", "guard_compiled"])


# Found: under asyncio LangGraph calls a plain function through a ``functools.partial``, in which the agent was missed.
@pytest.mark.parametrize(
    "make",
    [closure, coroutine, decorated, partly_called, called_by_keyword, runnable, sequence, parts_that_lead_back],
)
@WAYS
@async_context
async def test_an_agent_that_a_node_holds_is_guarded_under_asyncio(make: Callable[[], Any], way: str) -> None:
    result = await _compiled(make(), way).ainvoke(TASK)

    assert _ran(result["messages"]) == STOPPED


@pytest.mark.parametrize(
    "make", [closure, decorated, partly_called, called_by_keyword, runnable, sequence, parts_that_lead_back]
)
@WAYS
def test_an_agent_that_a_node_holds_is_guarded(make: Callable[[], Any], way: str) -> None:
    assert _ran(_compiled(make(), way).invoke(TASK)["messages"]) == STOPPED


def test_the_agent_itself_stays_as_it_is() -> None:
    node = partly_called()

    _compiled(node, "guard_compiled")

    assert outline(node({})["messages"]) == UNGUARDED


@WAYS
def test_an_agent_behind_a_global_name_is_guarded(way: str) -> None:
    graph = _compiled(lambda state: _asks(WORKER, state), way)

    assert _ran(graph.invoke(TASK)["messages"]) == STOPPED
    assert outline(WORKER.invoke(TASK)["messages"]) == UNGUARDED


@WAYS
def test_an_agent_with_a_gate_of_its_own_is_not_warned_of(way: str, caplog: pytest.LogCaptureFixture) -> None:
    inner = _worker()
    with caplog.at_level(logging.WARNING, "trajectory_guard"):
        _compiled(lambda state: _asks(GUARDED if state else inner, state), way)

    assert "no gate guards" not in caplog.text
