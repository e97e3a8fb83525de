"""Agents whose tools run elsewhere, in a front end or at a provider: the guard adds no node that answers for them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from trajectory_guard import TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.tool_hooks import being_built

from .agents import TASK, async_context, calls, lookup, new_board, nudges, rounds, search, thread

FRONT_END = {"type": "function", "function": {"name": "confirm", "parameters": {"type": "object", "properties": {}}}}
TOOLS: dict[str, list[Any]] = {"none": [], "front end": [FRONT_END], "mixed": [lookup, FRONT_END], "own": [lookup]}


class Answer(BaseModel):
    """The structured answer of an agent."""

    text: str


class Hooks(AgentMiddleware[Any, Any, Any]):
    """Another middleware, with a node of its own after the model."""

    def after_model(self, state: AgentState[Any], runtime: Any) -> None:
        """Look at the state."""


class RunsTools(AgentMiddleware[Any, Any, Any]):
    """Another middleware, which runs tools that only it knows."""

    def wrap_tool_call(self, request: Any, handler: Any) -> ToolMessage:
        """Answer the call."""
        return ToolMessage("run elsewhere", tool_call_id=request.tool_call["id"], name=request.tool_call["name"])

    async def awrap_tool_call(self, request: Any, handler: Any) -> ToolMessage:
        """As ``wrap_tool_call``."""
        return self.wrap_tool_call(request, handler)


def _review() -> AgentMiddleware[Any, Any, Any]:
    return HumanInTheLoopMiddleware(interrupt_on={"confirm": True})


EXTRAS: dict[str, tuple[Callable[[], AgentMiddleware[Any, Any, Any]], ...]] = {
    "alone": (), "after model": (Hooks,), "review": (_review,), "runs tools": (RunsTools,),
}  # fmt: skip
FORMATS: dict[str, Any] = {"text": None, "tool": ToolStrategy(Answer), "provider": ProviderStrategy(Answer)}


def asks_the_front_end(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    """One call of a tool in the front end, then the answer, in all forms of an answer."""
    if rounds(messages) == 0:
        return calls(messages, ("confirm", {}))
    return AIMessage('{"text": "Done."}')


def asks_then_submits(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    """As ``asks_the_front_end``, with an answer by a call."""
    return calls(messages, ("confirm", {})) if rounds(messages) == 0 else calls(messages, ("Answer", {"text": "Done."}))


def _agents(tools: str, extra: str, form: str) -> list[Any]:
    """The bare agent, and the guarded one."""
    model = ScriptedChatModel(policy=asks_then_submits if form == "tool" else asks_the_front_end)

    def agent(*guard: AgentMiddleware[Any, Any, Any]) -> Any:
        middleware = [*guard, *(make() for make in EXTRAS[extra])]
        saver = InMemorySaver()
        return create_agent(
            model, TOOLS[tools], response_format=FORMATS[form], checkpointer=saver, middleware=middleware
        )

    return [agent(), agent(TrajectoryGuardMiddleware(board=new_board()))]


def _edges(agent: Any) -> set[tuple[str, str]]:
    """Edges as they are drawn, but for the one from model to model, which any middleware around the model adds."""
    return {(one.source, one.target) for one in agent.get_graph().edges} - {("model", "model")}


def _seen(chunks: Sequence[Any]) -> list[Any]:
    """Nodes and messages in chunks of updates."""
    return [
        (node, [(one.type, one.text, getattr(one, "tool_calls", None)) for one in (update or {}).get("messages", ())])
        if isinstance(update, dict) or update is None
        else (node, [one.value for one in update])
        for chunk in chunks
        for node, update in chunk.items()
    ]


def _run(agent: Any, way: str) -> list[Any]:
    """All chunks of a run, and of its continuation if a person is asked."""
    config = thread(recursion_limit=12)

    def chunks(given: Any) -> list[Any]:
        if way == "sync":
            return list(agent.stream(given, config, stream_mode="updates"))

        async def collect() -> list[Any]:
            return [chunk async for chunk in agent.astream(given, config, stream_mode="updates")]

        return asyncio.run(collect())

    found = chunks(TASK)
    while agent.get_state(config).interrupts and len(found) < 40:
        found += chunks(Command(resume={"decisions": [{"type": "reject", "message": "no"}]}))
    return _seen(found)


def _outcome(agent: Any, way: str) -> Any:
    try:
        return _run(agent, way)
    except Exception as error:  # some of these agents never end, with the guard or without
        return type(error)


@async_context
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("tools", TOOLS)
def test_the_guarded_agent_has_the_same_nodes_and_writes_the_same(tools: str, extra: str, form: str, way: str) -> None:
    bare, guarded = _agents(tools, extra, form)

    assert guarded.nodes.keys() == bare.nodes.keys()
    assert _edges(guarded) == _edges(bare)
    assert _outcome(guarded, way) == _outcome(bare, way)


@pytest.mark.parametrize("tools", [[], [FRONT_END]], ids=["no tools", "front end"])
def test_calls_of_the_front_end_stay_open_until_it_answers(tools: list[Any], run: Callable[..., Any]) -> None:
    middleware = TrajectoryGuardMiddleware(board=new_board())
    agent = create_agent(
        ScriptedChatModel(policy=asks_the_front_end), tools, middleware=[middleware], checkpointer=InMemorySaver()
    )

    asked = run(agent, TASK, thread())["messages"]
    (call,) = asked[-1].tool_calls
    answered = run(agent, {"messages": [ToolMessage("clicked yes", tool_call_id=call["id"])]}, thread())["messages"]

    assert [one.type for one in asked] == ["human", "ai"]
    assert answered[-1].text == '{"text": "Done."}'


def test_an_agent_without_tools_of_its_own_is_still_nudged() -> None:
    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        return AIMessage("Done.") if nudges(messages) else calls(messages, ("confirm", {"question": "sure?"}))

    middleware = TrajectoryGuardMiddleware(board=new_board())
    agent = create_agent(
        ScriptedChatModel(policy=policy), [FRONT_END], middleware=[middleware], checkpointer=InMemorySaver()
    )
    messages = agent.invoke(TASK, thread())["messages"]
    for _ in range(6):
        if not messages[-1].tool_calls:
            break
        answers = [ToolMessage("No results found", tool_call_id=one["id"]) for one in messages[-1].tool_calls]
        messages = agent.invoke({"messages": answers}, thread())["messages"]

    assert nudges(messages)
    assert messages[-1].text == "Done."


def test_one_middleware_serves_agents_with_and_without_tools() -> None:
    middleware = TrajectoryGuardMiddleware(board=new_board())
    model = ScriptedChatModel(policy=asks_the_front_end)

    without = create_agent(model, [FRONT_END], middleware=[middleware])
    with_tools = create_agent(model, [search], middleware=[middleware])

    assert "tools" not in without.nodes
    assert "tools" in with_tools.nodes
    assert TrajectoryGuardMiddleware.wrap_tool_call is not AgentMiddleware.wrap_tool_call


class Counting(TrajectoryGuardMiddleware):
    """A class of the application's, with a tool hook of its own."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """As the guard."""
        return super().wrap_tool_call(request, handler)


def test_a_subclass_with_a_hook_of_its_own_keeps_the_node_that_it_asks_for() -> None:
    model = ScriptedChatModel(policy=asks_the_front_end)

    assert "tools" in create_agent(model, [], middleware=[Counting(board=new_board())]).nodes


def test_outside_create_agent_nothing_is_being_built() -> None:
    assert being_built(sys._getframe()) is None
    assert being_built(None) is None
