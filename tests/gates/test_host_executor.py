"""The event loop's default executor is the host's: no gate waits for it, whatever it is configured with.

Tools of the host may fill it for minutes, or wait on it for the very agent whose gate is asked. Here it takes no work.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.gates.agents import TASK, async_context, closing, new_board, nudges
from trajectory_guard import (
    BudgetGate,
    FlagBoard,
    TrajectoryGuardMiddleware,
    TrajectoryGuardNode,
    apply_guard,
    guard_compiled,
)

pytestmark = async_context
BUDGET = {"budgets": [{"scope": "day", "tokens": 10**9}]}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "budget": BUDGET,
    "ledger": BUDGET,
    "collector": {"collector_url": "http://127.0.0.1:9", "collector_timeout_s": 0.2},
}


class _Model(BaseChatModel):
    """Asks the same eight times, without a thread."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> _Model:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(message.type == "ai" for message in messages)
        call = {"name": "search", "args": {"query": "return policy"}, "id": f"c{turn}"}
        message = AIMessage("", tool_calls=[call]) if turn < 8 else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        return self._generate(messages)


@tool
async def search(query: str) -> str:
    """Search the manual."""
    return "No results found"


async def call_model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await _Model().ainvoke(state["messages"])]}


async def route(state: MessagesState) -> str:
    return tools_condition(state["messages"])


def _builder(node: Any = call_model) -> StateGraph[Any]:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", node)
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "__end__"])
    builder.add_edge("tools", "agent")
    return builder


def _applied(board: FlagBoard) -> Any:
    builder = _builder()
    apply_guard(builder, board=board)
    return builder.compile()


def _own_node(board: FlagBoard) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("guard", TrajectoryGuardNode(board=board), destinations=("agent", "__end__"))
    builder.add_node("agent", call_model)
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "guard")
    builder.add_conditional_edges("agent", route, ["tools", "__end__"])
    builder.add_edge("tools", "guard")
    return builder.compile()


def _wrapped(board: FlagBoard) -> Any:
    return _builder(BudgetGate(board=board).wrap(call_model)).compile()


def _middleware(board: FlagBoard) -> Any:
    return create_agent(_Model(), [search], middleware=[TrajectoryGuardMiddleware(board=board)])


def _compiled(board: FlagBoard) -> Any:
    return guard_compiled(create_agent(_Model(), [search]), board=board)


GATES: dict[str, Callable[[FlagBoard], Any]] = {
    "apply_guard": _applied,
    "node": _own_node,
    "budget gate": _wrapped,
    "middleware": _middleware,
    "compiled": _compiled,
}


def _board(config: str, folder: Path) -> FlagBoard:
    file = {"spending_file": str(folder / "ledger.db")} if config == "ledger" else {}
    return new_board(**CONFIGS[config], **file)


async def _run_without_executor(graph: Any) -> list[BaseMessage]:
    """A run while the default executor takes no work: whoever asks it fails at once, instead of waiting for ever."""
    pool = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.shutdown()
    messages: list[BaseMessage] = (await graph.ainvoke(TASK))["messages"]
    return messages


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("gate", GATES)
def test_no_gate_needs_it(gate: str, config: str, tmp_path: Path) -> None:
    board = _board(config, tmp_path)
    messages = asyncio.run(_run_without_executor(GATES[gate](board)))
    assert (len(nudges(messages)), len(closing(messages))) == ((0, 0) if gate == "budget gate" else (1, 1))
    assert board.counts["errors.gate"] == 0


@pytest.mark.parametrize("config", ["budget", "ledger", "collector"])
@pytest.mark.parametrize("gate", GATES)
def test_where_no_thread_can_be_started_the_run_goes_on(
    gate: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = _board(config, tmp_path)
    graph = GATES[gate](board)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> list[BaseMessage]:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        try:
            return await _run_without_executor(graph)
        finally:
            monkeypatch.undo()

    messages = asyncio.run(run())
    assert (len(nudges(messages)), len(closing(messages))) == ((0, 0) if gate == "budget gate" else (1, 1))
    assert sum(count for name, count in board.counts.items() if name.startswith("errors.")) > 0


def test_tools_that_wait_for_an_agent_on_the_loop_fill_the_executor(tmp_path: Path) -> None:
    """Each tool holds a thread of the pool until its sub-agent has answered, and all of the pool's threads do so."""
    pool = 2

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(pool))
        sub_agent = GATES["middleware"](_board("ledger", tmp_path))

        def ask() -> str:
            found = asyncio.run_coroutine_threadsafe(sub_agent.ainvoke(TASK), loop).result(60)
            return str(found["messages"][-1].type)

        return list(await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(pool))))

    assert asyncio.run(run()) == ["ai"] * pool


@pytest.mark.parametrize("name", ["awrap_model_call", "awrap_tool_call"])
@pytest.mark.parametrize("traced", [False, True])
def test_a_traced_hook_stays_a_coroutine_function(name: str, traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """LangSmith's trace of a hook encloses the model call only then."""
    from langsmith.run_helpers import tracing_context

    with tracing_context(enabled=traced):
        hook = getattr(TrajectoryGuardMiddleware(board=new_board()), name)
    assert inspect.iscoroutinefunction(hook) is traced
    assert list(inspect.signature(hook).parameters) == ["request", "handler"]
    assert hook.__name__ == name
