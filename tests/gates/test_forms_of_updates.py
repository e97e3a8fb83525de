"""Nodes write messages as lists, tuples, ``Overwrite`` in all its forms, or beside commands to a reducer of their own."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

from .agents import closing, new_board, nudges, repeats, search, thread, works

TOOLS = ToolNode([search])


def managed(before: list[Any] | None, new: Any) -> list[Any]:
    """A reducer that takes commands, as in LangGraph's how-to on managing a list."""
    if isinstance(new, dict) and new.get("type") == "keep":
        return list(before or [])[new["from"] : new["to"]]
    return [*(before or []), *(new if isinstance(new, list) else [new])]


class Managed(TypedDict):
    messages: Annotated[list[AnyMessage], managed]


class WithoutReducer(TypedDict):
    messages: list[AnyMessage]


class TupleWithoutReducer(TypedDict):
    messages: tuple[AnyMessage, ...]


class OwnReducer(TypedDict):
    messages: Annotated[list[AnyMessage], lambda before, new: [*(before or []), *new]]


class Tuples(TypedDict):
    messages: Annotated[tuple[AnyMessage, ...], operator.add]


def answer(state: Any, model: Any) -> Any:
    return model.invoke(list(state["messages"]))


def tools_whole(state: Any) -> Any:
    return {"messages": (*state["messages"], *TOOLS.invoke({"messages": list(state["messages"])})["messages"])}


def tools_as_tuple(state: Any) -> Any:
    return {"messages": tuple(TOOLS.invoke({"messages": list(state["messages"])})["messages"])}


def all_in(state: Any, model: Any) -> list[Any]:
    return [*state["messages"], answer(state, model)]


Node = Callable[[Any, Any], Any]
CASES: dict[str, tuple[type, Node, Any]] = {
    "Overwrite": (MessagesState, lambda s, m: {"messages": Overwrite(all_in(s, m))}, TOOLS),
    "sentinel": (MessagesState, lambda s, m: {"messages": {"__overwrite__": all_in(s, m)}}, TOOLS),
    "erased": (MessagesState, lambda s, m: {"messages": {"type": "__overwrite__", "value": all_in(s, m)}}, TOOLS),
    "command to a reducer": (
        Managed,
        lambda s, m: [
            Command(update={"messages": {"type": "keep", "from": -60, "to": None}}),
            Command(update={"messages": [answer(s, m)]}),
        ],
        TOOLS,
    ),
    "only one message": (Managed, lambda s, m: {"messages": answer(s, m)}, TOOLS),
    "no reducer, a tuple": (WithoutReducer, lambda s, m: {"messages": tuple(all_in(s, m))}, tools_whole),
    "a tuple without reducer": (TupleWithoutReducer, lambda s, m: {"messages": tuple(all_in(s, m))}, tools_whole),
    "a tuple that grows by addition": (
        TupleWithoutReducer, lambda s, m: {"messages": s["messages"] + (answer(s, m),)}, tools_whole
    ),
    "own reducer, a tuple": (OwnReducer, lambda s, m: {"messages": (answer(s, m),)}, tools_as_tuple),
    "addition of tuples": (Tuples, lambda s, m: {"messages": (answer(s, m),)}, tools_as_tuple),
}  # fmt: skip


def run(case: str, policy: Any, *, guarded: bool = True) -> Any:
    state, node, tools = CASES[case]
    model = ScriptedChatModel(policy=policy)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    builder.add_node("agent", lambda given: node(given, model))
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    if guarded:
        apply_guard(builder, board=new_board())
    graph = builder.compile(checkpointer=InMemorySaver())
    asked = (HumanMessage("Find it."),) if "tuple" in case else [HumanMessage("Find it.")]
    return graph.invoke({"messages": asked}, thread("1"))["messages"]


@pytest.mark.parametrize("case", CASES)
def test_a_nudge_goes_in_front_of_what_the_node_writes(case: str) -> None:
    plain, guarded = run(case, repeats(4), guarded=False), run(case, repeats(4))

    assert type(guarded) is type(plain)
    assert len(nudges(guarded)) == 1
    assert [one.type for one in guarded if one not in nudges(guarded)] == [one.type for one in plain]


@pytest.mark.parametrize("case", CASES)
def test_a_stop_is_written_in_the_same_form(case: str) -> None:
    guarded = run(case, repeats(20))

    assert type(guarded) is type(run(case, repeats(20), guarded=False))
    assert len(nudges(guarded)) == len(closing(guarded)) == 1
    assert closing(guarded)[0] is guarded[-1]


@pytest.mark.parametrize("case", CASES)
def test_a_healthy_run_leaves_no_error_in_the_log(case: str, caplog: pytest.LogCaptureFixture) -> None:
    plain, guarded = run(case, works(3), guarded=False), run(case, works(3))

    assert [one.type for one in guarded] == [one.type for one in plain]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_a_hand_over_to_the_parent_that_overwrites_keeps_the_nudge() -> None:
    model = ScriptedChatModel(policy=repeats(4))

    def inner(state: Any) -> Any:
        said = model.invoke(state["messages"])
        update = {"messages": {"__overwrite__": [*state["messages"], said]}}
        return Command(goto="tools" if said.tool_calls else END, graph=Command.PARENT, update=update)

    sub = StateGraph(MessagesState)
    sub.add_node("inner", inner)
    sub.add_edge(START, "inner")
    builder = StateGraph(MessagesState)
    builder.add_node("agent", sub.compile(), destinations=("tools",))
    builder.add_node("tools", TOOLS)
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    apply_guard(builder, board=new_board())
    messages = builder.compile().invoke({"messages": [HumanMessage("Find it.")]})["messages"]

    assert len(nudges(messages)) == 1
    assert messages[-1].content == "I give up."
