"""Agents that tools call, wherever these have them from: guarded when they are called, and the host's objects stay."""

from __future__ import annotations

import asyncio
import operator
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from inspect import isasyncgenfunction, isgeneratorfunction
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel import Pregel
from typing_extensions import TypedDict

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled, guarded_invoke
from trajectory_guard.gates.nested import graphs_in, held_graph, intercept
from trajectory_guard.gates.rewire import GraphShapeError

from .agents import TASK, async_context, new_board, outline, repeats, search

STOPPED = "hatatatNatatS"
UNGUARDED = "hatatatatatatatata"


def _worker() -> Any:
    return create_agent(ScriptedChatModel(policy=repeats()), [search], name="worker")


def _node(run: Callable[[], Any]) -> Any:
    """A guarded graph with one function, which calls an agent, and a place for what that returns."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    anchor = _worker()  # so that there is something to guard

    def node(state: Any) -> dict[str, Any]:
        assert anchor
        return {"messages": run()["messages"]}

    builder.add_node("research", node)
    builder.add_edge(START, "research")
    return guard_compiled(builder.compile(), board=new_board())


def _ran(graph: Any) -> str:
    return outline(graph.invoke(TASK)["messages"][1:])


@lru_cache
def _made() -> Any:
    return _worker()


def _in_a_list() -> Callable[[], Any]:
    agents = [_worker()]
    return lambda: agents[0].invoke(TASK)


def _in_an_attribute() -> Callable[[], Any]:
    holder = SimpleNamespace(agent=_worker())
    return lambda: holder.agent.invoke(TASK)


def _in_a_dict_of_its_own_class() -> Callable[[], Any]:
    agents: Any = defaultdict(_worker)
    return lambda: agents["new"].invoke(TASK)


@pytest.mark.parametrize(
    "make", [_in_a_list, _in_an_attribute, _in_a_dict_of_its_own_class, lambda: lambda: _made().invoke(TASK)]
)
def test_an_agent_is_guarded_wherever_it_is_kept(make: Callable[[], Any]) -> None:
    assert _ran(_node(make())) == STOPPED


def test_a_node_that_alone_calls_agents_is_named() -> None:
    """Its code reaches the agent by a name of its module: the graph shows neither tools nor agents."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("research", lambda _: {"messages": _made().invoke(TASK)["messages"]})
    builder.add_edge(START, "research")

    with pytest.raises(GraphShapeError, match=r"agent= with the node whose function calls an agent"):
        guard_compiled(builder.compile(), board=new_board())
    assert _ran(guard_compiled(builder.compile(), agent="research", board=new_board())) == STOPPED


def test_state_that_functions_share_stays_theirs() -> None:
    session = {"agent": _worker(), "count": 0}
    current = session["agent"]

    def run() -> Any:
        session["count"] += 1
        return current.invoke(TASK)

    graph = _node(run)
    assert _ran(graph) == STOPPED
    current = SimpleNamespace(invoke=lambda task: {"messages": [AIMessage("mocked")]})
    assert graph.invoke(TASK)["messages"][-1].content == "mocked"
    assert session["count"] == 2


def test_an_invoke_of_the_hosts_own_is_respected() -> None:
    agent = _worker()
    graph = _node(lambda: agent.invoke(TASK))
    agent.invoke = lambda *args, **more: {"messages": [AIMessage("mocked")]}

    assert graph.invoke(TASK)["messages"][-1].content == "mocked"


def _pair(*middleware: Any) -> Any:
    """Two agents whose tools call each other."""
    found: dict[str, Any] = {}

    def asking(other: str) -> Any:
        @tool
        def ask(question: str) -> str:
            """Ask the other one."""
            return str(found[other].invoke({"messages": [("user", question)]})["messages"][-1].content)

        return ask

    def once(messages: Any, turn: int) -> AIMessage:
        if messages[0].content == "deep" or messages[-1].type == "tool":
            return AIMessage(f"done {messages[0].content}")
        question = "deep" if messages[0].content == "deeper" else "deeper"
        return AIMessage("", tool_calls=[{"name": "ask", "args": {"question": question}, "id": f"c{turn}"}])

    for name, other in (("one", "two"), ("two", "one")):
        found[name] = create_agent(ScriptedChatModel(policy=once), [asking(other)], middleware=middleware, name=name)
    return found["one"]


