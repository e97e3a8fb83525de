"""Putting a node into an existing LangGraph builder: every way from the tools to the agent leads through it.

Reaches into ``StateGraph``'s ``edges``, ``branches``, ``waiting_edges`` and ``nodes``, because LangGraph has no call
to remove an edge; all of that knowledge is in this file.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypedDict, cast

from trajectory_guard.extras import missing

try:
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
    from langgraph.errors import ParentCommand
    from langgraph.graph import END, START, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

GUARD_NODE: Final = "trajectory_guard"
Builder = StateGraph[Any, Any, Any, Any]


class GraphShapeError(ValueError):
    """A graph into which no gate can be put as asked. The message says what was found and what to pass."""


def insert_gate(
    builder: Builder,
    gate_for: Callable[[str], Runnable[Any, Any]],
    *,
    tools: str | Sequence[str] | None,
    agent: str | None,
    messages_key: str,
    name: str,
    exits: Iterable[str],
) -> None:
    """Add the gate and reroute. Checks everything before it changes anything."""
    _check(builder, name, messages_key)
    sources = _find_tools(builder, tools)
    target = _find_agent(builder, sources, agent)
    builder.add_node(
        name, gate_for(target), input_schema=_channels(builder, messages_key), destinations=(target, *sorted(exits))
    )
    for source in sources:
        _redirect_edges(builder, source, target, name)
        _redirect_commands(builder, source, target, name)
    for starts, end in list(builder.waiting_edges):
        if end == target and set(starts) & set(sources):
            builder.waiting_edges.discard((starts, end))
            builder.waiting_edges.add((starts, name))


# --- finding the way -----------------------------------------------------------------------------------------


def _check(builder: Builder, name: str, messages_key: str) -> None:
    given: Any = builder
    if not isinstance(given, StateGraph):
        kind = type(given).__name__
        hint = "; for a compiled graph use guarded_invoke" if hasattr(given, "builder") else ""
        raise GraphShapeError(f"apply_guard needs a StateGraph that is not compiled yet, got {kind}{hint}")
    if name in builder.nodes:
        raise GraphShapeError(
            f"the graph already has a node {name!r}: apply_guard was called twice, or pass node_name="
        )
    if "__root__" in builder.channels:
        raise GraphShapeError("the graph's state is a bare value; the gate needs a state with keys (a TypedDict, say)")
    if messages_key not in builder.channels:
        keys = ", ".join(map(repr, builder.channels)) or "no keys"
        raise GraphShapeError(f"the graph's state has no {messages_key!r}; pass messages_key= with one of {keys}")


def _find_tools(builder: Builder, tools: str | Sequence[str] | None) -> list[str]:
    if tools is not None:
        named = [tools] if isinstance(tools, str) else list(tools)
        missing = [name for name in named if name not in builder.nodes]
        if missing or not named:
            raise GraphShapeError(f"tools={tools!r}: no such node; the graph has {_names(builder)}")
        return named
    found = [name for name, spec in builder.nodes.items() if isinstance(spec.runnable, ToolNode)]
    found = found or [name for name in ("tools", "tool", "action") if name in builder.nodes]
    if not found:
        raise GraphShapeError(f"no tool node found; pass tools= with one of {_names(builder)}")
    return found


def _find_agent(builder: Builder, sources: Sequence[str], agent: str | None) -> str:
    reachable = [target for source in sources for target in _targets(builder, source)]
    if agent is not None:
        if agent not in builder.nodes:
            raise GraphShapeError(f"agent={agent!r}: no such node; the graph has {_names(builder)}")
        if agent not in reachable and not _may_command(builder, sources):
            raise GraphShapeError(
                f"no edge leads from {', '.join(sources)} to {agent!r}; they lead to {reachable or 'nowhere'}"
            )
        return agent
    candidates = sorted({target for target in reachable if target not in (END, START)} - set(sources))
    if len(candidates) == 1:
        return candidates[0]
    if "agent" in candidates or (not candidates and "agent" in builder.nodes and _may_command(builder, sources)):
        return "agent"
    found = ", ".join(candidates) or "no node"
    raise GraphShapeError(
        f"cannot tell where {', '.join(sources)} return to (found: {found}); pass agent= with one of {_names(builder)}"
    )


def _targets(builder: Builder, source: str) -> list[str]:
    found = [end for start, end in builder.edges if start == source]
    found += [end for starts, end in builder.waiting_edges if source in starts]
    for branch in builder.branches.get(source, {}).values():
        found += list((branch.ends or {}).values())
    ends = builder.nodes[source].ends
    return found + list(ends or ())


def _may_command(builder: Builder, sources: Sequence[str]) -> bool:
    """Whether nothing else is known of where a source leads: it may return a ``Command``, or its router is unhinted."""
    return any(
        not _targets(builder, source)
        or any(branch.ends is None for branch in builder.branches.get(source, {}).values())
        for source in sources
    )


def _names(builder: Builder) -> str:
    return ", ".join(repr(name) for name in builder.nodes) or "no nodes"


# --- rerouting -----------------------------------------------------------------------------------------------


def _channels(builder: Builder, messages_key: str) -> type:
    """Input schema of the gate: registers its two channels, and reads the graph's own message channel."""
    from trajectory_guard.gates.langgraph import bounded_append
    from trajectory_guard.gates.langgraph import replace as newest

    fields: dict[str, Any] = {messages_key: list}
    if "trajectory_scratchpad" not in builder.channels:
        fields["trajectory_scratchpad"] = Annotated[list, bounded_append]
    fields["loop_status"] = dict if "loop_status" in builder.channels else Annotated[dict, newest]
    return TypedDict("GuardChannels", fields, total=False)  # type: ignore[operator, no-any-return]


