"""A model that requests a call with malformed arguments beside a sound one: no tool runs the former."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled

from .agents import TASK, agent_builder, calls, closing, lookup, new_board, nudges, rounds, search, thread


def _numbered(place: int) -> str:
    return f"call_{place}x"


def _random(place: int) -> str:
    return f"toolu_{uuid.uuid4().hex}"


def _with_malformed(request: AIMessage, call_id: str) -> AIMessage:
    broken = {"name": "lookup", "args": '{"key": ', "id": call_id, "error": "no JSON", "type": "invalid_tool_call"}
    return request.model_copy(update={"invalid_tool_calls": [broken]})


def _stuck(new_id: Callable[[int], str]) -> Policy:
    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        if rounds(messages) >= 12:
            return AIMessage("I give up.")
        return _with_malformed(calls(messages, ("search", {"query": "return policy"})), new_id(len(messages)))

    return policy


def _recovers(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    done = rounds(messages)
    if done >= 8:
        return AIMessage("Done.")
    request = calls(messages, ("lookup", {"key": f"item {done}"}))
    return _with_malformed(request, _numbered(done)) if done in (2, 5) else request


def _middleware(policy: Policy) -> Any:
    guard = TrajectoryGuardMiddleware(board=new_board())
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=[guard])


def _compiled(policy: Policy) -> Any:
    return guard_compiled(create_agent(ScriptedChatModel(policy=policy), [search, lookup]), board=new_board())


def _builder(policy: Policy) -> Any:
    return apply_guard(agent_builder(policy), board=new_board()).compile()


WAYS = pytest.mark.parametrize("way", [_middleware, _compiled, _builder])


# Found: the malformed call, which has no answer when the gate decides, kept every nudge and stop from being given.
@pytest.mark.parametrize("new_id", [_numbered, _random])
@WAYS
def test_it_is_nudged_and_stopped_as_without_the_malformed_call(way: Any, new_id: Callable[[int], str]) -> None:
    messages = way(_stuck(new_id)).invoke(TASK, thread(recursion_limit=60))["messages"]

    assert len(nudges(messages)) >= 1
    assert closing(messages) == [messages[-1]]
    assert rounds(messages) <= 7


@pytest.mark.newest  # LangChain 1.0 leaves malformed calls without an answer
@pytest.mark.parametrize("way", [_middleware, _compiled])
def test_every_call_is_answered_before_the_nudge(way: Any) -> None:
    messages = way(_stuck(_numbered)).invoke(TASK, thread(recursion_limit=60))["messages"]

    place = messages.index(nudges(messages)[0])
    asked = {
        one["id"]
        for message in messages[:place]
        if isinstance(message, AIMessage)
        for one in (*message.tool_calls, *message.invalid_tool_calls)
    }
    assert asked == {message.tool_call_id for message in messages[:place] if message.type == "tool"}


@WAYS
def test_an_agent_that_goes_on_is_left_alone(way: Any) -> None:
    messages = way(_recovers).invoke(TASK, thread(recursion_limit=60))["messages"]

    assert messages[-1].content == "Done."
    assert not nudges(messages)
