"""Graphs that functions and tools of a graph call: the workers of a supervisor, the sub-agents of a deep agent.

They are no nodes, so they are found in what a function refers to, and guarded in a copy of that function.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from langchain_core.runnables import RunnableBinding, RunnableLambda, RunnableSequence
from langchain_core.tools import StructuredTool
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from trajectory_guard.gates.langgraph_internals import RunnableCallable, tools_of, with_tools

_MAX_SEEN: Final = 4096
"""Objects that are looked at, for one tool or node."""
_MAX_ENTRIES: Final = 64
_ATTRIBUTES: Final = ("func", "afunc", "coroutine", "bound", "first", "last")
_HOLDERS: Final = (RunnableCallable, StructuredTool, RunnableBinding, RunnableLambda, RunnableSequence)
Graph = CompiledStateGraph[Any, Any, Any, Any]
Guarded = Callable[[Any], Any]


def with_guarded(value: Any, guarded: Guarded) -> Any:
    """``value`` with every graph in its closures replaced by ``guarded(graph)``; ``value`` itself if it has none.

    Looks into functions, ``functools.partial`` (under asyncio LangGraph makes one of each node that is a plain
    function), bound methods of graphs, runnables, dicts, tools and tool nodes, and copies those only that lead to a
    graph. Global names are left alone: other functions use them too.
    """
    return _Copying(value, guarded).twin(value)


class _Copying:
    """Copies of what leads to graphs. Functions share what they refer to, and may refer to each other in circles."""

    def __init__(self, value: Any, guarded: Guarded) -> None:
        self._twins: dict[int, Any] = {}
        self._leads: set[int] = set()
        self._kept: list[Any] = []  # an object that is gone would give its identity to another
        users: dict[int, list[int]] = {}
        ahead = [value]
        while ahead and len(self._kept) < _MAX_SEEN:
            held = ahead.pop()
            self._kept.append(held)
            if isinstance(held, CompiledStateGraph):
                self._twins[id(held)] = guarded(held)
                continue
            for other in _parts(held):
                if id(other) not in users:
                    ahead.append(other)
                users.setdefault(id(other), []).append(id(held))
        changed = [held for held in self._kept if id(held) in self._twins and self._twins[id(held)] is not held]
        above = [id(held) for held in changed]
        while above:
            for user in users.get(above.pop(), ()):
                if user not in self._leads:
                    self._leads.add(user)
                    above.append(user)

    def twin(self, value: Any) -> Any:
        """The copy of ``value``, or itself if it leads to no graph."""
        if id(value) in self._twins or id(value) not in self._leads:
            return self._twins.get(id(value), value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.twin(value.__self__))
        if isinstance(value, dict):
            new = self._twins[id(value)] = {}
            new.update({key: self.twin(held) for key, held in value.items()})
            return new
        if isinstance(value, partial):
            return self._partial(value)
        new = self._twins[id(value)] = copy.copy(value)
        if isinstance(value, ToolNode):
            return with_tools(new, self.twin(tools_of(value)))
        for name in _ATTRIBUTES:
            if getattr(value, name, None) is not None:
                setattr(new, name, self.twin(getattr(value, name)))
        if isinstance(value, RunnableSequence):
            new.middle = [self.twin(step) for step in value.middle]
        return new

    def _partial(self, value: partial[Any]) -> partial[Any]:
        new = self._twins[id(value)] = partial(value.func)  # filled below: what it contains may lead back to it
        args, keywords = tuple(map(self.twin, value.args)), {key: self.twin(one) for key, one in value.keywords.items()}
        own = {key: self.twin(one) for key, one in value.__dict__.items()}
        new.__setstate__((self.twin(value.func), args, keywords, own))  # type: ignore[attr-defined]
        return new

    def _function(self, value: types.FunctionType) -> types.FunctionType:
        old = value.__closure__ or ()
        cells = tuple(types.CellType() if id(_contents(cell)) in self._changed else cell for cell in old)
        new = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
        new.__kwdefaults__, new.__qualname__ = value.__kwdefaults__, value.__qualname__
        new.__doc__ = value.__doc__
        # from Python 3.14 annotations are evaluated when they are asked for, and may name what only checkers import
        annotations = "__annotate__" if getattr(value, "__annotate__", None) is not None else "__annotations__"
        setattr(new, annotations, getattr(value, annotations))
        new.__dict__.update(value.__dict__)
        self._twins[id(value)] = new
        for cell, before in zip(cells, old, strict=True):
            if cell is not before:
                cell.cell_contents = self.twin(before.cell_contents)
        return new

    @property
    def _changed(self) -> set[int]:
        return self._leads | self._twins.keys()


def _parts(value: Any) -> list[Any]:
    """The objects inside ``value`` that a copy of it could replace."""
    if isinstance(value, types.FunctionType):
        return [_contents(cell) for cell in value.__closure__ or ()]
    if isinstance(value, types.MethodType):
        return [value.__self__] if isinstance(value.__self__, CompiledStateGraph) else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= _MAX_ENTRIES else []
    if isinstance(value, ToolNode):
        return [tools_of(value)]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, _HOLDERS):
        return [*(getattr(value, name, None) for name in _ATTRIBUTES), *(getattr(value, "middle", None) or ())]
    return []


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def held_graph(node: Any) -> Graph | None:
    """The graph that a node is, or that its function refers to itself; None if there is none.

    Tools are not looked into: a node that runs them is no agent, whatever they call.
    """
    held = [node]
    if isinstance(node, RunnableCallable) and not isinstance(node, ToolNode):
        held += [part for function in (node.func, node.afunc) for part in _parts(function)]
    return next((one for one in held if isinstance(one, CompiledStateGraph)), None)


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
    elif isinstance(value, dict):
        yield from ((str(key), held) for key, held in list(value.items())[:_MAX_ENTRIES])
    else:
        yield from (("", held) for held in _parts(value))
