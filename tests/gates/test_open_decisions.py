"""A node that fails, waits or is cancelled: what a gate remembers of it, and for how long."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeTimeoutError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy

from tests.helpers import eventually
from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.core.policy import Level
from trajectory_guard.gates.gate import GateDecision
from trajectory_guard.gates.open_decisions import OpenDecisions

from .agents import (
    NUDGED_THEN_FINISHED,
    TASK,
    agent_builder,
    agent_node,
    async_context,
    new_board,
    nudges,
    obeys,
    outline,
    search,
)
from .agents import thread as thread_config


class Provider(AgentMiddleware[Any, Any, Any]):
    """The way to a model: it is down, or does not answer, once the model has been nudged.

    Attributes:
        is_asked: set when a request is on its way that is not answered.
        seen: the messages of that request, as far as anything still holds them.
    """

    def __init__(self, times: int = 1_000) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.seen: list[weakref.ref[Any]] = []
        self._times = times

    def _answers(self, messages: Sequence[Any]) -> bool:
        if not nudges(messages) or not self._times:
            return True
        self._times -= 1
        self.seen = [weakref.ref(message) for message in messages]
        return False

    def ask(self, messages: Sequence[Any]) -> None:
        if not self._answers(messages):
            raise ConnectionError("no route to host")

    async def aask(self, messages: Sequence[Any]) -> None:
        if not self._answers(messages):
            self.is_asked.set()
            await asyncio.Event().wait()

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.ask(request.messages)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await self.aask(request.messages)
        return await handler(request)

    @property
    def held(self) -> int:
        """Number of those messages that are still held."""
        gc.collect()
        return sum(reference() is not None for reference in self.seen)


Build = Callable[..., Any]


def guarded_graph(provider: Provider, saver: Any = None) -> Any:
    node = agent_node(obeys)

    def agent(state: Any) -> Any:
        provider.ask(state["messages"])
        return node(state)

    async def aagent(state: Any) -> Any:
        await provider.aask(state["messages"])
        return node(state)

    builder = agent_builder(obeys)
    builder.nodes["agent"].runnable = RunnableLambda(agent, aagent)
    return apply_guard(builder, board=new_board()).compile(checkpointer=saver)


def guarded_agent(provider: Provider, saver: Any = None) -> Any:
    middleware = [TrajectoryGuardMiddleware(board=new_board()), provider]
    return create_agent(ScriptedChatModel(policy=obeys), [search], middleware=middleware, checkpointer=saver)


BUILDS = pytest.mark.parametrize("build", [guarded_graph, guarded_agent])


def cancelled(graph: Any, provider: Provider, thread: str) -> None:
    """Run the graph until the provider does not answer, and hang up."""

    async def run() -> None:
        running = asyncio.create_task(graph.ainvoke(TASK, thread_config(thread)))
        await asyncio.wait_for(provider.is_asked.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())


def open_decisions(trajectory: str) -> int:
    """Decisions on a trajectory that anything still holds."""
    gc.collect()
    found = [one for one in gc.get_objects() if type(one) is GateDecision]
    return sum(one.trajectory_id == trajectory for one in found)


@BUILDS
def test_a_failed_run_leaves_no_message_behind(build: Build) -> None:
    provider = Provider()
    graph = build(provider)

    with pytest.raises(ConnectionError):
        graph.invoke(TASK)

    assert len(provider.seen) > 2
    assert provider.held == 0


@pytest.mark.parametrize("build", [guarded_graph, pytest.param(guarded_agent, marks=async_context)])
def test_a_cancelled_run_leaves_nothing_behind(build: Build) -> None:
    provider = Provider()
    graph = build(provider)

    cancelled(graph, provider, "hung up")

    assert len(provider.seen) > 2
    assert provider.held == 0
    assert open_decisions("hung up") == 0


@async_context
@pytest.mark.parametrize("in_middleware", [False, True])
def test_a_run_cancelled_while_a_thread_decides_leaves_nothing_behind(in_middleware: bool) -> None:
    """Budgets and a collector are asked on a thread, which nothing can cancel."""
    decides, is_cancelled = threading.Event(), threading.Event()

    def text(verdict: Any) -> str:
        decides.set()
        assert is_cancelled.wait(60)
        return "Try something else."

    board = new_board(nudge_text=text, budgets=[{"scope": "day", "tokens": 10**9}])
    if in_middleware:
        middleware = [TrajectoryGuardMiddleware(board=board)]
        graph: Any = create_agent(ScriptedChatModel(policy=obeys), [search], middleware=middleware)
    else:
        graph = apply_guard(agent_builder(obeys), board=board).compile()

    async def run() -> None:
        running = asyncio.create_task(graph.ainvoke(TASK, thread_config("undecided")))
        assert await asyncio.to_thread(decides.wait, 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        is_cancelled.set()

    asyncio.run(run())

    assert eventually(lambda: open_decisions("undecided") == 0)  # the thread goes on


@BUILDS
def test_a_cancelled_run_that_is_taken_up_again_gets_the_nudge_again(build: Build) -> None:
    provider = Provider(times=1)
    graph = build(provider, InMemorySaver())

    cancelled(graph, provider, "taken up")

    assert open_decisions("taken up") == 1
    assert outline(graph.invoke(None, thread_config("taken up"))["messages"]) == NUDGED_THEN_FINISHED
    assert open_decisions("taken up") == 0


@pytest.mark.parametrize("stand_in", [False, True])
def test_a_nudge_goes_to_the_agent_that_an_error_handler_leads_to(stand_in: bool) -> None:
    """In another task: the agent itself again, or one with another model."""
    provider = Provider(times=1)
    node = agent_node(obeys)

    def agent(state: Any) -> Any:
        provider.ask(state["messages"])
        return node(state)

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    handler: Any = lambda state: Command(goto="spare" if stand_in else "agent")  # noqa: E731
    builder.add_node("agent", agent, error_handler=handler)
    builder.add_node("spare", node)
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("spare", tools_condition)
    builder.add_conditional_edges("tools", lambda state: "agent", ["agent", "spare"])
    graph = apply_guard(builder, board=new_board()).compile()

    found = graph.invoke(TASK)["messages"]

    assert provider.seen
    assert outline(found) == NUDGED_THEN_FINISHED


def test_another_run_whose_messages_are_numbered_alike_gets_no_nudge_of_a_failed_one() -> None:
    provider = Provider(times=1)
    node = agent_node(obeys)

    def agent(state: Any) -> Any:
        provider.ask(state["messages"])
        return node(state)

    def number(state: Any) -> Any:
        answer = ToolNode([search]).invoke(state)["messages"][0]
        return {"messages": [answer.model_copy(update={"id": f"message {len(state['messages'])}"})]}

    builder = agent_builder(obeys)
    builder.nodes["agent"].runnable = RunnableLambda(agent)
    builder.nodes["tools"].runnable = RunnableLambda(number)
    graph = apply_guard(builder, board=new_board()).compile()
    with pytest.raises(ConnectionError):
        graph.invoke(TASK)
    before = [*TASK["messages"], AIMessage("", id="a"), HumanMessage("Once more?", id="b")]

    found = graph.invoke({"messages": [*before, AIMessage("", id="c"), HumanMessage("And now?", id="d")]})["messages"]

    assert provider.seen
    assert outline(found)[5:] == NUDGED_THEN_FINISHED[1:]


@async_context
def test_a_nudge_survives_the_time_limit_of_the_agent() -> None:
    provider = Provider(times=1)
    builder = agent_builder(obeys)
    node = agent_node(obeys)

    async def agent(state: Any) -> Any:
        await provider.aask(state["messages"])
        return node(state)

    del builder.nodes["agent"]
    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=NodeTimeoutError)
    builder.add_node("agent", agent, timeout=0.5, retry_policy=policy)
    graph = apply_guard(builder, board=new_board()).compile()

    found = asyncio.run(graph.ainvoke(TASK))["messages"]

    assert provider.seen
    assert outline(found) == NUDGED_THEN_FINISHED


def test_of_many_open_decisions_the_oldest_are_forgotten() -> None:
    kept = OpenDecisions()
    decision: Any = GateDecision(Level.OBSERVE, "t", None, None, [], {})
    for number in range(1_030):
        kept.keep({"configurable": {"__pregel_task_id": str(number)}}, decision, [])
    kept.keep({}, decision, [])  # outside of a graph nothing can be taken up

    assert len(kept) == 1_024
    assert kept.find({"configurable": {"__pregel_task_id": "5"}}) is None
    assert kept.find({"configurable": {"__pregel_task_id": "6"}}) is decision
    assert kept.find({}) is None
