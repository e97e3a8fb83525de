"""States of the application's own that have something else under a key of the guard: an error names the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import AgentState as LangChainState
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langgraph.channels import LastValue
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel
from typing_extensions import NotRequired

from trajectory_guard import GraphShapeError, LoopStatus, TrajectoryGuardMiddleware, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.rewire import check_own_keys

from .agents import TASK, agent_builder, calls, lookup, new_board, outline, repeats, works

ERROR = r"the state holds str under 'loop_status', where a gate writes a dictionary \(LoopStatus\).*Rename that key"


class Text(MessagesState):
    loop_status: str


class Model(BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    loop_status: str = "running"


class AgentText(LangChainState[Any]):
    loop_status: NotRequired[str]


class OfAMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware with a state of its own."""

    state_schema = AgentText


@pytest.mark.parametrize("state", [Text, Model])
def test_apply_guard_names_the_key_and_leaves_the_graph_alone(state: type) -> None:
    builder = agent_builder(works(2), state=state)
    before = dict(builder.channels)

    with pytest.raises(GraphShapeError, match=ERROR):
        apply_guard(builder, board=new_board())

    assert builder.channels == before
    assert type(builder) is StateGraph


def test_guarded_invoke_names_the_key() -> None:
    graph = agent_builder(works(2), state=Text).compile()

    with pytest.raises(GraphShapeError, match=ERROR):
        guarded_invoke(graph, {**TASK, "loop_status": "mine"}, board=new_board())


def test_an_agent_that_edges_show_later_is_checked_when_the_graph_is_compiled() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Text)
    for name, spec in agent_builder(works(2), state=Text).nodes.items():
        builder.add_node(name, spec.runnable)
    apply_guard(builder, board=new_board())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "agent")

    with pytest.raises(GraphShapeError, match=ERROR):
        builder.compile()


@pytest.mark.parametrize(
    ("schema", "others"), [(AgentText, ()), (None, (OfAMiddleware(),))], ids=["the agent's", "another middleware's"]
)
@pytest.mark.parametrize("tools", [[], [lookup]], ids=["no tools", "tools"])
def test_create_agent_names_the_key(schema: Any, others: Sequence[Any], tools: list[Any]) -> None:
    middleware = [TrajectoryGuardMiddleware(board=new_board()), *others]

    with pytest.raises(GraphShapeError, match=ERROR):
        create_agent(ScriptedChatModel(policy=repeats()), tools, middleware=middleware, state_schema=schema)


def test_a_graph_whose_agents_are_all_in_sub_graphs_keeps_its_key() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Text)
    builder.add_node("work", agent_builder(works(2)).compile())
    builder.add_edge(START, "work")
    builder.add_edge("work", END)

    result = apply_guard(builder, board=new_board()).compile().invoke({**TASK, "loop_status": "mine"})

    assert result["loop_status"] == "mine"


@pytest.mark.parametrize(
    "annotation",
    [
        dict, dict[str, Any], Mapping[str, Any], Any, object, "dict[str, Any] | None", NotRequired[dict[str, Any]],
        Annotated[dict[str, Any], "x"], "a type that nothing resolves",
    ],
)  # fmt: skip
def test_a_key_that_can_hold_the_status_is_there_to_read_it(annotation: Any) -> None:
    check_own_keys([type("State", (), {"__annotations__": {"loop_status": annotation}})])


@pytest.mark.parametrize("annotation", [str, int, Literal["on", "off"], list[str], BaseModel, "str | None"])
def test_a_key_of_another_type_is_the_applications(annotation: Any) -> None:
    with pytest.raises(GraphShapeError, match="loop_status"):
        check_own_keys([type("State", (), {"__annotations__": {"loop_status": annotation}})])


def test_the_scratchpad_is_a_list() -> None:
    check_own_keys([type("State", (), {"__annotations__": {"trajectory_scratchpad": list[Any]}})])
    with pytest.raises(GraphShapeError, match="'trajectory_scratchpad', where a gate writes a list of steps"):
        check_own_keys([type("State", (), {"__annotations__": {"trajectory_scratchpad": str}})])


