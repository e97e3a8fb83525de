"""Models that number their calls anew in every turn, in messages without ids: each of their calls is a call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from tests.gates.agents import new_board
from trajectory_guard import FlagBoard, apply_guard
from trajectory_guard.gates.call_ids import with_uses
from trajectory_guard.gates.messages import new_steps

ROUNDS = 12
THREAD: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 100}
Arguments = Callable[[int, int], str]
"""Argument of a call by its round and its place in it."""


class Growing(TypedDict):
    messages: Annotated[list[Any], operator.add]


def newest(before: list[Any], new: list[Any]) -> list[Any]:
    """The question, and the last four rounds."""
    found = [*before, *new]
    return found if len(found) < 10 else [found[0], *found[-8:]]


class Trimmed(TypedDict):
    messages: Annotated[list[Any], newest]


def request(arguments: Arguments, turn: int, parallel: int) -> AIMessage:
    named = [{"name": "search", "args": {"query": arguments(turn, at)}, "id": f"call_{at}"} for at in range(parallel)]
    return AIMessage("", tool_calls=named)


@tool
def search(query: str) -> str:
    """Search."""
    return "No results found" if query.startswith("same") else f"record of {query}: {sum(map(ord, query))}"


def answer(call: Any) -> ToolMessage:
    found: ToolMessage = search.invoke({**call, "type": "tool_call"})
    return found


def as_dictionary(message: Any) -> dict[str, Any]:
    if message.type == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    calls = [
        {"id": call["id"], "type": "function",
         "function": {"name": call["name"], "arguments": f'{{"query": "{call["args"]["query"]}"}}'}}
        for call in message.tool_calls
    ]  # fmt: skip
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}


def run(
    arguments: Arguments, *, parallel: int = 1, plain: bool = False, state: type = Growing, board: FlagBoard | None = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """The requests of a run, and its ``loop_status``."""
    requests: list[AIMessage] = []

    def agent(_: Any) -> dict[str, Any]:
        if len(requests) == ROUNDS:
            said = AIMessage("Done.")
        else:
            requests.append(said := request(arguments, len(requests), parallel))
        return {"messages": [as_dictionary(said) if plain else said]}

    def tools(_: Any) -> dict[str, Any]:
        answers = [answer(call) for call in requests[-1].tool_calls]
        return {"messages": [as_dictionary(one) for one in answers] if plain else answers}

    def goes_on(state: Any) -> str:
        last = state["messages"][-1]
        return "tools" if (last.get("tool_calls") if plain else last.tool_calls) else END

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", goes_on, ["tools", END])
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=board or new_board()).compile(checkpointer=InMemorySaver())
    question: Any = {"role": "user", "content": "go"} if plain else ("user", "go")
    graph.invoke({"messages": [question]}, THREAD)
    return requests, graph.get_state(THREAD).values["loop_status"]


def same(turn: int, at: int) -> str:
    return f"same {at}"


def another(turn: int, at: int) -> str:
    return f"item {turn * 31 + at}"


forms = pytest.mark.parametrize("plain", [False, True], ids=["messages", "dictionaries"])


@forms
@pytest.mark.parametrize("parallel", [1, 3])
def test_the_same_calls_again_and_again_are_a_loop(plain: bool, parallel: int) -> None:
    requests, status = run(same, plain=plain, parallel=parallel)
    assert status["status"] == "stopped"
    assert len(requests) == 5


@forms
@pytest.mark.parametrize("parallel", [1, 3])
def test_calls_that_bring_something_new_are_all_read(plain: bool, parallel: int) -> None:
    requests, status = run(another, plain=plain, parallel=parallel)
    assert len(requests) == ROUNDS
    assert status["steps_taken"] == ROUNDS * parallel
    assert status["status"] == "ok"


@pytest.mark.parametrize("arguments", [same, another])
def test_where_older_messages_are_removed_no_call_counts_twice(arguments: Arguments) -> None:
    requests, status = run(arguments, state=Trimmed)
    assert status["steps_taken"] <= len(requests)


@pytest.mark.parametrize("parallel", [1, 3])
def test_calls_that_spans_show_too_count_once(traced: Callable[..., FlagBoard], parallel: int) -> None:
    requests, status = run(same, parallel=parallel, board=traced())
    assert (status["status"], len(requests)) == ("stopped", 5)


@pytest.mark.parametrize("parallel", [1, 3])
def test_healthy_calls_that_spans_show_too_count_once(traced: Callable[..., FlagBoard], parallel: int) -> None:
    requests, status = run(another, parallel=parallel, board=traced())
    assert (status["status"], status["steps_taken"]) == ("ok", len(requests) * parallel)


def test_the_first_call_with_an_id_is_named_by_it() -> None:
    """Its span names it so, too."""
    messages: list[Any] = []
    for ids in (["a", "b"], ["c"], ["a"], ["c", "a"]):
        requested = AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": one} for one in ids])
        messages += [requested, *(ToolMessage("ok", tool_call_id=one) for one in ids)]
    steps = new_steps(with_uses(messages), trajectory_id="t", known=lambda _: False, now=0.0)
    assert [step.step_id for step in steps] == ["a", "b", "c", "a#2", "c#2", "a#3"]
    assert [step.call_id for step in steps] == ["a", "b", "c", "a", "c", "a"]


def test_messages_with_ids_stay_as_they_are() -> None:
    messages: Sequence[Any] = [
        AIMessage("", id=str(at), tool_calls=[{"name": "search", "args": {}, "id": "call_0"}]) for at in range(3)
    ]
    assert with_uses(messages) is messages
