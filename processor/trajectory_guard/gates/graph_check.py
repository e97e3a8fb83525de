"""Checks of a graph before it runs: missing gates, unreachable gates, and agents outside of any gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from trajectory_guard.gates.agent_node import GuardedNode
from trajectory_guard.gates.compiled import has_tools, is_guarded, unguarded_agents
from trajectory_guard.gates.nested import CoveringNode
from trajectory_guard.gates.private_state import StatusChannel
from trajectory_guard.gates.rewire import handing_over, sub_graphs, unreachable


class GraphFinding(NamedTuple):
    """One finding of a graph check.

    Fields:
        severity: ``ok``, ``warn`` (something runs outside the gates) or ``problem`` (nothing is guarded).
        code: stable name: ``guarded``, ``no_gate``, ``unreachable_gate``, ``unguarded_hand_off``,
            ``unguarded_sub_graph``, ``unguarded_sub_agent``, ``not_a_graph``.
        subject: the node, tool or graph it is about.
        message: one sentence.
        fix: the line that fixes it, None where there is nothing to fix.
    """

    severity: Literal["ok", "warn", "problem"]
    code: str
    subject: str
    message: str
    fix: str | None = None


def check_graph(graph: Any) -> list[GraphFinding]:
    """Check a LangGraph graph. Returns the findings, worst first.

    Parameters:
        graph: a compiled graph, such as that of ``builder.compile()``, ``create_agent`` or ``create_deep_agent``; a
            builder is compiled for the look.
    """
    if isinstance(graph, StateGraph):
        graph = graph.compile()
    if not isinstance(graph, CompiledStateGraph):
        return [_not_a_graph(graph)]
    found = [*_gates(graph), *_sub_graphs(graph), *_sub_agents(graph)]
    return sorted(found, key=lambda finding: ("problem", "warn", "ok").index(finding.severity))


def _not_a_graph(graph: Any) -> GraphFinding:
    kind = type(graph).__name__
    if isinstance(graph, Pregel):
        return GraphFinding(
            "warn", "not_a_graph", kind, "A workflow of the functional API has no nodes to put a gate before.",
            "call TrajectoryGuardNode()(state) in its loop after the tools",
        )  # fmt: skip
    return GraphFinding("problem", "not_a_graph", kind, f"A LangGraph graph is expected, got {kind}.")


def _gates(graph: CompiledStateGraph[Any, Any, Any, Any]) -> Iterator[GraphFinding]:
    gates = [name for name, node in graph.nodes.items() if isinstance(node, GuardedNode)]
    outside = [name for name in handing_over(graph.builder) if name not in gates]
    if not is_guarded(graph):
        inside = [name for name, inner in sub_graphs(graph.builder).items() if is_guarded(inner)]
        if not inside and not any(True for _ in _guarded_inside(graph)):
            yield GraphFinding(
                "problem", "no_gate", str(graph.name), "No gate is in this graph: loops are seen, and nothing acts.",
                "apply_guard(builder) before compile(), or guarded_invoke(graph, input)",
            )  # fmt: skip
            return
    for name in unreachable(graph.builder, gates):
        yield GraphFinding("problem", "unreachable_gate", name, f"Nothing leads to the gate before {name!r}.")
    if outside:
        names = ", ".join(outside)
        yield GraphFinding(
            "warn", "unguarded_hand_off", names, f"{names} hand over to each other outside the gates.",
            "apply_guard(builder), or guarded_invoke(graph, input), on the graph that holds them",
        )  # fmt: skip
    yield GraphFinding("ok", "guarded", ", ".join(gates) or str(graph.name), "Gates are in place.")


def _guarded_inside(graph: Pregel[Any, Any, Any, Any]) -> Iterator[str]:
    for name, node in graph.nodes.items():
        for inner in node.subgraphs or ():
            if isinstance(inner, Pregel) and is_guarded(inner):
                yield name


def _sub_graphs(graph: CompiledStateGraph[Any, Any, Any, Any]) -> Iterator[GraphFinding]:
    guarded = {*_guarded_inside(graph)}
    for name, node in graph.nodes.items():
        if name in guarded:
            continue
        for inner in node.subgraphs or ():
            if isinstance(inner, CompiledStateGraph) and has_tools(inner):
                yield GraphFinding(
                    "warn", "unguarded_sub_graph", name, f"The tools of sub-graph {name!r} run outside the gates.",
                    "apply_guard() on its builder, or guarded_invoke() on this graph",
                )  # fmt: skip


def _sub_agents(graph: Pregel[Any, Any, Any, Any]) -> Iterator[GraphFinding]:
    if isinstance(graph.channels.get("loop_status"), StatusChannel):  # middleware guards what tools call
        return
    for node in graph.nodes.values():
        if isinstance(node, CoveringNode) or not isinstance(node.bound, ToolNode):
            continue
        for tool in node.bound.tools_by_name.values():
            for agent in unguarded_agents(tool):
                yield GraphFinding(
                    "warn", "unguarded_sub_agent", agent, f"Tool {tool.name!r} calls agent {agent!r}: no gate.",
                    "middleware=[TrajectoryGuardMiddleware()] for that agent",
                )  # fmt: skip
