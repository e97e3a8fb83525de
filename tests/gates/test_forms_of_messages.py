"""Reducers that take one message in a write, and no list: what the guard adds has the form of what the nodes write."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from typing_extensions import TypedDict

from trajectory_guard import TrajectoryGuardNode, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.message_form import form_of

from .agents import NUDGED_THEN_FINISHED, NUDGED_THEN_STOPPED, new_board, obeys, outline, repeats, search, works

Reducer = Callable[[Any, Any], Any]
Builder = StateGraph[Any, Any, Any, Any]


def append(before: list[AnyMessage], one: AnyMessage) -> list[AnyMessage]:
    return [*before, one]


def append_checked(before: list[AnyMessage], one: AnyMessage) -> list[AnyMessage]:
    """Fails at a list, and at anything else that is no message."""
    return [*before, one.model_copy()]


def append_either(before: list[AnyMessage], new: Any) -> list[AnyMessage]:
    return [*before, *(new if isinstance(new, list) else [new])]


reducers = pytest.mark.parametrize("reducer", [append, append_checked, append_either])


def _builder(policy: Policy, reducer: Reducer) -> Builder:
    """Each node writes a message, and no list of messages."""
    state: Any = TypedDict("state", {"messages": Annotated[list, reducer]})
    model, tools = ScriptedChatModel(policy=policy), ToolNode([search])
    builder: Builder = StateGraph(state)
    builder.add_node("agent", lambda state: {"messages": model.invoke(state["messages"])})
    builder.add_node("tools", lambda state: {"messages": tools.invoke(state)["messages"][0]})
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "agent")
    return builder


def _question() -> Any:
    return {"messages": HumanMessage("hi")}


# Found: AttributeError, 'list' object has no attribute 'tool_calls'.
@reducers
@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize(("policy", "expected"), [(obeys, NUDGED_THEN_FINISHED), (repeats(), NUDGED_THEN_STOPPED)])
def test_a_nudge_and_a_stop_have_the_form_that_the_reducer_takes(
    reducer: Reducer, policy: Any, role: Any, expected: str
) -> None:
    applied = apply_guard(_builder(policy, reducer), nudge_role=role, board=new_board()).compile()
    copied = _builder(policy, reducer).compile()

    assert outline(applied.invoke(_question())["messages"]) == expected
    found = guarded_invoke(copied, _question(), nudge_role=role, board=new_board())
    assert outline(found["messages"]) == expected


@reducers
def test_a_node_wired_by_hand_writes_that_form(reducer: Reducer) -> None:
    builder = _builder(repeats(), reducer)
    builder.add_node("guard", TrajectoryGuardNode(agent="agent", board=new_board()))
    builder.edges.discard(("tools", "agent"))
    builder.add_edge("tools", "guard")

    assert outline(builder.compile().invoke(_question())["messages"]) == NUDGED_THEN_STOPPED


@reducers
def test_a_healthy_run_streams_what_it_streams_unguarded(reducer: Reducer) -> None:
    def chunks(graph: Any) -> list[Any]:
        return [
            {node: outline([change["messages"]]) for node, change in chunk.items()}
            for chunk in graph.stream(_question(), stream_mode="updates")
        ]

    unguarded = chunks(_builder(_searches(4), reducer).compile())

    assert chunks(apply_guard(_builder(_searches(4), reducer), board=new_board()).compile()) == unguarded


def _searches(times: int) -> Policy:
    """As ``works``, with the tool of these graphs."""
    plain = works(times)

    def policy(messages: Any, turn: int) -> AIMessage:
        answer = plain(messages, turn)
        return answer.model_copy(
            update={
                "tool_calls": [
                    {**call, "name": "search", "args": {"query": call["args"]["key"]}} for call in answer.tool_calls
                ]
            }
        )

    return policy


def test_a_node_that_writes_nothing_at_its_nudge_leaves_it_in_the_state() -> None:
    def agent(state: Any) -> Any:
        done = sum(one.type == "tool" for one in state["messages"])
        if done < 3:
            return {"messages": repeats()(state["messages"], 0)}
        return Command(goto=END)

    builder = _builder(repeats(), append)
    builder.nodes.pop("agent")
    builder.add_node("agent", agent)
    builder.branches.clear()
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].type == "ai" else END)

    result = apply_guard(builder, board=new_board()).compile().invoke(_question())

    assert outline(result["messages"]) == "hatatatN"


# Found: a reducer with effects of its own was called with made-up messages when the graph was compiled.
@pytest.mark.parametrize("reducer", [add_messages, append, append_either])
def test_in_a_healthy_run_a_reducer_is_called_as_in_an_unguarded_one(reducer: Reducer) -> None:
    seen: list[str] = []

    def noting(before: Any, new: Any) -> Any:
        seen.append(outline(_as_list(new)))
        return reducer(before, new)

    _builder(_searches(2), noting).compile().invoke(_question())
    unguarded = seen[:]
    seen.clear()
    graph = apply_guard(_builder(_searches(2), noting), board=new_board()).compile()

    assert seen == []
    graph.invoke(_question())
    assert seen == unguarded


@pytest.mark.parametrize(("reducer", "form"), [(add_messages, "new"), (operator.add, "new"), (append, "one")])
def test_the_form_that_a_reducer_takes(reducer: Reducer, form: str) -> None:
    assert form_of(_builder(repeats(), reducer).channels["messages"]) == form


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
