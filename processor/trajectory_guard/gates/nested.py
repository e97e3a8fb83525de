"""Graphs that functions and tools of a graph call: the workers of a supervisor, the sub-agents of a deep agent.

They are no nodes, and functions and tools stay as they are. A context variable says how such a graph is guarded while a
node or a tool of a guarded graph runs; ``Pregel.stream`` and ``Pregel.astream``, which all ways of running a graph go
through, look at it and run a guarded copy instead.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import cached_property, partial, wraps
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, Final

from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, RunnableLambda, RunnableSequence
from langchain_core.tools import StructuredTool
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from trajectory_guard.gates.langgraph_internals import PregelNode, RunnableCallable, tools_of
from trajectory_guard.gates.node_cache import without_gates

_MAX_SEEN: Final = 4096
"""Objects that are looked at, for one tool or node."""
_MAX_ENTRIES: Final = 64
_MAX_TWINS: Final = 128
"""Guarded copies that are kept for one gate."""
_ATTRIBUTES: Final = ("func", "afunc", "coroutine", "bound", "first", "last")
_HOLDERS: Final = (RunnableCallable, StructuredTool, RunnableBinding, RunnableLambda, RunnableSequence)
_TWIN: Final = "_trajectory_guard_twin"
_OWN: Final = frozenset(
    {"nodes", "channels", "stream_channels", "output_channels", "_state_mapper", "_output_mapper", "cache", _TWIN}
)
"""Attributes of a graph that a guarded copy has for itself."""
Graph = CompiledStateGraph[Any, Any, Any, Any]
Twin = Callable[[Any, "Nested", bool], Any]


# --- guarded copies ------------------------------------------------------------------------------------------------


class Nested:
    """Guarded copies of the graphs that are called below one gate, at any depth.

    Parameters:
        make: a guarded copy of a graph, or the graph itself if there is nothing to guard; it is given the graph, this
            object, and whether a gate of the caller has decided already.
        contain: counts and logs the error that is being handled.
    """

    def __init__(self, make: Twin, contain: Callable[[], Any]) -> None:
        self._make, self.contain = make, contain
        self._twins: dict[tuple[int, bool], tuple[weakref.ref[Any], Any]] = {}
        intercept()

    def twin(self, graph: Any, *, entered_guarded: bool = False) -> Any:
        """The guarded copy of ``graph``, with the attributes that ``graph`` has now."""
        if not _is_a(graph, CompiledStateGraph) or _TWIN in graph.__dict__:
            return graph
        key, under_way = (id(graph), entered_guarded), _under_way.get()
        known = self._twins.get(key)
        if known is None or known[0]() is not graph:
            if id(graph) in under_way:  # it refers to itself
                return graph
            token = _under_way.set(under_way | {id(graph)})
            try:
                known = self._keep(key, graph, self._make(graph, self, entered_guarded))
            finally:
                _under_way.reset(token)
        if known[1] is None:
            return graph
        follow(known[1], graph)
        return known[1]

    def _keep(self, key: tuple[int, bool], graph: Any, twin: Any) -> tuple[weakref.ref[Any], Any]:
        """Other threads may do the same: each copy serves. A copy can hold its graph, so their number is limited."""
        twins = self._twins
        if twin is not graph:
            twin.__dict__[_TWIN] = True
        kept = (weakref.ref(graph), None if twin is graph else twin)
        twins[key] = kept
        for other, (graph_of, _) in list(twins.items()):
            if graph_of() is None or (len(twins) > _MAX_TWINS and other != key):
                twins.pop(other, None)
        return kept

    @contextmanager
    def covering(self, *, entered_guarded: bool = False) -> Iterator[None]:
        """Graphs that are called inside are guarded."""
        token = _how.set((self, entered_guarded))
        try:
            yield
        finally:
            _how.reset(token)


_how: Final[ContextVar[tuple[Nested, bool] | None]] = ContextVar("trajectory_guard_nested", default=None)
_under_way: Final[ContextVar[frozenset[int]]] = ContextVar("trajectory_guard_under_way", default=frozenset())


def follow(twin: Any, graph: Any) -> None:
    """Give a guarded copy what was set on its graph since, such as a checkpointer; what the guard changed stays."""
    mine, theirs = twin.__dict__, dict(graph.__dict__)
    for key, value in theirs.items():
        if key not in _OWN and (key not in mine or mine[key] is not value):
            mine[key] = value
    for key in mine.keys() - theirs.keys() - _OWN:
        mine.pop(key, None)
    twin.cache = without_gates(graph.cache)


# --- interception --------------------------------------------------------------------------------------------------


def intercept() -> None:
    """Let graphs look at how they are guarded when they run. What others have put around ``Pregel`` stays in place.

    It needs no lock: of two threads one wins, and a graph that passes two interceptions is guarded once.
    """
    for name in ("stream", "astream"):
        method = getattr(Pregel, name)
        if not getattr(method, _TWIN, False):
            setattr(Pregel, name, _intercepted(method))


def _intercepted(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` for the guarded copy of its graph, as a generator of the same kind: callers look at the kind."""
    if isasyncgenfunction(method):

        @wraps(method)
        async def run_async(self: Any, *args: Any, **options: Any) -> Any:
            async with aclosing(method(_guarded(self), *args, **options)) as parts:
                async for part in parts:
                    yield part

        run: Callable[..., Any] = run_async
    elif isgeneratorfunction(method):

        @wraps(method)
        def run_sync(self: Any, *args: Any, **options: Any) -> Any:
            return (yield from method(_guarded(self), *args, **options))

        run = run_sync
    else:  # somebody else's wrapper, which returns a generator

        @wraps(method)
        def run_any(self: Any, *args: Any, **options: Any) -> Any:
            return method(_guarded(self), *args, **options)

        run = run_any
    setattr(run, _TWIN, True)
    return run


