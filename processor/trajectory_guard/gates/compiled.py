"""Gates in compiled graphs: ``guarded_invoke`` with its variants, and the work of ``apply_guard`` at ``compile``.

A compiled graph is guarded in a shallow copy, sub-graphs included; the original stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, TypeVar, get_args

from trajectory_guard.extras import missing

try:
    from langgraph.channels import LastValue
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel import Pregel
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.config.choices import Mode
from trajectory_guard.core.text import nearest
from trajectory_guard.gates.agent_node import GuardedNode, way_back
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.graph_gate import ENDINGS, Ending, GraphGate, NudgeRole
from trajectory_guard.gates.langgraph_internals import PregelNode
from trajectory_guard.gates.nested import CoveringNode, Nested, follow, graphs_in
from trajectory_guard.gates.node_cache import without_gates
from trajectory_guard.gates.open_decisions import OpenDecisions
from trajectory_guard.gates.own_keys import DECLARED, MEMORY, guard_channels, split_status
from trajectory_guard.gates.private_state import StatusChannel
from trajectory_guard.gates.refusal import RefusalRules
from trajectory_guard.gates.rewire import (
    Builder,
    GraphShapeError,
    Way,
    check_builder,
    check_messages,
    check_own_keys,
    check_way,
    find_way,
    may_hold_own,
    sub_graphs,
)
from trajectory_guard.gates.state_of import StateOf
from trajectory_guard.gates.status import statuses
from trajectory_guard.gates.tool_gate import ToolGate
from trajectory_guard.runtime import shared_board

Compiled = CompiledStateGraph[Any, Any, Any, Any]
CompiledT = TypeVar("CompiledT", bound=Compiled)
_log: Final = logging.getLogger(telemetry.LOGGER)
_MODES: Final = get_args(Mode)
_OPTIONS: Final = (
    "guard_config", "tools", "agent", "on_stop", "nudge_role", "messages_key", "state_of", "refuse_pointless", "board",
)  # fmt: skip
_MAX_KEPT: Final = 8
_cache: weakref.WeakKeyDictionary[Any, tuple[tuple[dict[str, Any], Any], ...]] = weakref.WeakKeyDictionary()


# --- a builder ---------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """One call of ``apply_guard``."""

    gate: GraphGate
    tools: str | Sequence[str] | None
    agent: str | Sequence[str] | None


@lru_cache(maxsize=64)
def _guarding(base: Any) -> Any:
    """``base``, a builder's class, whose ``compile`` puts gates in.

    A subclass and not an attribute of the builder, because copies of a builder have to compile themselves.
    """

    def compile(self: Any, *args: Any, **options: Any) -> Any:
        ways = [_way_of(self, asked) for asked in self._trajectory_guards]
        names = [name for way in ways for name in way.agents]
        if twice := {name for name in names if names.count(name) > 1}:
            raise GraphShapeError(f"apply_guard was called twice for {', '.join(sorted(map(repr, twice)))}")
        graph = base.compile(self, *args, **options)
        for asked, way in zip(self._trajectory_guards, ways, strict=True):
            _install(graph, way, asked.gate, nested_below(asked.gate))
        return graph

    compile.__doc__ = f"As ``{base.__name__}.compile``, with gates; raises ``GraphShapeError`` where one does not fit."
    return type(base.__name__, (base,), {"compile": compile, "__module__": base.__module__})


def _way_of(builder: Builder, asked: _Asked) -> Way:
    if _holds_agents_alone(builder, asked):
        return Way((), (), None)
    way = find_way(builder, asked.tools, asked.agent, final=not _guardable(builder, nested_below(asked.gate)))
    way = way or Way((), (), None)
    check_way(builder, way, None if asked.gate.on_stop in ENDINGS else asked.gate.on_stop)
    if way.agents:
        check_own_keys(builder.schemas)
    return way


def _holds_agents_alone(builder: Builder, asked: _Asked) -> bool:
    """Whether a graph has no messages for gates of its own, and its nodes call agents that have.

    Raises:
        GraphShapeError: it has no messages, and nothing else to guard.
    """
    try:
        check_messages(builder, asked.gate.messages_key)
    except GraphShapeError:
        if not _may_go_without(builder, nested_below(asked.gate), asked.tools, asked.agent):
            raise
        return True
    return False


def _may_go_without(
    builder: Builder, nested: Nested, tools: str | Sequence[str] | None, agent: str | Sequence[str] | None
) -> bool:
    """Whether a graph needs no gate of its own: nobody has named a node for one, and its sub-graphs are guarded."""
    return tools is None and agent is None and _guardable(builder, nested)


def guard_builder(
    builder: Builder, gate: GraphGate, *, tools: str | Sequence[str] | None, agent: str | Sequence[str] | None
) -> None:
    """Guard ``builder`` when it is compiled. All checks that are possible now run before any change.

    Raises:
        GraphShapeError: no gate can be put into it.
    """
    check_builder(builder)
    asked = _Asked(gate, tools, agent)
    way = None if _holds_agents_alone(builder, asked) else find_way(builder, tools, agent, final=False)
    if way is not None and way.agents:
        check_own_keys(builder.schemas)
    before: tuple[_Asked, ...] = getattr(builder, "_trajectory_guards", ())
    for other in before:
        known = find_way(builder, other.tools, other.agent, final=False)
        if known is None or way is None or {*known.agents} & {*way.agents}:
            raise GraphShapeError("the graph is guarded already: apply_guard was called twice")
    if not before:
        guarded, kind = builder, type(builder)  # type: Any, Any
        guarded.__class__ = _guarding(kind)
    for key, channel in guard_channels().items():
        if key != MEMORY:
            builder.channels.setdefault(key, channel)
    builder._trajectory_guards = (*before, asked)  # type: ignore[attr-defined]


# --- a compiled graph ----------------------------------------------------------------------------------------------


def guard_compiled(
    graph: CompiledT,
    config: GuardConfig | None = None,
    *,
    tools: str | Sequence[str] | None = None,
    agent: str | Sequence[str] | None = None,
    on_stop: Ending | str = "end",
    nudge_role: NudgeRole = "user",
    messages_key: str = "messages",
    state_of: StateOf | None = None,
    refuse_pointless: bool | RefusalRules = False,
    board: FlagBoard | None = None,
) -> CompiledT:
    """A guarded copy of a compiled graph, sub-graphs included; arguments as for ``apply_guard``.

    A graph that already has gates is returned unchanged, except for ``loop_status`` in its result.

    Raises:
        GraphShapeError: it is no compiled LangGraph graph, or neither it nor a sub-graph has tools to guard.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise GraphShapeError(_not_compiled(graph))
    gate = GraphGate(
        config, on_stop=on_stop, nudge_role=nudge_role, messages_key=messages_key, state_of=state_of,
        refuse_pointless=refuse_pointless, board=board,
    )  # fmt: skip
    twin = _copy(graph)
    if not is_guarded(graph):
        _guard_copy(twin, gate, nested_below(gate), tools, agent)
    if isinstance(twin.output_channels, (list, tuple)) and "loop_status" in twin.channels:
        twin.output_channels = [*dict.fromkeys((*twin.output_channels, "loop_status"))]
    return twin


