"""Names that a user got wrong are refused, and the switch for an incident reaches every gate and processor."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import (
    IntegrityGate,
    StagnationGate,
    TrajectoryGuardMiddleware,
    TrajectoryGuardNode,
    apply_guard,
    guard_compiled,
    instrument,
)
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.rewire import GraphShapeError
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import TASK, agent_builder, agent_node, new_board, outline, repeats, search, works


def _graph(*, inner: bool = False, policy: Any = None, **options: Any) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy or works(3)))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("report", lambda state: {})
    builder.add_node("guard", TrajectoryGuardNode(board=new_board(), **options))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "guard")
    if not inner:
        return builder.compile()
    parent: Any = StateGraph(MessagesState)
    parent.add_node("worker", builder.compile())
    parent.add_edge(START, "worker")
    return parent.compile()


@pytest.mark.parametrize("inner", [False, True], ids=["", "sub-graph"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"agent": "agnt"}, r"agent='agnt'\): no such node \(did you mean 'agent'\?\); pass one of 'agent', 'guard'"),
        ({"agent": "planner"}, r"agent='planner'\): no such node; pass one of"),
        ({"agent": ""}, r"agent=''\): no such node"),
        (
            {"on_stop": "repotr"},
            r"on_stop='repotr'\): no such node \(did you mean 'report'\?\); pass one of 'end', 'raise'",
        ),
        ({"on_stop": "End"}, r"on_stop='End'\): no such node"),
    ],
)
def test_a_node_that_the_graph_does_not_have_is_refused_at_the_first_visit(
    options: Any, expected: str, inner: bool
) -> None:
    with pytest.raises(GraphShapeError, match=expected):
        _graph(inner=inner, **options).invoke(TASK)


@pytest.mark.parametrize("on_stop", ["end", "report"])
def test_nodes_that_exist_are_accepted(on_stop: str) -> None:
    messages = _graph(policy=repeats(8), on_stop=on_stop).invoke(TASK)["messages"]

    assert outline(messages).endswith("S")


@pytest.mark.parametrize("value", ["true", "1", "on", "YES"])
@pytest.mark.parametrize("surface", ["apply_guard", "node", "middleware"])
def test_disabled_reaches_every_gate(surface: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", value)
    graph: Any
    if surface == "apply_guard":
        graph = apply_guard(agent_builder(repeats(8)), board=new_board()).compile()
    elif surface == "node":
        graph = _graph(policy=repeats(8))
    else:
        middleware = TrajectoryGuardMiddleware(board=new_board())
        graph = create_agent(ScriptedChatModel(policy=repeats(8)), [search], middleware=[middleware])

    assert outline(graph.invoke(TASK)["messages"]) == "h" + "at" * 8 + "a"


def test_disabled_reaches_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "true")

    assert not TrajectoryGuardProcessor(board=new_board()).enabled
    provider = TracerProvider()
    assert not instrument(provider).enabled
    assert not instrument(provider).enabled


def test_any_other_value_disables_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "false")

    assert TrajectoryGuardProcessor(board=new_board()).enabled
    assert outline(_graph(policy=repeats(8)).invoke(TASK)["messages"]).endswith("S")


@pytest.mark.parametrize("switch", ["mode", "disabled"])
@pytest.mark.parametrize("kind", ["stagnation", "integrity"])
def test_gates_around_nodes_that_only_observe_route_forward(
    kind: str, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = new_board(mode="observe" if switch == "mode" else "enforce")
    gate: Any = StagnationGate(board=board) if kind == "stagnation" else IntegrityGate([bool], board=board)
    node, route = gate.wrap(lambda state: {}), gate.edge("go on", "break")
    for _ in range(3):
        node({})
    if switch == "disabled":
        assert route({}) == "break"
        monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "true")
    assert route({}) == "go on"
    assert gate.certificates  # recorded all the same


@pytest.mark.parametrize("switch", ["mode", "disabled"])
def test_a_gate_that_cannot_act_asks_no_collector(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if switch == "disabled":
        monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "true")
    keys: Any = {"collector_url": "http://localhost:1"}
    board = new_board(**keys, **({"mode": "observe"} if switch == "mode" else {}))
    apply_guard(builder := agent_builder(repeats(8)), board=board)
    builder.compile().invoke(TASK)

    assert not board.counts["errors.collector"]


@pytest.mark.parametrize("wrap", [guard_compiled, apply_guard])
def test_no_ending_is_none(wrap: Any) -> None:
    builder = agent_builder(repeats(8))
    graph = builder.compile() if wrap is guard_compiled else builder
    with pytest.raises(TypeError, match=r"on_stop: expected 'end', .* got None"):
        wrap(graph, on_stop=None, board=new_board())


@pytest.mark.parametrize("argument", ["agent", "tools"])
def test_a_node_is_named_by_a_text(argument: str) -> None:
    with pytest.raises(TypeError, match=rf"{argument}: expected the name of a node, or several, got 3"):
        apply_guard(agent_builder(repeats(8)), board=new_board(), **{argument: 3})  # type: ignore[arg-type]