def _guarded(graph: Any) -> Any:
    """The guarded copy of a graph that is called by a guarded one; else the graph itself."""
    how = _how.get()
    if how is None:
        return graph
    nested, entered_guarded = how
    try:
        return nested.twin(graph, entered_guarded=entered_guarded)
    except Exception:  # noqa: BLE001  an error of ours must not cost the host its run
        nested.contain()
        return graph


class CoveringNode(PregelNode):
    """A node of a guarded graph: the graphs that it calls are guarded, too."""

    def __init__(self, plain: PregelNode, nested: Nested, *, entered_guarded: bool) -> None:
        self.__dict__.update(plain.copy({}).__dict__)
        self._plain, self._nested, self._entered_guarded = plain, nested, entered_guarded

    @cached_property
    def node(self) -> Runnable[Any, Any] | None:
        """The node and its writers, with the context variable set."""
        inner = self._plain.node
        return None if inner is None else _Covering(inner, self._nested, self._entered_guarded)

    def copy(self, update: dict[str, Any]) -> CoveringNode:
        """As ``PregelNode.copy``; what it calls is still guarded."""
        return CoveringNode(self._plain.copy(update), self._nested, entered_guarded=self._entered_guarded)


class _Covering(Runnable[Any, Any]):
    """Sets the context variable while ``inner`` runs, and never while a consumer has a chunk."""

    def __init__(self, inner: Runnable[Any, Any], nested: Nested, entered_guarded: bool) -> None:
        self._inner = inner
        self._covering = partial(nested.covering, entered_guarded=entered_guarded)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node."""
        with self._covering():
            return self._inner.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As ``invoke``."""
        with self._covering():
            return await self._inner.ainvoke(input, config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any | None) -> Iterator[Any]:
        """As ``invoke``; LangGraph streams nodes where a caller listens to events."""
        chunks: Any = self._inner.stream(input, config, **kwargs)
        try:
            while True:
                with self._covering():
                    try:
                        chunk = next(chunks)
                    except StopIteration:
                        return
                yield chunk
        finally:
            chunks.close()

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any | None
    ) -> AsyncIterator[Any]:
        """As ``stream``."""
        chunks: Any = self._inner.astream(input, config, **kwargs)
        try:
            while True:
                with self._covering():
                    try:
                        chunk = await anext(chunks)
                    except StopAsyncIteration:
                        return
                yield chunk
        finally:
            await chunks.aclose()


# --- what a function refers to -------------------------------------------------------------------------------------


def _is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """As ``isinstance``, which would evaluate a lazy proxy: it asks the object itself for its class."""
    return issubclass(type(value), kind)


def _parts(value: Any) -> list[Any]:
    """The objects inside ``value`` that it may call."""
    if _is_a(value, types.FunctionType):
        return [_contents(cell) for cell in value.__closure__ or ()]
    if _is_a(value, types.MethodType):
        return [value.__self__] if _is_a(value.__self__, CompiledStateGraph) else []
    if _is_a(value, dict):
        return list(value.values()) if len(value) <= _MAX_ENTRIES else []
    if _is_a(value, ToolNode):
        return [tools_of(value)]
    if _is_a(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if _is_a(value, _HOLDERS):
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
    if _is_a(node, RunnableCallable) and not _is_a(node, ToolNode):
        held += [part for function in (node.func, node.afunc) for part in _parts(function)]
    return next((one for one in held if _is_a(one, CompiledStateGraph)), None)


def graphs_in(value: Any) -> list[tuple[str, Graph]]:
    """Names and graphs that ``value`` may call, those behind global names included."""
    found: dict[int, tuple[str, Graph]] = {}
    seen: dict[int, Any] = {}
    ahead = [("", value)]
    while ahead and len(seen) < _MAX_SEEN:
        name, held = ahead.pop()
        if _is_a(held, CompiledStateGraph):
            found.setdefault(id(held), (name if name and held.name == "LangGraph" else str(held.name), held))
        elif id(held) not in seen:
            seen[id(held)] = held
            try:
                ahead.extend(_referred_to(held))
            except Exception:  # noqa: BLE001  an object of the host's that cannot be looked into holds none
                continue
    return list(found.values())


def _referred_to(value: Any) -> Iterator[tuple[str, Any]]:
    if _is_a(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield name, _contents(cell)
        for name in value.__code__.co_names:
            if _is_a(value.__globals__.get(name), CompiledStateGraph):
                yield name, value.__globals__[name]
    elif _is_a(value, dict):
        yield from ((str(key), held) for key, held in list(value.items())[:_MAX_ENTRIES])
    else:
        yield from (("", held) for held in _parts(value))
