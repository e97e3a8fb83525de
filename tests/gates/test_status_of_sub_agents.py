"""Tools that hand on the state of the agent that they call, as ``task`` of deep agents: its status stays where it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from trajectory_guard import AgentState, FlagBoard, TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.private_state import RememberingStatus, StatusChannel

from .agents import (
    TASK,
    agent_builder,
    async_context,
    calls,
    lookup,
    new_board,
    outline,
    repeats,
    rounds,
    search,
    thread,
    works,
)

pytestmark = async_context

Board = FlagBoard
NOT_HANDED_ON = ("messages", "structured_response")


def _agent(policy: Policy, tools: Sequence[BaseTool], board: Board, **options: Any) -> Any:
    middleware = TrajectoryGuardMiddleware(board=board)
    return create_agent(ScriptedChatModel(policy=policy), list(tools), middleware=[middleware], **options)


def _task(agent: Any, passes: Callable[[Any], Any] = lambda state: state) -> BaseTool:
    """A tool that calls an agent, and returns all of its state but the messages."""

    @tool
    def task(description: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand a task to another agent."""
        if description == "ask":
            interrupt("May I?")
        result = agent.invoke({"messages": [("user", description)]})
        update = passes({key: value for key, value in result.items() if key not in NOT_HANDED_ON})
        return Command(
            update={**update, "messages": [ToolMessage(result["messages"][-1].text, tool_call_id=tool_call_id)]}
        )

    return task


def _hands_on(*descriptions: str, then: int = 0) -> Policy:
    """Tasks side by side, then ``then`` calls of its own."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        done = rounds(messages)
        if done == 0:
            return calls(messages, *(("task", {"description": one}) for one in descriptions))
        return calls(messages, ("lookup", {"key": f"item {done}"})) if done <= then else AIMessage("Done.")

    return policy


def test_two_sub_agents_side_by_side_both_answer(run: Callable[..., Any]) -> None:
    board = new_board()
    main = _agent(_hands_on("one", "two"), [_task(_agent(works(2), [lookup], board))], board)

    result = run(main)

    assert outline(result["messages"]) == "hatta"
    assert result["loop_status"]["status"] == "ok"


WAYS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda state: state,
    "as JSON": lambda state: json.loads(json.dumps(state)),
}


@pytest.mark.parametrize("passes", WAYS.values(), ids=WAYS)
def test_the_stop_of_a_sub_agent_is_none_of_the_main_agent(passes: Callable[[Any], Any]) -> None:
    board = new_board()
    sub = _agent(repeats(9), [search], board)
    main = _agent(_hands_on("one", then=2), [_task(sub, passes), lookup], board, checkpointer=InMemorySaver())

    assert sub.invoke(TASK)["loop_status"]["status"] == "stopped"
    states = [one.get("loop_status") for one in main.stream(TASK, thread(), stream_mode="values")]
    shown = [one for one in states if one]

    assert shown
    assert {one["status"] for one in shown} == {"ok"}
    assert {one["last_intervention"] for one in shown} == {None}


def test_the_status_of_a_sub_agent_that_waited_in_a_checkpoint_stays_out_too() -> None:
    board = new_board()
    sub = _agent(repeats(9), [search], board)
    main = _agent(_hands_on("one", "ask"), [_task(sub), lookup], board, checkpointer=InMemorySaver())

    main.invoke(TASK, thread())
    result = main.invoke(Command(resume="yes"), thread())

    assert outline(result["messages"]) == "hatta"
    assert result["loop_status"]["status"] == "ok"


def test_a_graph_guarded_by_apply_guard_keeps_its_own_status() -> None:
    board = new_board()
    task = _task(_agent(repeats(9), [search], board))
    builder = apply_guard(agent_builder(_hands_on("one", then=2), tools=[task, lookup], state=AgentState), board=board)

    states = [one.get("loop_status") for one in builder.compile().stream(TASK, stream_mode="values")]
    shown = [one["status"] for one in states if one]

    assert set(shown) == {"ok"}


def test_of_several_statuses_of_its_own_the_channel_keeps_the_last() -> None:
    channel = StatusChannel(dict, "loop_status").from_checkpoint({"status": "ok", "run": "/0"})
    handed_on = channel.get()

    assert channel.update([RememberingStatus({"status": "nudged", "run": "/1"}), {"status": "mine"}, handed_on])
    assert channel.get() == {"status": "mine"}
    assert not channel.update([handed_on])
    assert channel.get() == {"status": "mine"}