class OfTexts(BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    loop_status: dict[str, str] = {}


class AlsoOfTexts(MessagesState):
    loop_status: dict[str, str]


# Found: the node after the first decision failed with a ValidationError.
def test_a_state_that_is_validated_has_to_take_the_values_of_the_status() -> None:
    with pytest.raises(GraphShapeError, match=r"the state holds dict\[str, str\] under 'loop_status'"):
        apply_guard(agent_builder(works(2), state=OfTexts), board=new_board())

    graph = apply_guard(agent_builder(works(2), state=AlsoOfTexts), board=new_board()).compile()
    assert graph.invoke(TASK)["loop_status"]["status"] == "ok"


# --- keys that are declared to be read -------------------------------------------------------------------------------


class Declared(MessagesState):
    loop_status: LoopStatus
    trajectory_scratchpad: list[dict[str, Any]]


class DeclaredModel(BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    loop_status: dict[str, Any] = {}
    trajectory_scratchpad: list[Any] = []


def _messages(state: Any) -> list[Any]:
    return state["messages"] if isinstance(state, dict) else state.messages


def _side_by_side(state: type) -> Any:
    """Two agents that read the results of one round of tools in the same super-step."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    builder.add_node("plan", lambda state: {"messages": [calls(_messages(state), ("lookup", {"key": "1"}))]})
    builder.add_node("tools", ToolNode([lookup]))
    builder.add_node("writer", lambda state: {"messages": [AIMessage("written")]})
    builder.add_node("critic", lambda state: {"messages": [AIMessage("criticised")]})
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "tools")
    builder.add_edge("tools", "writer")
    builder.add_edge("tools", "critic")
    return builder


def _workers_side_by_side(state: type) -> Any:
    """Two sub-graphs that write the keys into the state of their parent."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    for name in ("first", "second"):
        builder.add_node(name, agent_builder(works(2), state=state).compile())
        builder.add_edge(START, name)
    return builder


def _run(build: Any, state: type, way: str) -> dict[str, Any]:
    agent = ["writer", "critic"] if build is _side_by_side else None
    if way == "unguarded":
        return build(state).compile().invoke(TASK)
    if way == "apply_guard":
        return apply_guard(build(state), agent=agent, board=new_board()).compile().invoke(TASK)
    return guarded_invoke(build(state).compile(), TASK, agent=agent, board=new_board())


# Found: InvalidUpdateError, "Can receive only one value per step".
@pytest.mark.parametrize("way", ["apply_guard", "guarded_invoke"])
@pytest.mark.parametrize(
    ("state", "build"),
    [(Declared, _side_by_side), (DeclaredModel, _side_by_side), (Declared, _workers_side_by_side)],
)
def test_keys_without_a_reducer_take_what_agents_side_by_side_write(state: type, build: Any, way: str) -> None:
    unguarded, result = (_run(build, state, one) for one in ("unguarded", way))

    assert outline(result["messages"]) == outline(unguarded["messages"])
    assert result["loop_status"]["status"] == "ok"
    assert "lookup" in str(result["trajectory_scratchpad"])


def test_a_key_without_a_reducer_holds_nothing_before_a_gate_has_decided() -> None:
    builder = apply_guard(_side_by_side(Declared), agent=["writer", "critic"], board=new_board())
    seen: list[dict[str, Any]] = list(builder.compile().stream(TASK, stream_mode="values"))
    plain: list[dict[str, Any]] = list(_side_by_side(Declared).compile().stream(TASK, stream_mode="values"))

    assert [set(one) for one in seen[:-1]] == [set(one) for one in plain[:-1]]


def test_a_key_of_another_type_in_the_parent_stays_as_it_is() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Text)
    builder.add_node("work", agent_builder(works(2)).compile())
    builder.add_edge(START, "work")

    assert type(apply_guard(builder, board=new_board()).compile().channels["loop_status"]) is LastValue