def _not_compiled(graph: Any) -> str:
    problem = f"expected a compiled LangGraph graph, got {type(graph).__name__}"
    if isinstance(graph, Pregel):
        return (
            f"{problem}: a workflow of the functional API has no nodes to put a gate before; call "
            "TrajectoryGuardNode()(state) in its loop after the tools, or guard the graphs that it calls"
        )
    return f"{problem}: .compile() it first, or call apply_guard(builder)" if hasattr(graph, "compile") else problem


def _guard_copy(
    twin: Compiled, gate: GraphGate, nested: Nested, tools: str | Sequence[str] | None = None,
    agent: str | Sequence[str] | None = None,
) -> None:  # fmt: skip
    builder = twin.builder
    try:
        check_messages(builder, gate.messages_key)
        way = find_way(builder, tools, agent, final=True)
        assert way is not None
        if way.way_back is not None:  # the compiled node ends here on purpose
            raise GraphShapeError(f"no edge leads out of {', '.join(way.tools)}, so no tool result gets to an agent")
    except GraphShapeError:
        if not _may_go_without(builder, nested, tools, agent):
            raise
        way = Way((), (), None)
    check_way(builder, way, None if gate.on_stop in ENDINGS else gate.on_stop)
    if way.agents:
        check_own_keys(builder.schemas)
    _install(twin, way, gate, nested)


