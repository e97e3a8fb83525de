"""``apply_guard``: whatever the graph looks like, every way from the tools to the agent leads through the gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, Send

from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import Policy

from .agents import (
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    async_context,
    both,
    gated,
    lookup,
    new_board,
    no_call_is_split_from_its_answer,
    obeys,
    outline,
    repeats,
    search,
    tool_runs,
    visits,
    works,
    works_in_pairs,
)

Builder = StateGraph[Any, Any, Any, Any]


def _agent_with(policy: Policy, agent: str = "agent") -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node(agent, agent_node(policy))
    builder.add_edge(START, agent)
    return builder


def _static_edge(policy: Policy) -> Builder:
    return agent_builder(policy)


def _custom_names(policy: Policy) -> Builder:
    builder = _agent_with(policy, "assistant")
    builder.add_node("act", ToolNode([search]))
    builder.add_conditional_edges("assistant", tools_condition, {"tools": "act", END: END})
    builder.add_edge("act", "assistant")
    return builder


def _function_as_tool_node(policy: Policy) -> Builder:
    """No ToolNode at all: a function called ``action``."""
    builder = _agent_with(policy)
    node = ToolNode([search])
    builder.add_node("action", lambda state: node.invoke(state))
    builder.add_conditional_edges("agent", tools_condition, {"tools": "action", END: END})
    builder.add_edge("action", "agent")
    return builder


def _path_map(policy: Policy) -> Builder:
    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([search]))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", lambda state: "again", {"again": "agent", "enough": END})
    return builder


def _literal_hint(policy: Policy) -> Builder:
    def route(state: MessagesState) -> Literal["agent", "__end__"]:
        return "agent"

    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([search]))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", route)
    return builder


def _unhinted_router(policy: Policy) -> Builder:
    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([search]))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", lambda state: "agent")
    return builder


def _unhinted_router_with_list(policy: Policy) -> Builder:
    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([search]))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", lambda state: ["agent"])
    return builder


def _annotated_command(policy: Policy) -> Builder:
    node = ToolNode([search])

    def tools(state: MessagesState) -> Command[Literal["agent"]]:
        return Command(goto="agent", update=node.invoke(state))

    builder = _agent_with(policy)
    builder.add_node("tools", tools)
    builder.add_conditional_edges("agent", tools_condition)
    return builder


def _plain_command(policy: Policy) -> Builder:
    """The node says nowhere that it returns a Command."""
    node = ToolNode([search])
    builder = _agent_with(policy)
    builder.add_node("tools", lambda state: Command(goto="agent", update=node.invoke(state)))
    builder.add_conditional_edges("agent", tools_condition)
    return builder


def _command_from_a_tool(policy: Policy) -> Builder:
    @tool("search")
    def handing_back(query: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Search, and say where to go on."""
        answer = ToolMessage("No results found", tool_call_id=tool_call_id, name="search")
        return Command(goto="agent", update={"messages": [answer]})

    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([handing_back]))
    builder.add_conditional_edges("agent", tools_condition)
    return builder


def _command_of_a_sub_graph(policy: Policy) -> Builder:
    """The tools are a sub-graph that hands back to the agent of its parent."""
    node = ToolNode([search])
    inner: Builder = StateGraph(MessagesState)
    inner.add_node(
        "run",
        lambda state: Command(graph=Command.PARENT, goto="agent", update={"messages": node.invoke(state)["messages"]}),
    )
    inner.add_edge(START, "run")
    builder = _agent_with(policy)
    builder.add_node("tools", inner.compile())
    builder.add_conditional_edges("agent", tools_condition)
    return builder


def _send_per_call(policy: Policy) -> Builder:
    def fan_out(state: MessagesState) -> list[Send] | str:
        wanted = state["messages"][-1].tool_calls
        return [Send("tools", [one]) for one in wanted] or END

    builder = _agent_with(policy)
    builder.add_node("tools", ToolNode([search, lookup, both]))
    builder.add_conditional_edges("agent", fan_out, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder


SHAPES: list[Callable[[Policy], Builder]] = [
    _static_edge,
    _custom_names,
    _function_as_tool_node,
    _path_map,
    _literal_hint,
    _unhinted_router,
    _unhinted_router_with_list,
    _annotated_command,
    _plain_command,
    _command_from_a_tool,
    _command_of_a_sub_graph,
    _send_per_call,
]


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__.strip("_"))
def shape(request: pytest.FixtureRequest) -> Callable[[Policy], Builder]:
    return request.param