class _Rerouted(dict[Any, Any]):
    """Path map of an unhinted router: everything maps to itself, but for what is rerouted."""

    def __missing__(self, key: Any) -> Any:
        return key


def _redirect_edges(builder: Builder, source: str, old: str, new: str) -> None:
    if (source, old) in builder.edges:
        builder.edges.discard((source, old))
        builder.edges.add((source, new))
    for name, branch in list(builder.branches.get(source, {}).items()):
        if branch.ends is None:
            builder.branches[source][name] = branch._replace(ends=_Rerouted({old: new}))
        elif old in branch.ends.values():
            ends = {key: new if end == old else end for key, end in branch.ends.items()}
            builder.branches[source][name] = branch._replace(ends=ends)


def _redirect_commands(builder: Builder, source: str, old: str, new: str) -> None:
    spec, ends = builder.nodes[source], builder.nodes[source].ends
    if isinstance(ends, Mapping):
        ends = {new if key == old else key: label for key, label in ends.items()}
    elif ends:
        ends = tuple(new if key == old else key for key in ends)
    builder.nodes[source] = replace(
        spec, ends=ends, runnable=_RedirectGoto(cast("Any", spec.runnable), old, new, source)
    )


def _redirect(goto: Any, old: str, new: str) -> Any:
    if isinstance(goto, (list, tuple)):
        return type(goto)(_redirect(one, old, new) for one in goto)
    return new if isinstance(goto, str) and goto == old else goto


def _redirect_output(output: Any, old: str, new: str) -> Any:
    if isinstance(output, Command):
        return output if output.graph is not None else replace(output, goto=_redirect(output.goto, old, new))
    if isinstance(output, (list, tuple)) and any(isinstance(one, Command) for one in output):
        return type(output)(_redirect_output(one, old, new) for one in output)
    return output


class _RedirectGoto(RunnableLambda[Any, Any]):
    """A node whose ``Command(goto=agent)`` goes to the gate.

    A RunnableLambda only so that LangGraph still finds the sub-graphs inside.
    """

    def __init__(self, inner: Runnable[Any, Any], old: str, new: str, name: str) -> None:
        super().__init__(lambda value: value, name=name)
        self.inner, self.old, self.new = inner, old, new

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        return [self.inner]

    def _fix(self, error: ParentCommand) -> None:
        command = error.args[0]
        error.args = (replace(command, goto=_redirect(command.goto, self.old, self.new)),)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        try:
            return _redirect_output(self.inner.invoke(input, config, **kwargs), self.old, self.new)
        except ParentCommand as error:
            self._fix(error)
            raise

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        try:
            return _redirect_output(await self.inner.ainvoke(input, config, **kwargs), self.old, self.new)
        except ParentCommand as error:
            self._fix(error)
            raise


def clone(builder: Builder) -> Builder:
    """A copy that can be rewired without touching the original (compiled graphs share theirs)."""
    twin = copy.copy(builder)
    twin.nodes = {name: copy.copy(spec) for name, spec in builder.nodes.items()}
    twin.edges, twin.waiting_edges = set(builder.edges), set(builder.waiting_edges)
    twin.branches = defaultdict(dict, {source: dict(branches) for source, branches in builder.branches.items()})
    twin.schemas, twin.channels, twin.managed = dict(builder.schemas), dict(builder.channels), dict(builder.managed)
    if hasattr(builder, "_node_defaults"):
        twin._node_defaults = copy.copy(builder._node_defaults)
    twin.compiled = False
    return twin
