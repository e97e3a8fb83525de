"""States of plain ``{"role", "content"}`` dictionaries: a long history is converted once, and not for every decision."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from trajectory_guard import apply_guard
from trajectory_guard.gates import plain_messages
from trajectory_guard.gates.plain_messages import PlainMessages

from .agents import new_board

ROUNDS = 6


class Plain(TypedDict):
    messages: Annotated[list[Any], operator.add]


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that are converted."""
    seen: list[Any] = []
    convert = plain_messages.convert_to_messages

    def noting(messages: Any) -> Any:
        seen.extend(messages)
        return convert(messages)

    monkeypatch.setattr(plain_messages, "convert_to_messages", noting)
    return seen


def _builder() -> StateGraph[Any, Any, Any, Any]:
    def agent(state: Plain) -> dict[str, Any]:
        done = sum(one["role"] == "tool" for one in state["messages"])
        if done == ROUNDS:
            return {"messages": [{"role": "assistant", "content": "done"}]}
        function = {"name": "look", "arguments": f'{{"k": {done}}}'}
        asked = [{"id": f"c{done}", "type": "function", "function": function}]
        return {"messages": [{"role": "assistant", "content": "", "tool_calls": asked}]}

    def tools(state: Plain) -> dict[str, Any]:
        (asked,) = state["messages"][-1]["tool_calls"]
        answer = {"role": "tool", "content": f"record {asked['id']}", "tool_call_id": asked["id"]}
        return {"messages": [answer]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Plain)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].get("tool_calls") else END)
    builder.add_edge("tools", "agent")
    return builder


# Found: 15 ms in each round of a conversation of 1,000 messages, on the event loop.
def test_each_message_of_a_run_is_converted_once(converted: list[Any]) -> None:
    history = [{"role": ("user", "assistant")[at % 2], "content": f"message {at}"} for at in range(100)]
    question = {"messages": [*history, {"role": "user", "content": "go"}]}

    unguarded = _builder().compile().invoke(question)
    assert apply_guard(_builder(), board=new_board()).compile().invoke(question) == unguarded
    assert len(converted) == len(unguarded["messages"])


def test_a_message_that_was_changed_is_converted_again(converted: list[Any]) -> None:
    known, message = PlainMessages(), {"role": "user", "content": "hi"}
    (first,) = known.converted([message])
    message["content"] = "hello"
    (second,) = known.converted([message])

    assert [first.content, second.content] == ["hi", "hello"]
    assert known.converted([message, HumanMessage("whole")])[0] is second
    assert len(converted) == 2


@pytest.mark.parametrize("content", ["x" * 5_000, [{"type": "text", "text": "a picture"}]], ids=["long", "blocks"])
def test_large_contents_are_not_kept(content: Any, converted: list[Any]) -> None:
    known, message = PlainMessages(), {"role": "user", "content": content}

    assert known.converted([message]) == known.converted([message])
    assert len(converted) == 2


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, converted: list[Any]) -> None:
    monkeypatch.setattr(plain_messages, "_MAX_KEPT", 4)
    known, used = PlainMessages(), ("user", "used in between")
    messages = [("user", str(number)) for number in range(20)]
    for one in messages:
        known.converted([used, one])

    assert len(converted) == 21
    assert len(known._newer) + len(known._older) <= 8