def test_every_loop_passes_the_gate_once_and_takes_no_step_more(shape: Callable[[Policy], Builder]) -> None:
    graph = apply_guard(shape(repeats(3)), board=new_board(mode="observe")).compile()

    agent = "assistant" if "assistant" in graph.nodes else "agent"
    assert visits(graph) == visits(shape(repeats(3)).compile())
    assert gated(graph) == [agent] * 3


def test_nudges_and_stops_in_every_shape(shape: Callable[[Policy], Builder]) -> None:
    graph = apply_guard(shape(repeats()), board=new_board()).compile()

    assert outline(graph.invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED


@async_context
async def test_nudges_and_stops_in_every_shape_under_ainvoke(shape: Callable[[Policy], Builder]) -> None:
    graph = apply_guard(shape(repeats()), board=new_board()).compile()

    assert outline((await graph.ainvoke(TASK))["messages"]) == NUDGED_THEN_STOPPED


def test_does_not_interfere_with_a_short_run(shape: Callable[[Policy], Builder]) -> None:
    graph = apply_guard(shape(repeats(2)), board=new_board()).compile()

    assert outline(graph.invoke(TASK)["messages"]) == "hatata"


def test_the_original_routes_of_the_tools_stay() -> None:
    """A router out of the tools may still end the run by itself."""

    def route(state: MessagesState) -> str:
        return END if tool_runs(state["messages"]) == 2 else "agent"

    for ends in (None, {"agent": "agent", END: END}):
        builder = _agent_with(repeats())
        builder.add_node("tools", ToolNode([search]))
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_conditional_edges("tools", route, ends)
        graph = apply_guard(builder, board=new_board()).compile()

        assert visits(graph) == ["agent", "tools", "agent", "tools"]
        assert gated(graph) == ["agent"]


def test_a_router_with_two_targets_still_reaches_both() -> None:
    noted: list[int] = []
    builder = _agent_with(repeats(2))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("log", lambda state: noted.append(tool_runs(state["messages"])))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_conditional_edges("tools", lambda state: ["agent", "log"])
    graph = apply_guard(builder, board=new_board()).compile()

    seen = visits(graph)

    assert noted == [1, 2]
    assert (seen.count("agent"), seen.count("log")) == (3, 2)
    assert gated(graph) == ["agent"] * 2


def _two_tool_nodes(policy: Policy, *, join: bool) -> Builder:
    builder = _agent_with(policy)
    for name, own in (("find", search), ("look", lookup)):
        builder.add_node(name, _only(own.name, ToolNode([own])))
    builder.add_conditional_edges("agent", _to_both, ["find", "look", END])
    if join:
        builder.add_edge(["find", "look"], "agent")
    else:
        builder.add_edge("find", "agent")
        builder.add_edge("look", "agent")
    return builder


def _only(name: str, node: ToolNode) -> Callable[[Any], Any]:
    """A node that runs the calls of one tool and leaves the others to its neighbour."""
    return lambda state: node.invoke([one for one in state["messages"][-1].tool_calls if one["name"] == name])


def _to_both(state: MessagesState) -> list[str] | str:
    return ["find", "look"] if state["messages"][-1].tool_calls else END


@pytest.mark.parametrize("join", [False, True], ids=["edge each", "joined edge"])
def test_two_parallel_tool_nodes_meet_in_one_gate(join: bool) -> None:
    builder = apply_guard(_two_tool_nodes(works_in_pairs(3), join=join), tools=["find", "look"], board=new_board())
    graph = builder.compile()

    seen, messages = visits(graph), graph.invoke(TASK)["messages"]

    assert (seen.count("agent"), seen.count("find"), seen.count("look")) == (4, 3, 3)
    assert gated(graph) == ["agent"] * 3
    assert no_call_is_split_from_its_answer(messages)


def test_all_tool_nodes_are_found_without_being_named() -> None:
    builder = _agent_with(works(2))
    builder.add_node("find", ToolNode([search]))
    builder.add_node("look", ToolNode([lookup]))
    builder.add_conditional_edges("agent", tools_condition, {"tools": "look", END: END})
    builder.add_edge("find", "agent")
    builder.add_edge("look", "agent")

    graph = apply_guard(builder, board=new_board()).compile()

    assert visits(graph) == ["agent", "look", "agent", "look", "agent"]
    assert gated(graph) == ["agent"] * 2


def test_after_parallel_sends_the_gate_decides_once_when_all_have_answered() -> None:
    graph = apply_guard(_send_per_call(works_in_pairs(3)), board=new_board()).compile()

    seen, messages = visits(graph), graph.invoke(TASK)["messages"]

    assert (seen.count("agent"), seen.count("tools")) == (4, 6)
    assert gated(graph) == ["agent"] * 3
    assert outline(messages) == "hattattatta"


def test_a_node_between_tools_and_agent_stays_behind_the_gate() -> None:
    builder = _agent_with(repeats())
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("trim", lambda state: None)
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "trim")
    builder.add_edge("trim", "agent")
    graph = apply_guard(builder, board=new_board()).compile()

    assert visits(graph)[:4] == ["agent", "tools", "trim", "agent"]
    assert {*gated(graph)} == {"trim"}
    assert outline(graph.invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED


def _two_agents_in_a_row() -> Builder:
    """Each with its tools; only the second is stuck."""
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("planner", agent_node(works(2)))
    builder.add_node("worker", agent_node(repeats()))
    builder.add_node("planner_tools", ToolNode([lookup]))
    builder.add_node("worker_tools", ToolNode([search]))
    builder.add_edge(START, "planner")
    builder.add_conditional_edges("planner", tools_condition, {"tools": "planner_tools", END: "worker"})
    builder.add_conditional_edges("worker", tools_condition, {"tools": "worker_tools", END: END})
    builder.add_edge("planner_tools", "planner")
    builder.add_edge("worker_tools", "worker")
    return builder


@pytest.mark.parametrize("calls", [[{}], [{"tools": "planner_tools"}, {"tools": "worker_tools"}]], ids=["one", "two"])
def test_each_of_two_agents_gets_a_gate_of_its_own(calls: list[dict[str, Any]]) -> None:
    builder, board = _two_agents_in_a_row(), new_board()
    for options in calls:
        apply_guard(builder, board=board, **options)

    seen = gated(builder.compile())

    assert seen.count("planner") == 2
    assert seen.count("worker") == STOP_AT + 1  # the first of them because the planner has answered before
    assert seen[-1] == "worker"


def test_an_agent_inside_a_sub_graph_is_guarded_there() -> None:
    inner = apply_guard(agent_builder(repeats()), board=new_board()).compile()
    outer: Builder = StateGraph(MessagesState)
    outer.add_node("research", inner)
    outer.add_node("report", lambda state: None)
    outer.add_edge(START, "research")
    outer.add_edge("research", "report")
    graph = outer.compile()

    assert outline(graph.invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED
    assert visits(graph) == ["research", "report"]


def test_a_sub_graph_among_the_tools_is_still_found_by_the_graph() -> None:
    graph = apply_guard(_command_of_a_sub_graph(repeats()), board=new_board()).compile()

    assert [name for name, _ in graph.get_subgraphs()] == ["tools"]


def test_the_drawing_is_that_of_the_graph() -> None:
    def edges(builder: Builder) -> set[tuple[str, str]]:
        return {(edge.source, edge.target) for edge in builder.compile().get_graph().edges}

    assert edges(apply_guard(agent_builder(obeys), board=new_board())) == edges(agent_builder(obeys))


def test_apply_guard_returns_the_builder_it_was_given() -> None:
    builder = agent_builder(obeys)

    assert apply_guard(builder, board=new_board()) is builder


def test_the_retry_policy_of_the_tool_node_stays() -> None:
    failures = iter([ConnectionError("down"), None])
    node = ToolNode([search])

    def tools(state: MessagesState) -> Any:
        error = next(failures)
        if error is not None:
            raise error
        return node.invoke(state)

    builder = _agent_with(repeats(1))
    builder.add_node("tools", tools, retry_policy=RetryPolicy(initial_interval=0.01, jitter=False))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")

    assert visits(apply_guard(builder, board=new_board()).compile()) == ["agent", "tools", "agent"]