def _copy(graph: CompiledT) -> CompiledT:
    twin = copy.copy(graph)
    twin.nodes, twin.channels = dict(graph.nodes), dict(graph.channels)
    return twin


def is_guarded(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Whether a graph has gates of its own, added by ``apply_guard``, by middleware or by hand."""
    by_hand = (getattr(node.bound, "gate", None) for node in graph.nodes.values())
    if any(isinstance(node, (CoveringNode, GuardedNode)) for node in graph.nodes.values()):
        return True
    by_middleware = isinstance(graph.channels.get("loop_status"), StatusChannel)
    return by_middleware or MEMORY in graph.channels or any(isinstance(gate, Gate) for gate in by_hand)


def has_tools(graph: Compiled) -> bool:
    """Whether a graph has a tool node of its own."""
    return any(isinstance(node.bound, ToolNode) for node in graph.nodes.values())


def unguarded_agents(tool: Any) -> list[str]:
    """Names of the agents with tools that a tool calls and no gate guards."""
    return sorted({name for name, graph in graphs_in(tool) if has_tools(graph) and not is_guarded(graph)})


def _guardable(builder: Builder, nested: Nested) -> bool:
    """Whether a sub-graph has tools to guard; the graph itself does not count."""
    return any(nested.twin(inner) is not inner or is_guarded(inner) for inner in sub_graphs(builder).values())


def _install(graph: Compiled, way: Way, gate: GraphGate, nested: Nested) -> None:
    """Put the gate before the agents of a graph, and others into its sub-graphs."""
    own, decisions = gate.writing_to(graph.channels.get(gate.messages_key)), OpenDecisions()
    own.around_agents = bool(sub_graphs(graph.builder))
    own.witness = gate.keeps_cursor and all(isinstance(graph.nodes[name].bound, ToolNode) for name in way.tools)
    for name, node in graph.nodes.items():
        guarded = _with_guarded_sub_graph(node, nested, entered_guarded=bool(way.agents))
        if way.way_back is not None and name in way.tools:
            guarded = guarded.copy({"writers": [*guarded.writers, way_back(way.way_back)]})
        if gate.refuse is not None or gate.keeps_cursor:
            guarded = _refusing(guarded, gate, name if name in way.tools else None)
        if not isinstance(guarded.bound, CompiledStateGraph):
            guarded = CoveringNode(guarded, nested, entered_guarded=bool(way.agents))
        graph.nodes[name] = GuardedNode(guarded, own, decisions) if name in way.agents else guarded
    graph.cache = without_gates(graph.cache)
    _take_several(graph)
    if way.agents:
        _add_channels(graph)


def _refusing(node: PregelNode, gate: GraphGate, tools: str | None) -> PregelNode:
    """A node whose pointless tool calls are answered, and whose calls are entered in the cursor.

    Parameters:
        tools: its name, if it is the place of the tools.
    """
    if isinstance(node.bound, ToolNode):
        twin = ToolGate(gate.gate, gate.refuse, messages_key=gate.messages_key).tool_node(node.bound)
        return node.copy({"bound": twin})
    if tools is not None and gate.refuse is not None:
        _log.warning("trajectory_guard: refuse_pointless: node %r has no ToolNode; its calls always run", tools)
    return node


def _add_channels(graph: Compiled) -> None:
    for key, channel in guard_channels().items():
        graph.channels.setdefault(key, channel)
    shown = [key for key in guard_channels() if key != MEMORY]
    if isinstance(graph.stream_channels, (list, tuple)):
        graph.stream_channels = [*dict.fromkeys((*graph.stream_channels, *shown))]
    foreign = _foreign(graph)
    for name in ("_state_mapper", "_output_mapper"):
        setattr(graph, name, _without(foreign, getattr(graph, name, None)))


def _take_several(graph: Compiled) -> None:
    """Let declared keys of the gate's take the values of agents and sub-graphs that run side by side."""
    for key, kind in DECLARED.items():
        declared = graph.channels.get(key)
        if type(declared) is LastValue and may_hold_own(key, declared.typ):
            graph.channels[key] = kind(declared.typ, key)


def _foreign(graph: Compiled) -> set[str]:
    """The gate's keys that no state class of the user's declares."""
    return guard_channels().keys() - {key for schema in graph.builder.schemas.values() for key in schema}


def _without(keys: Collection[str], mapper: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A mapper to the user's own state class, which knows nothing of a gate's keys."""
    if mapper is None:
        return None
    return lambda values: mapper({key: value for key, value in values.items() if key not in keys})


# --- sub-graphs ----------------------------------------------------------------------------------------------------


def _with_guarded_sub_graph(node: PregelNode, nested: Nested, *, entered_guarded: bool) -> PregelNode:
    """A node that is a graph, with a guarded copy of it; other nodes as they are."""
    bound: Any = node.bound
    if not isinstance(bound, CompiledStateGraph):
        return node
    twin = nested.twin(bound, entered_guarded=entered_guarded)
    return node if twin is bound else node.copy({"bound": twin, "subgraphs": None})


def nested_below(gate: GraphGate) -> Nested:
    """How the graphs are guarded that are called below a gate."""

    def twin(graph: Any, nested: Nested, entered_guarded: bool) -> Any:
        return _guarded_twin(graph, gate, nested, entered_guarded=entered_guarded)

    return Nested(twin, gate.gate.contain)


def _guarded_twin(graph: Compiled, gate: GraphGate, nested: Nested, *, entered_guarded: bool) -> Compiled:
    """A guarded copy of a sub-graph; the sub-graph itself if it has no tools to guard."""
    if is_guarded(graph):
        return _quiet(_copy(graph))
    twin, own = _copy(graph), copy.copy(gate)
    if own.on_stop not in ENDINGS and own.on_stop not in graph.nodes:
        own.on_stop = "end"  # a node of the parent: the sub-graph ends, and the parent goes on
    try:
        _guard_copy(twin, own, nested)
    except GraphShapeError:
        return graph
    if entered_guarded:
        for name, node in twin.nodes.items():
            if isinstance(node, GuardedNode):
                twin.nodes[name] = node.entered_after_a_gate()
    return _quiet(twin)


def _quiet(graph: Compiled) -> Compiled:
    """Where callers listen to events, a sub-graph hands its parent all that it streams; the parent has its own keys."""
    if isinstance(graph.stream_channels, (list, tuple)):
        foreign = _foreign(graph)
        graph.stream_channels = [key for key in graph.stream_channels if key not in foreign]
    return graph


# --- running -------------------------------------------------------------------------------------------------------


def _guarded(graph: Compiled, mode: Mode | None, options: dict[str, Any]) -> Compiled:
    if mode is not None:
        if mode not in _MODES:
            raise ValueError(f"mode: {mode!r} is none of {', '.join(map(repr, _MODES))}")
        guard = options.get("guard_config")
        if guard is None:  # the mode alone is no configuration that has to be equal everywhere
            board = options.get("board") or shared_board()
            guard, options = board.config, {**options, "board": board}
        options = {**options, "guard_config": guard.model_copy(update={"mode": mode})}
    try:
        known = _cache.get(graph, ())
    except TypeError:  # not a graph: the error reports it
        known = ()
    pair = next((one for one in known if _are_equal(options, one[0])), None)
    if pair is None:
        given = dict(options)
        pair = options, guard_compiled(graph, given.pop("guard_config", None), **given)
    else:
        follow(pair[1], graph)
    if known and pair is known[-1]:
        return pair[1]  # type: ignore[no-any-return]
    # a new tuple: other threads may be reading the old one
    _cache[graph] = (*[one for one in known if one is not pair], pair)[-_MAX_KEPT:]
    return pair[1]


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal by value, secrets included; but two boards are two boards."""
    return (
        one.get("board") is other.get("board")
        and one.keys() == other.keys()
        and all(one[key] == other[key] for key in one if key != "board")
    )


def _split(options: dict[str, Any], config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the gate and those of the graph, which would ignore a misspelled one of the gate."""
    if isinstance(config, GuardConfig):
        raise TypeError("config is the configuration of LangGraph; pass the GuardConfig as guard_config=")
    given: dict[str, Any] = {key: options.pop(key) for key in _OPTIONS if key in options}
    for key in options.keys() - _options_of_graphs():
        if hint := nearest(key, _OPTIONS):
            raise TypeError(f"{key}: no such option{hint}")
    return given, options


@cache
def _options_of_graphs() -> frozenset[str]:
    methods: tuple[Callable[..., Any], ...] = (Pregel.invoke, Pregel.stream)
    return frozenset(name for method in methods for name in inspect.signature(method).parameters)


def guarded_invoke(
    graph: CompiledStateGraph[Any, Any, Any, Any], input: Any, config: Any = None, *, mode: Mode | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """``graph.invoke(input, config)`` with gates before its agents.

    Parameters:
        mode: ``enforce``, ``nudge`` or ``observe``; by default that of the configuration.
        options: ``guard_config``, ``tools``, ``agent``, ``on_stop``, ``nudge_role``, ``messages_key``, ``state_of``,
            ``refuse_pointless`` and ``board`` as for ``apply_guard``; everything else goes to ``invoke``.

    Raises:
        TypeError: an option looks like a misspelled one of the gate, or ``config`` is a ``GuardConfig``.

    Returns:
        The result of ``invoke``, with ``loop_status`` added: that of its own agents, or else of those in sub-graphs.
    """
    guard, rest = _split(options, config)
    with statuses() as found:
        return _with_status(_guarded(graph, mode, guard).invoke(input, config, **rest), found, rest)


async def guarded_ainvoke(
    graph: CompiledStateGraph[Any, Any, Any, Any], input: Any, config: Any = None, *, mode: Mode | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Async ``guarded_invoke``."""
    guard, rest = _split(options, config)
    with statuses() as found:
        return _with_status(await _guarded(graph, mode, guard).ainvoke(input, config, **rest), found, rest)


def _with_status(result: Any, found: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Any:
    """A parent without an agent of its own has no such key, and would drop what its sub-graphs return."""
    asked_otherwise = options.get("output_keys") is not None or options.get("stream_mode", "values") != "values"
    if not found or asked_otherwise:
        return result
    if options.get("version") == "v2" and isinstance(getattr(result, "value", None), dict):
        return dataclasses.replace(result, value=_with_status(result.value, found, {}))
    if not isinstance(result, dict) or "loop_status" in result:
        return result
    return {**result, "loop_status": split_status(found[0])[0]}


def guarded_stream(
    graph: CompiledStateGraph[Any, Any, Any, Any], input: Any, config: Any = None, *, mode: Mode | None = None,
    **options: Any,
) -> Iterator[Any]:  # fmt: skip
    """``graph.stream`` with gates; options as for ``guarded_invoke``."""
    guard, rest = _split(options, config)
    yield from _guarded(graph, mode, guard).stream(input, config, **rest)


async def guarded_astream(
    graph: CompiledStateGraph[Any, Any, Any, Any], input: Any, config: Any = None, *, mode: Mode | None = None,
    **options: Any,
) -> AsyncIterator[Any]:  # fmt: skip
    """Async ``guarded_stream``."""
    guard, rest = _split(options, config)
    chunks: Any = _guarded(graph, mode, guard).astream(input, config, **rest)
    async with aclosing(chunks):  # a caller who closes this one early has ended the nodes that were running by then
        async for chunk in chunks:
            yield chunk
