"""Graphs into which no gate can be put: the error names what was found, and the graph stays as it was."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import NotRequired, TypedDict

from trajectory_guard import GraphShapeError, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy
from trajectory_guard.gates.agent_node import GuardedNode
from trajectory_guard.gates.rewire import may_hold_messages

from .agents import (
    NUDGED_THEN_STOPPED,
    TASK,
    agent_builder,
    agent_node,
    gated,
    lookup,
    new_board,
    outline,
    repeats,
    search,
    visits,
    works,
)

Builder = StateGraph[Any, Any, Any, Any]


def _shape(builder: Any) -> Any:
    """Everything apply_guard may change."""
    return copy.deepcopy(
        (
            sorted(builder.edges),
            sorted(builder.waiting_edges),
            {
                source: {name: branch.ends for name, branch in found.items()}
                for source, found in builder.branches.items()
            },
            {name: (id(spec.runnable), spec.ends) for name, spec in builder.nodes.items()},
            sorted(builder.channels),
        )
    )


def _no_tools(policy: Policy) -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("writer", agent_node(policy))
    builder.add_node("critic", agent_node(policy))
    builder.add_edge(START, "writer")
    builder.add_edge("writer", "critic")
    return builder


def _no_way_back(policy: Policy) -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("planner", agent_node(policy))
    builder.add_node("act", ToolNode([search]))
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "act")
    builder.add_edge("act", END)
    return builder


def _two_ways_back(policy: Policy) -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("alice", agent_node(policy))
    builder.add_node("bob", agent_node(policy))
    builder.add_node("act", ToolNode([search]))
    builder.add_edge(START, "alice")
    builder.add_edge("alice", "act")
    builder.add_edge("bob", "act")
    builder.add_conditional_edges("act", lambda state: "alice", ["alice", "bob"])
    return builder


def _other_key(policy: Policy) -> Builder:
    class Talk(TypedDict):
        history: list[Any]

    builder: Builder = StateGraph(Talk)
    builder.add_node("agent", agent_node(policy, "history"))
    builder.add_node("tools", ToolNode([search], messages_key="history"))
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    return builder


def _bare_value(policy: Policy) -> Builder:
    builder: Builder = StateGraph(list)
    builder.add_node("agent", lambda state: state)
    builder.add_node("tools", lambda state: state)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    builder.add_edge("tools", "agent")
    return builder


MISFITS: list[tuple[Callable[[Policy], Builder], dict[str, Any], list[str]]] = [
    (_no_tools, {}, ["no tool node", "tools=", "'writer'", "'critic'"]),
    (_no_tools, {"tools": "act"}, ["'act'", "no such node", "'writer'", "'critic'"]),
    (_no_tools, {"tools": []}, ["no such node", "'writer'"]),
    (_no_way_back, {}, ["act", "no node", "agent=", "'planner'"]),
    (_no_way_back, {"agent": "planner"}, ["no edge", "act", "'planner'"]),
    (agent_builder, {"agent": "assistant"}, ["'assistant'", "no such node", "'agent'", "'tools'"]),
    (_other_key, {}, ["'messages'", "messages_key=", "'history'"]),
    (_bare_value, {}, ["bare value", "keys"]),
]
IDS = [
    "no tools", "unknown tools", "empty tools", "no way back", "agent not behind the tools",
    "unknown agent", "no such message key", "state without keys",
]  # fmt: skip


@pytest.mark.parametrize(("build", "options", "named"), MISFITS, ids=IDS)
def test_says_what_was_found_and_changes_nothing(
    build: Callable[[Policy], Builder], options: dict[str, Any], named: list[str]
) -> None:
    builder = build(repeats())
    before = _shape(builder)

    with pytest.raises(GraphShapeError) as caught:
        apply_guard(builder, board=new_board(), **options)

    assert [part for part in named if part not in str(caught.value)] == []
    assert _shape(builder) == before


@pytest.mark.parametrize(("agent", "expected"), [(None, ["alice", "bob"]), ("bob", ["bob"]), (["bob"], ["bob"])])
def test_each_agent_that_the_tools_return_to_gets_a_gate_unless_one_is_named(agent: Any, expected: list[str]) -> None:
    builder = _two_ways_back(repeats())
    builder.add_edge("alice", "bob")

    graph = apply_guard(builder, agent=agent, board=new_board()).compile()

    assert [name for name, node in graph.nodes.items() if isinstance(node, GuardedNode)] == expected


def test_a_builder_without_nodes_is_told_to_get_them_first() -> None:
    with pytest.raises(GraphShapeError, match="the builder has no nodes yet: add them before the guard"):
        apply_guard(StateGraph(MessagesState))


def test_calling_it_twice_is_refused_and_leaves_the_guarded_graph_intact() -> None:
    builder = apply_guard(agent_builder(works(1)), board=new_board())
    before = _shape(builder)

    with pytest.raises(GraphShapeError, match=r"guarded already.*twice"):
        apply_guard(builder, board=new_board())

    assert _shape(builder) == before
    assert gated(builder.compile()) == ["agent"]


def test_a_compiled_graph_is_pointed_to_guarded_invoke() -> None:
    with pytest.raises(GraphShapeError, match=r"not compiled yet, got CompiledStateGraph.*guarded_invoke"):
        apply_guard(agent_builder(repeats()).compile())  # type: ignore[arg-type]


def test_something_else_entirely_is_named() -> None:
    with pytest.raises(GraphShapeError, match=r"got dict$"):
        apply_guard({})  # type: ignore[arg-type]


def test_an_unknown_node_to_stop_at_is_reported_when_the_graph_is_compiled() -> None:
    builder = apply_guard(agent_builder(repeats()), on_stop="clean_up", board=new_board())

    with pytest.raises(ValueError, match="clean_up"):
        builder.compile()


def test_an_unhinted_router_needs_no_name_if_there_is_an_agent_node() -> None:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(works(1)))
    builder.add_node("tools", ToolNode([lookup]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", lambda state: "agent")

    graph = apply_guard(builder, board=new_board()).compile()

    assert visits(graph) == ["agent", "tools", "agent"]
    assert gated(graph) == ["agent"]


def test_an_unknown_role_for_the_nudge_is_refused() -> None:
    builder = agent_builder(repeats())
    before = _shape(builder)

    with pytest.raises(ValueError, match="nudge_role: 'robot' is none of 'user', 'system', 'tool'"):
        apply_guard(builder, nudge_role="robot", board=new_board())  # type: ignore[arg-type]

    assert _shape(builder) == before


# --- edges that come later, or never -----------------------------------------------------------------------------


def _without_edges(policy: Policy) -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode([search]))
    return builder


# Found: the gate got no edge, was never reached, and nothing said so.
def test_edges_may_be_added_after_apply_guard() -> None:
    builder = apply_guard(_without_edges(repeats()), board=new_board())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")

    assert outline(builder.compile().invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED


# Found: the recommended snippet ended after one tool call, unguarded.
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_tools_that_no_edge_leaves_get_one_back_to_the_agent_that_calls_them(conditional: bool, early: bool) -> None:
    builder = _without_edges(repeats())
    if early:
        apply_guard(builder, board=new_board())
    builder.add_edge(START, "agent")
    if conditional:
        builder.add_conditional_edges("agent", tools_condition)
    else:
        builder.add_edge("agent", "tools")
    if not early:
        apply_guard(builder, board=new_board())
    graph = builder.compile()

    assert outline(graph.invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED
    assert ("tools", "agent") in {(edge.source, edge.target) for edge in graph.get_graph().edges}


def test_a_graph_that_never_gets_edges_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(GraphShapeError, match="cannot determine where tools return to"):
        apply_guard(_without_edges(repeats()), board=new_board()).compile()


def test_an_agent_that_nothing_leads_to_is_refused_when_the_graph_is_compiled() -> None:
    builder = _without_edges(repeats())
    builder.add_node("other", lambda state: None)
    builder.add_edge(START, "other")
    builder.add_edge("other", END)
    builder.add_edge("agent", "tools")
    builder.add_edge("tools", "agent")

    with pytest.raises(GraphShapeError, match=r"nothing leads from the start to 'agent'.*agent="):
        apply_guard(builder, board=new_board()).compile()


def test_a_compiled_graph_whose_tools_end_it_is_not_changed_into_a_loop() -> None:
    builder = _without_edges(repeats())
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")

    with pytest.raises(GraphShapeError, match="no edge leads out of tools"):
        guarded_invoke(builder.compile(), TASK, board=new_board())


def test_a_node_to_stop_at_that_is_missing_is_named_with_its_argument() -> None:
    builder = apply_guard(agent_builder(repeats()), on_stop="human", board=new_board())

    with pytest.raises(
        GraphShapeError, match=r"on_stop='human': no such node; pass 'end', .* or one of 'agent', 'tools'"
    ):
        builder.compile()
    with pytest.raises(GraphShapeError, match="on_stop='human'"):
        guarded_invoke(agent_builder(repeats()).compile(), TASK, on_stop="human", board=new_board())


# --- states without messages -------------------------------------------------------------------------------------


class Search(TypedDict):
    question: str
    docs: Annotated[list[str], operator.add]
    rounds: int


def _without_messages() -> Builder:
    builder: Builder = StateGraph(Search)
    builder.add_node("retrieve", lambda state: {"docs": ["x"]})
    builder.add_node("rewrite", lambda state: {"question": "y"})
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "rewrite")
    builder.add_edge("rewrite", "retrieve")
    return builder


# Found: the error proposed keys that hold no messages; with one of them the gate compiled and saw nothing.
@pytest.mark.parametrize("options", [{}, {"messages_key": "docs", "tools": "retrieve"}, {"messages_key": "rounds"}])
def test_a_state_without_messages_is_refused_and_no_key_is_proposed(options: dict[str, Any]) -> None:
    with pytest.raises(GraphShapeError, match=r"no other key holds messages.*shared_board\(\)") as caught:
        apply_guard(_without_messages(), board=new_board(), **options)

    assert all(f"messages_key={name!r}" in str(caught.value) for name in [options.get("messages_key")] if name)
    assert "pass messages_key=" not in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list, True), (list[Any], True), (list[AnyMessage], True), (Annotated[list[AnyMessage], add_messages], True),
        (Sequence[BaseMessage], True), (list[BaseMessage] | None, True), (NotRequired[list[BaseMessage]], True),
        (list[dict[str, Any]], True), (list[tuple[str, str]], True), (Any, True), (list[AIMessage | HumanMessage], True),
        (list[str], False), (str, False), (int, False), (dict[str, Any], False), (set[int], False), (bool, False),
        (Annotated[list[str], operator.add], False), (list[Path], False), (str | None, False),
        # Found on Python 3.10: a TypeError in place of the error that names the keys.
        (type[BaseMessage], False), (type[str] | None, False), (Queue[BaseMessage], True), (list[type[str]], False),
    ],
)  # fmt: skip
def test_types_that_can_hold_messages(annotation: Any, expected: bool) -> None:
    assert may_hold_messages(annotation) is expected
