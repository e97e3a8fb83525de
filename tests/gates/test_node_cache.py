"""Agents whose node has a cache policy: the cache keeps what the agent has answered, and no decision of a gate."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import CachePolicy

from trajectory_guard import apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy
from trajectory_guard.gates.node_cache import CacheWithoutGates, without_gates
from trajectory_guard.gates.own_keys import MEMORY

from .agents import (
    NUDGED_THEN_STOPPED,
    TASK,
    agent_node,
    async_context,
    lookup,
    new_board,
    outline,
    repeats,
    search,
    thread,
    works,
)

pytestmark = async_context
KEYS = ["messages", "loop_status"]


def _by_messages(state: Any) -> str:
    return repr([(one.type, one.text) for one in state["messages"]])


class Agent:
    """A graph whose agent is cached, and how often its model was called."""

    def __init__(self, policy: Policy) -> None:
        self.calls = 0

        def counted(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
            self.calls += 1
            return policy(messages, turn)

        builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
        builder.add_node("agent", agent_node(counted), cache_policy=CachePolicy(key_func=_by_messages))
        builder.add_node("tools", ToolNode([search, lookup]))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition, ["tools", END])
        builder.add_edge("tools", "agent")
        self.builder = builder

    def compiled(self, *, guard: bool = True, cache: BaseCache[Any] | None = None) -> Any:
        if guard:
            apply_guard(self.builder, board=new_board())
        return self.builder.compile(cache=cache or InMemoryCache(), checkpointer=InMemorySaver())


def _run(graph: Any, name: str, is_async: bool) -> Any:
    if is_async:
        return asyncio.run(graph.ainvoke(TASK, thread(name), output_keys=KEYS))
    return graph.invoke(TASK, thread(name), output_keys=KEYS)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_hit_in_another_thread_brings_no_status_of_the_first(is_async: bool) -> None:
    agent = Agent(works(3))
    graph = agent.compiled()

    first = _run(graph, "one", is_async)
    calls = agent.calls
    second = _run(graph, "two", is_async)

    assert first["loop_status"]["trajectory_id"] == "one"
    assert agent.calls == calls  # the cache is used as before
    assert outline(second["messages"]) == outline(first["messages"])
    assert not second.get("loop_status")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_thread_is_nudged_and_stopped_by_its_own_gate(is_async: bool) -> None:
    agent = Agent(repeats())
    graph = agent.compiled()

    for name in ("one", "two"):
        result = _run(graph, name, is_async)

        assert outline(result["messages"]) == NUDGED_THEN_STOPPED
        assert result["loop_status"]["trajectory_id"] == name


def test_streams_mark_hits_as_without_the_guard() -> None:
    found = []
    for guard in (False, True):
        graph = Agent(works(2)).compiled(guard=guard)
        for name in ("one", "two"):
            chunks = list(graph.stream(TASK, thread(name), stream_mode="updates"))
        found.append([(*chunk,) for chunk in chunks])

    assert found[0] == found[1]
    assert ("agent", "__metadata__") in found[1]


def test_guarded_invoke_leaves_the_graphs_own_cache_alone() -> None:
    cache = InMemoryCache[Any]()
    graph = Agent(works(2)).compiled(guard=False, cache=cache)
    board = new_board()

    guarded_invoke(graph, TASK, thread("one"), board=board)
    second = guarded_invoke(graph, TASK, thread("two"), board=board)

    assert graph.cache is cache
    assert second["loop_status"] == {} or "loop_status" not in second


def test_an_entry_of_before_is_read_without_its_decision() -> None:
    inner = InMemoryCache[Any]()
    ns = ("writes", "agent")
    own = [("loop_status", {"status": "ok"}), (MEMORY, {})]
    inner.set(
        {
            (ns, "ok"): ([("messages", "answer"), *own], None),
            (ns, "nudged"): ([("messages", "answer"), ("loop_status", {"status": "nudged"}), (MEMORY, {})], None),
            (ns, "nothing"): (own, None),
            (ns, "the user's"): ([("loop_status", "mine")], None),
        }
    )
    cache = CacheWithoutGates(inner)
    keys = [(ns, key) for key in ("ok", "nudged", "nothing", "the user's")]
    kept = {(ns, "ok"): [("messages", "answer")], (ns, "the user's"): [("loop_status", "mine")]}

    found = cache.get(keys)

    assert {key: [tuple(one) for one in writes] for key, writes in found.items()} == kept
    cache.clear([ns])
    assert cache.get(keys) == asyncio.run(cache.aget(keys)) == {}


def test_the_wrapper_is_the_cache_in_everything_else() -> None:
    inner = InMemoryCache[Any]()
    cache: Any = without_gates(inner)

    assert without_gates(cache) is cache
    assert without_gates(None) is None
    assert cache._cache is inner._cache
    assert copy.copy(cache)._cache is inner._cache
    asyncio.run(cache.aset({(("n",), "k"): ([("a", 1)], None)}))
    asyncio.run(cache.aclear())
    assert cache.get([(("n",), "k")]) == {}