def test_agents_that_call_each_other_end() -> None:
    assert guarded_invoke(_pair(), TASK)["messages"][-1].content.startswith("done")
    guard = TrajectoryGuardMiddleware(board=new_board())
    assert _pair(guard).invoke(TASK)["messages"][-1].content.startswith("done")


def test_a_caller_beside_a_guarded_one_is_not_guarded() -> None:
    agent = _worker()
    graph = _node(lambda: agent.invoke(TASK))
    with ThreadPoolExecutor(4) as pool:
        guarded = [pool.submit(_ran, graph) for _ in range(4)]
        plain = [pool.submit(lambda: outline(agent.invoke(TASK)["messages"])) for _ in range(4)]

    assert {one.result() for one in plain} == {UNGUARDED}
    assert {one.result() for one in guarded} == {STOPPED}


@async_context
async def test_under_asyncio_as_well() -> None:
    agents = [_worker()]

    async def node(state: Any) -> dict[str, Any]:
        return {"messages": (await agents[0].ainvoke(TASK))["messages"]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    anchor = _worker()
    builder.add_node("research", node)
    builder.add_node("unused", anchor)
    builder.add_edge(START, "research")
    graph = guard_compiled(builder.compile(), board=new_board())
    result, plain = await asyncio.gather(graph.ainvoke(TASK), agents[0].ainvoke(TASK))

    assert outline(result["messages"][1:]) == STOPPED
    assert outline(plain["messages"]) == UNGUARDED


def test_a_consumer_of_a_stream_is_not_covered() -> None:
    agent = _worker()
    graph = _node(lambda: agent.invoke(TASK))
    seen = [outline(agent.invoke(TASK)["messages"]) for _ in graph.stream(TASK)]

    assert seen
    assert set(seen) == {UNGUARDED}


class Lazy:
    """As a lazy proxy: whoever asks for its class evaluates it."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not ready")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not ready")


def test_lazy_proxies_are_not_evaluated() -> None:
    lazy, agent = Lazy(), _worker()

    def node(state: Any) -> Any:
        return lazy, agent

    assert [graph for _, graph in graphs_in(node)] == [agent]
    assert held_graph(lazy) is None


def test_attributes_that_are_set_later_count() -> None:
    agent = _worker()
    guarded_invoke(agent, TASK, board=(board := new_board()))
    agent.checkpointer = InMemorySaver()
    config = {"configurable": {"thread_id": "t"}}
    guarded_invoke(agent, TASK, config, board=board)

    assert agent.get_state(config).values["messages"]


def test_graphs_are_intercepted_once() -> None:
    before = Pregel.stream, Pregel.astream
    intercept()
    assert (Pregel.stream, Pregel.astream) == before


def test_running_a_graph_stays_a_generator_of_its_kind_once_a_gate_exists() -> None:
    intercept()

    assert isgeneratorfunction(Pregel.stream)
    assert isasyncgenfunction(Pregel.astream)


class Plan(TypedDict):
    plan: list[str]
    done: Annotated[list[str], operator.add]


@pytest.mark.parametrize("way", ["apply_guard", "guarded_invoke"])
def test_a_graph_without_messages_may_call_agents(way: str) -> None:
    """Plan and execute: the agent has the messages, the graph around it has none."""
    board, worker = new_board(), _worker()

    def execute(state: Plan) -> dict[str, Any]:
        return {"done": [worker.invoke(TASK)["messages"][-1].content], "plan": state["plan"][1:]}

    builder = StateGraph(Plan)
    builder.add_node("execute", execute)
    builder.add_edge(START, "execute")
    builder.add_conditional_edges("execute", lambda state: "execute" if state["plan"] else END, ["execute", END])
    task = {"plan": ["one", "two"], "done": []}
    if way == "apply_guard":
        result = apply_guard(builder, board=board).compile().invoke(task)
    else:
        result = guarded_invoke(builder.compile(), task, board=board)
    assert len(result["done"]) == 2
    assert all(text.startswith("I could not get any further") for text in result["done"])
    assert not board.counts["errors.gate"]
