"""Graphs that functions and tools of a graph call: the workers of a supervisor, the sub-agents of a deep agent.

They are no nodes, so they are found in what a function refers to, and guarded in a copy of that function.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from langchain_core.runnables import RunnableBinding
from langchain_core.tools import StructuredTool
from langgraph._internal._runnable import RunnableCallable
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

_MAX_SEEN: Final = 4096
"""Objects that are looked at, for one tool or node."""
_MAX_ENTRIES: Final = 64
Graph = CompiledStateGraph[Any, Any, Any, Any]
Guarded = Callable[[Any], Any]


def with_guarded(value: Any, guarded: Guarded) -> Any:
    """``value`` with every graph in its closures replaced by ``guarded(graph)``; itself where there is none.

    Looks into functions, bound methods of graphs, dicts, tools and tool nodes. Global names are left alone: other
    functions use them too.
    """
    return _rebuilt(value, guarded, {})


def _rebuilt(value: Any, guarded: Guarded, known: dict[int, tuple[Any, Any]]) -> Any:
    """``known`` holds what was seen, by identity: functions share what they refer to, and may refer to themselves."""
    if id(value) not in known:
        if len(known) >= _MAX_SEEN:
            return value
        known[id(value)] = (value, value)  # the first one keeps its identity from being given to another
        if isinstance(value, CompiledStateGraph):
            new = guarded(value)
        else:
            new = _looked_into(value, lambda held: _rebuilt(held, guarded, known))
        known[id(value)] = (value, new)
    return known[id(value)][1]


def _looked_into(value: Any, inside: Guarded) -> Any:
    if isinstance(value, types.FunctionType):
        return _function(value, inside)
    if isinstance(value, types.MethodType) and isinstance(value.__self__, CompiledStateGraph):
        return types.MethodType(value.__func__, inside(value.__self__))
    if isinstance(value, dict) and len(value) <= _MAX_ENTRIES:
        return _changed(value, {key: inside(held) for key, held in value.items()})
    if isinstance(value, ToolNode):
        return _tool_node(value, inside)
    if isinstance(value, RunnableCallable):
        return _with(value, inside, "func", "afunc")
    if isinstance(value, StructuredTool):
        return _with(value, inside, "func", "coroutine")
    if isinstance(value, RunnableBinding):
        return _with(value, inside, "bound")
    return value


def _changed(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
    return new if any(new[key] is not old[key] for key in old) else old


def _with(value: Any, inside: Guarded, *names: str) -> Any:
    old = {name: getattr(value, name) for name in names}
    new = _changed(old, {name: inside(held) for name, held in old.items()})
    if new is old:
        return value
    twin = copy.copy(value)
    for name, held in new.items():
        setattr(twin, name, held)
    return twin


def _tool_node(node: ToolNode, inside: Guarded) -> ToolNode:
    tools = _changed(node._tools_by_name, {name: inside(tool) for name, tool in node._tools_by_name.items()})
    if tools is node._tools_by_name:
        return node
    twin = copy.copy(node)
    twin._tools_by_name = tools
    twin.func, twin.afunc = twin._func, twin._afunc  # were bound to the original
    return twin


def _function(function: types.FunctionType, inside: Guarded) -> types.FunctionType:
    cells = tuple(_cell(cell, inside) for cell in function.__closure__ or ())
    if all(new is old for new, old in zip(cells, function.__closure__ or (), strict=True)):
        return function
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__, twin.__qualname__ = function.__kwdefaults__, function.__qualname__
    twin.__dict__.update(function.__dict__)
    twin.__annotations__, twin.__doc__ = function.__annotations__, function.__doc__
    return twin


def _cell(cell: types.CellType, inside: Guarded) -> types.CellType:
    held = _contents(cell)
    new = inside(held)
    return cell if new is held else types.CellType(new)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def graphs_in(value: Any) -> list[tuple[str, Graph]]:
    """Names and graphs that ``value`` may call, those behind global names included."""
    found: dict[int, tuple[str, Graph]] = {}
    seen: dict[int, Any] = {}
    ahead = [("", value)]
    while ahead and len(seen) < _MAX_SEEN:
        name, held = ahead.pop()
        if isinstance(held, CompiledStateGraph):
            found.setdefault(id(held), (name if name and held.name == "LangGraph" else str(held.name), held))
        elif id(held) not in seen:
            seen[id(held)] = held
            ahead.extend(_referred_to(held))
    return list(found.values())


def _referred_to(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield name, _contents(cell)
        for name in value.__code__.co_names:
            if isinstance(value.__globals__.get(name), CompiledStateGraph):
                yield name, value.__globals__[name]
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
    elif isinstance(value, dict):
        yield from ((str(key), held) for key, held in list(value.items())[:_MAX_ENTRIES])
    elif isinstance(value, (RunnableCallable, StructuredTool, RunnableBinding)):
        for name in ("func", "afunc", "coroutine", "bound"):
            yield "", getattr(value, name, None)
