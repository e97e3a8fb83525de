"""The shape of a LangGraph builder: its agent nodes, and the edges that lead to them.

Reads ``StateGraph``'s ``nodes``, ``edges``, ``branches`` and ``waiting_edges``, which LangGraph offers no calls for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from trajectory_guard.extras import missing

try:
    from langchain_core.messages import BaseMessage
    from langgraph.graph import END, START, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel import Pregel
    from pydantic import BaseModel, TypeAdapter, ValidationError
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error
from typing_extensions import NotRequired, Required, get_type_hints

from trajectory_guard.config.messages import wrong_type
from trajectory_guard.gates.langgraph_internals import find_subgraph_pregel
from trajectory_guard.gates.nested import held_graph

Builder = StateGraph[Any, Any, Any, Any]
_TOOL_NODES: Final = ("tools", "tool", "action")
_NO_MESSAGE: Final = (str, bytes, bool, int, float, complex, type)


_OWN_KEYS: Final[Mapping[str, tuple[type, str]]] = {
    "loop_status": (dict, "a dictionary (LoopStatus)"),
    "trajectory_scratchpad": (list, "a list of steps"),
}
"""Types and names of the values that a gate writes under keys that users read."""
_WRITTEN: Final[Mapping[str, Any]] = {
    "loop_status": {"status": "ok", "steps_taken": 1, "score": 0.5, "stop": None},
    "trajectory_scratchpad": [{"step_id": "1", "tool": "search"}],
}
"""Such values, for states that are validated."""


class GraphShapeError(ValueError):
    """Raised for a graph that cannot be guarded as requested. The message names the cause and the argument to pass."""


class Way(NamedTuple):
    """Where gates belong in a graph.

    Fields:
        tools: its tool nodes.
        agents: the nodes that need a gate in front of them.
        way_back: the agent that the tools lead to through an edge which is missing in the graph; None if none is.
    """

    tools: tuple[str, ...]
    agents: tuple[str, ...]
    way_back: str | None


def find_way(
    builder: Builder, tools: str | Sequence[str] | None, agent: str | Sequence[str] | None, *, final: bool
) -> Way | None:
    """The agents of a graph.

    Parameters:
        tools, agent: node names given by the user.
        final: no more edges come; otherwise None is returned for a graph that cannot be understood without them.

    Raises:
        GraphShapeError: there is no such node, or the edges do not identify the agents.
    """
    sources = _find_tools(builder, tools, needed=agent is None)
    if agent is not None:
        agents = _named(builder, "agent", agent)
        _check_edges(builder, sources, agents)
    else:
        agents = _returned_to(builder, sources)
        if tools is None:
            agents = list(dict.fromkeys((*agents, *handing_over(builder))))
    exits = [target for source in sources for target in targets(builder, source)]
    dead_end = bool(sources) and not exits and not any(_is_open(builder, source) for source in sources)
    if agents:
        return Way(tuple(sources), tuple(agents), agents[0] if dead_end and len(agents) == 1 else None)
    if not final and (not exits or (tools is None and sub_graphs(builder))):
        return None
    if not sources:
        raise _no_tools(builder)
    found = ", ".join(sorted({*exits} - {END, START})) or "no node"
    raise GraphShapeError(
        f"cannot determine where {', '.join(sources)} return to (found: {found}); "
        f"pass agent= with one of {_names(builder)}"
    )


def _find_tools(builder: Builder, tools: str | Sequence[str] | None, *, needed: bool) -> list[str]:
    """The tool nodes. An agent that is named needs none: it may write and write again without any tool."""
    if tools is not None:
        return _named(builder, "tools", tools)
    found = [name for name, spec in builder.nodes.items() if isinstance(spec.runnable, ToolNode)]
    found = found or [name for name in _TOOL_NODES if name in builder.nodes]
    if needed and not found and not sub_graphs(builder):
        raise _no_tools(builder)
    return found


def _named(builder: Builder, argument: str, given: str | Sequence[str]) -> list[str]:
    if not isinstance(given, Iterable):
        raise wrong_type(argument, "the name of a node, or several", given)
    names = [given] if isinstance(given, str) else list(given)
    if not names or any(name not in builder.nodes for name in names):
        raise GraphShapeError(f"{argument}={given!r}: no such node; the graph has {_names(builder)}")
    return names


def _check_edges(builder: Builder, sources: Sequence[str], agents: Sequence[str]) -> None:
    """Check that a node named as the agent can be reached from the tools, as far as the edges are known."""
    if not sources or any(not targets(builder, source) or _is_open(builder, source) for source in sources):
        return
    ends = sorted({target for source in sources for target in targets(builder, source)})
    for agent in agents:
        if agent not in ends:
            raise GraphShapeError(f"no edge leads from {', '.join(sources)} to {agent!r}; they lead to {ends}")


def _returned_to(builder: Builder, sources: Sequence[str]) -> list[str]:
    """The nodes that the tools lead to. Of several nodes only those that call the tools themselves are agents."""
    if not sources:
        return []
    ends = {target for source in sources for target in targets(builder, source)} - {END, START, *sources}
    callers = [name for name in builder.nodes if name not in sources and {*targets(builder, name)} & {*sources}]
    if ends:
        behind = sorted(ends)
        return behind if len(behind) == 1 else [name for name in behind if name in callers]
    if any(targets(builder, source) for source in sources):
        return []  # they lead to the end, and nowhere else
    return (
        callers if len(callers) == 1 else [name for name in ("agent",) if name in builder.nodes and _is_linked(builder)]
    )


def _is_linked(builder: Builder) -> bool:
    return bool(builder.edges or builder.branches or any(spec.ends for spec in builder.nodes.values()))


# --- edges -----------------------------------------------------------------------------------------------------


def targets(builder: Builder, source: str) -> list[str]:
    """Where the edges of a node are known to lead."""
    found = [end for start, end in builder.edges if start == source]
    found += [end for starts, end in builder.waiting_edges if source in starts]
    for branch in builder.branches.get(source, {}).values():
        found += list((branch.ends or {}).values())
    spec = builder.nodes.get(source)
    return found + list((spec.ends if spec is not None else None) or ())


def _is_open(builder: Builder, source: str) -> bool:
    """Whether a node has a router without declared destinations."""
    return any(branch.ends is None for branch in builder.branches.get(source, {}).values())


def _reached(builder: Builder, starts: Iterable[str]) -> set[str]:
    """All nodes that some way from ``starts`` leads to. A router or a ``Command`` without hints may lead anywhere."""
    seen = set(starts)
    ahead = list(seen)
    while ahead:
        name = ahead.pop()
        following = targets(builder, name)
        if _is_open(builder, name):
            following = [*builder.nodes]
        ahead.extend(one for one in following if one not in seen and one in builder.nodes)
        seen.update(following)
    return seen


def unreachable(builder: Builder, names: Collection[str]) -> list[str]:
    """Those of ``names`` that no way from the start leads to; none where a node may lead anywhere."""
    silent = [name for name in builder.nodes if not targets(builder, name) and not _is_open(builder, name)]
    reached = _reached(builder, [START])
    if any(name in reached for name in silent):  # may return a Command that goes anywhere
        return []
    return [name for name in names if name not in reached]


def handing_over(builder: Builder) -> list[str]:
    """Nodes with a sub-graph that are on a circle of this graph: agents that hand over to each other.

    Those that choose where to go, if there are any: the workers of a supervisor only go back to it.
    """
    circle = [name for name in sub_graphs(builder) if name in _reached(builder, targets(builder, name))]
    choosing = [name for name in circle if builder.nodes[name].ends or builder.branches.get(name)]
    return choosing or circle


def sub_graphs(builder: Builder) -> dict[str, Pregel[Any, Any, Any, Any]]:
    """Nodes that hold a graph of their own: the node itself, or what its function refers to."""
    found: dict[str, Pregel[Any, Any, Any, Any]] = {}
    for name, spec in builder.nodes.items():
        inner = _graph_in(spec.runnable)
        if isinstance(inner, Pregel):
            found[name] = inner
    return found


def _graph_in(node: Any) -> Any:
    """As LangGraph finds it; LangGraph passes over graphs with ``checkpointer=False``."""
    try:
        found = find_subgraph_pregel(node)
    except Exception:  # LangGraph does the same: a function that cannot be looked into has none
        found = None
    return found if found is not None else held_graph(node)


def _no_tools(builder: Builder) -> GraphShapeError:
    if not builder.nodes:
        return GraphShapeError("the builder has no nodes yet: add them before the guard")
    names = _names(builder)
    return GraphShapeError(
        f"no tool node found; pass tools= with the node that runs the tools, one of {names}, "
        "or agent= with the node whose function calls an agent"
    )


def _names(builder: Builder) -> str:
    return ", ".join(repr(name) for name in builder.nodes) or "no nodes"


# --- checks ----------------------------------------------------------------------------------------------------


def check_builder(given: Any) -> None:
    """Raises ``GraphShapeError`` unless it is a builder."""
    if not isinstance(given, StateGraph):
        kind = type(given).__name__
        hint = "; for a compiled graph use guarded_invoke" if hasattr(given, "builder") else ""
        raise GraphShapeError(f"apply_guard needs a StateGraph that is not compiled yet, got {kind}{hint}")


def check_messages(builder: Builder, messages_key: str) -> None:
    """Raises ``GraphShapeError`` unless the state has messages under that key."""
    if "__root__" in builder.channels:
        raise GraphShapeError("the graph's state is a bare value; the gate needs a state with keys (a TypedDict, say)")
    hints = _hints(builder)
    fitting = [key for key in builder.channels if may_hold_messages(hints.get(key, Any))]
    if messages_key in fitting:
        return
    if messages_key in builder.channels:
        problem = f"messages_key={messages_key!r}: the state holds {_shown(hints[messages_key])} there, no messages"
    else:
        problem = f"the graph's state has no {messages_key!r}"
    if fitting:
        raise GraphShapeError(f"{problem}; pass messages_key= with one of {', '.join(map(repr, fitting))}")
    raise GraphShapeError(
        f"{problem}, and no other key holds messages: a gate reads tool calls and results from a list of messages. "
        "Without one, instrument() and shared_board().take(id) still report when a run is stuck"
    )


def check_own_keys(schemas: Iterable[Any]) -> None:
    """Raises ``GraphShapeError`` if an application has something else under a key that a gate writes.

    Parameters:
        schemas: classes of the state. A key that can hold what the gate writes there is declared in order to read it.
    """
    for schema in schemas:
        hints = _hints_of(schema)
        for key, (_, own) in _OWN_KEYS.items():
            if key in hints and not (may_hold_own(key, hints[key]) and _accepts(schema, key, hints[key])):
                raise GraphShapeError(
                    f"the state holds {_shown(hints[key])} under {key!r}, where a gate writes {own}: one would "
                    "overwrite the other. Rename that key of the state, as the gate's cannot be renamed; to read what "
                    "the gate writes, declare it as in trajectory_guard.AgentState"
                )


def may_hold_own(key: str, annotation: Any) -> bool:
    """Whether a state key of this type can hold what a gate writes under ``key``."""
    return _may_hold(_OWN_KEYS[key][0], annotation)


def _accepts(schema: Any, key: str, annotation: Any) -> bool:
    """Whether a state takes what a gate writes: Pydantic reads the values of a dictionary, too."""
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return True
    try:
        TypeAdapter(annotation).validate_python(_WRITTEN[key])
    except ValidationError:
        return False
    except Exception:  # a type that the state alone knows how to read
        return True
    return True


def _may_hold(kind: type, annotation: Any) -> bool:
    """Whether a state key of this type can hold a ``kind``; True if the type is unknown."""
    origin = get_origin(annotation)
    if origin in (Annotated, Required, NotRequired):
        return _may_hold(kind, get_args(annotation)[0])
    if origin is Union or type(annotation).__name__ == "UnionType":
        return any(_may_hold(kind, one) for one in get_args(annotation) if one is not type(None))
    if origin is Literal:
        return False
    found = origin or annotation
    if isinstance(found, type) and found is not Any:
        return issubclass(found, kind) or issubclass(kind, found)
    return True


def _hints(builder: Builder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for schema in builder.schemas:
        found.update(_hints_of(schema))
    return found


def _hints_of(schema: Any) -> dict[str, Any]:
    try:
        return get_type_hints(schema, include_extras=True)
    except Exception:  # an annotation that cannot be resolved shows no type
        return {}


def may_hold_messages(annotation: Any) -> bool:
    """Whether a state key of this type can be a list of messages; True if the type is unknown."""
    origin = get_origin(annotation)
    if origin in (Annotated, Required, NotRequired):
        return may_hold_messages(get_args(annotation)[0])
    if origin is Union or type(annotation).__name__ == "UnionType":
        return any(may_hold_messages(one) for one in get_args(annotation) if one is not type(None))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return False
    if isinstance(origin, type) and issubclass(origin, Collection):
        return any(_may_be_message(one) for one in get_args(annotation))
    kind = origin or annotation  # before Python 3.11 type[X] passes for a class, from then on Any is one
    if isinstance(kind, type) and kind is not Any:
        return not issubclass(kind, (*_NO_MESSAGE, Mapping))
    return True


def _may_be_message(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _may_be_message(get_args(annotation)[0])
    if args := get_args(annotation):
        origin = get_origin(annotation)
        if isinstance(origin, type) and issubclass(origin, (Mapping, tuple)):
            return True  # {"role", "content"} or (role, text)
        return any(_may_be_message(one) for one in args)
    if isinstance(annotation, type) and annotation is not Any:
        return annotation is object or issubclass(annotation, (BaseMessage, dict, tuple))
    return True


def _shown(annotation: Any) -> str:
    while get_origin(annotation) in (Annotated, Required, NotRequired):
        annotation = get_args(annotation)[0]
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def check_way(builder: Builder, way: Way, on_stop: str | None) -> None:
    """Checks for a complete graph. Raises ``GraphShapeError``."""
    if on_stop is not None and on_stop not in builder.nodes:
        raise GraphShapeError(
            f"on_stop={on_stop!r}: no such node; pass 'end', 'raise', 'interrupt' or one of {_names(builder)}"
        )
    if lost := unreachable(builder, way.agents):
        raise GraphShapeError(
            f"nothing leads from the start to {', '.join(map(repr, lost))}, so the gate there would guard nothing; "
            "add the edge, or pass agent= with the node that the tools return to"
        )
