"""A gate around single nodes of a graph: it measures what they return, thread by thread, and changes nothing.

Wrapped nodes may be functions, coroutine functions or instances of classes with ``__call__``, sync and async. Nothing
here needs LangGraph: a wrapped node asks for LangGraph's ``config`` by its signature, which names the thread.
"""

from __future__ import annotations

import functools
import inspect
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from opentelemetry import trace

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.callbacks import Intervention, notify
from trajectory_guard.config import is_disabled
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.otel.metrics import register_globally
from trajectory_guard.otel.publishing import publish
from trajectory_guard.process.containment import contain
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.runtime import shared_board

EPHEMERAL_THREAD: Final = "__ephemeral__"
"""Stands for the thread of a node that is called without a thread id."""
MAX_THREADS: Final = 10_000
MAX_CERTIFICATES: Final = 8
Memory = TypeVar("Memory", bound="ThreadMemory")
Node = Callable[..., Any]
_STATE: Final = inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONFIG: Final = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None)
"""Without an annotation: LangGraph hands its config over only where it knows the annotation, or there is none."""


class ThreadMemory:
    """A gate's memory of one thread; subclasses add to it.

    Attributes:
        certificates: the newest certificates of the thread.
        fired: the gate's finding holds now.
    """

    __slots__ = ("certificates", "fired")

    def __init__(self) -> None:
        self.fired = False
        self.certificates: deque[Certificate] = deque(maxlen=MAX_CERTIFICATES)


class OutputGate(ABC, Generic[Memory]):
    """The common part of gates around nodes: wrapping, threads, the edge, certificates and reports.

    Parameters:
        board: the board that findings are reported to; by default that of the process, when the first one is found.
        max_threads: threads remembered; the one that was not used for longest is forgotten first.
    """

    name: str

    def __init__(self, *, board: FlagBoard | None = None, max_threads: int = MAX_THREADS) -> None:
        if max_threads < 1:
            raise ValueError(f"max_threads: at least 1, got {max_threads}")
        self._board = board
        self._threads: BoundedTable[str, Memory] = BoundedTable(max_threads)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    # --- the public surface ----------------------------------------------------------------------------------

    @property
    def certificates(self) -> list[Certificate]:
        """The certificates of all threads, those of the thread used longest ago first."""
        with self._lock:
            return [one for memory in self._threads.values() for one in memory.certificates]

    def reset(self, thread_id: str | None = None) -> None:
        """Forget a thread; None forgets all."""
        with self._lock:
            if thread_id is None:
                self._threads.clear()
            else:
                self._threads.pop(bounded_name(str(thread_id)), None)

    def edge(self, forward: str, break_to: str) -> Callable[..., str]:
        """A router for ``add_conditional_edges``: ``break_to`` while the gate has fired in this thread.

        A gate that only observes (``mode="observe"``, ``TRAJECTORY_GUARD_DISABLED``) always routes ``forward``.
        """

        def route(state: Any, config: Any = None) -> str:
            acts = self._fired(thread_of((config,), {})) and not self._only_observes()
            return break_to if acts else forward

        route.__signature__ = inspect.Signature([_STATE, _CONFIG])  # type: ignore[attr-defined]  # LangGraph reads it
        return route

    def _wrap(self, node: Node, measure: Callable[[Any, str, str], None]) -> Node:
        """``node`` with ``measure(output, thread, name)`` after it. Errors of the gate cost the node nothing."""
        if not callable(node):
            raise TypeError(f"wrap: expected a function or an object with __call__, got {type(node).__name__}")
        name, takes_config = _name_of(node), _takes_config(node)

        def after(output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            try:
                measure(output, thread_of(args[1:], kwargs), name)
            except Exception:  # noqa: BLE001  the gate must not break the graph
                self._contain()
            return output

        async def after_awaiting(pending: Awaitable[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            return after(await pending, args, kwargs)

        def own(kwargs: dict[str, Any]) -> dict[str, Any]:
            return kwargs if takes_config else {key: value for key, value in kwargs.items() if key != "config"}

        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            return after(await node(*args, **own(kwargs)), args, kwargs)

        def wrapped_sync(*args: Any, **kwargs: Any) -> Any:
            output = node(*args, **own(kwargs))
            if inspect.isawaitable(output):  # a plain function that returns a coroutine
                return after_awaiting(output, args, kwargs)
            return after(output, args, kwargs)

        def wrapped_generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            output = None
            for part in node(*args, **own(kwargs)):
                output = _with_part(output, part)
                yield part
            after(output, args, kwargs)

        async def wrapped_async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            output = None
            async for part in node(*args, **own(kwargs)):
                output = _with_part(output, part)
                yield part
            after(output, args, kwargs)

        wrapped: Any = wrapped_async if is_async(node) else wrapped_sync
        if inspect.isgeneratorfunction(kind := _plain(node)):
            wrapped = wrapped_generator
        elif inspect.isasyncgenfunction(kind):
            wrapped = wrapped_async_generator
        functools.update_wrapper(wrapped, node if inspect.isroutine(node) else type(node).__call__, updated=())
        wrapped.__name__ = wrapped.__qualname__ = name
        wrapped.__signature__ = _signature(node)
        return cast("Node", wrapped)

    # --- for the gates ---------------------------------------------------------------------------------------

    def _used_board(self) -> FlagBoard:
        return self._board if self._board is not None else shared_board()

    def _only_observes(self) -> bool:
        return is_disabled() or self._used_board().config.mode == "observe"

    def _fired(self, thread: str) -> bool:
        with self._lock:
            memory = self._threads.get(bounded_name(str(thread)))
            return memory is not None and memory.fired

    @abstractmethod
    def _new_memory(self) -> Memory:
        """The memory of a thread that is new."""

    def _memory(self, thread: str) -> Memory:
        """The memory of a thread; the caller has the lock."""
        thread = bounded_name(thread)
        memory = self._threads.touch(thread)
        if memory is None:
            memory = self._threads[thread] = self._new_memory()
        return memory

    def _report(
        self, thread: str, node: str, output: str | None, found: DetectionResult | None, measured: Mapping[str, Any]
    ) -> None:  # fmt: skip
        """Report an output to the board: same policy, flags, metrics, logs and spans as for tool calls.

        Parameters:
            output: fingerprint of the output, SHA-256 hex.
            found: the finding, with indices counted from this output.
        """
        board = self._used_board()
        register_globally(board)
        span = trace.get_current_span().get_span_context()
        trace_id = f"{span.trace_id:032x}" if span.is_valid else None
        trajectory = board.resolve_alias(thread if thread != EPHEMERAL_THREAD else trace_id or thread)
        step = StepRecord(
            uuid.uuid4().hex[:16], trajectory, node, None, output, timestamp=time.time(), trace_id=trace_id,
            run=f"{self.name}:{node}",
        )  # fmt: skip
        verdict = board.report(step, found, measured)
        redact = board.config.redact
        publish(verdict, board, redact=redact)
        if verdict.intervenes:
            due = Intervention(verdict.level, "", verdict, {}, delivered=False)
            notify(board.config.on_intervention, due, board.counts)

    def _contain(self) -> None:
        contain(self._used_board().counts, "gate", "error in a %s gate, contained", self.name)


# --- nodes and threads -------------------------------------------------------------------------------------------


def thread_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The thread id in what LangGraph hands to a node beside the state; ``EPHEMERAL_THREAD`` if there is none.

    Only ``config`` and ``runtime`` are looked at: a value of the application that happens to look like either is none.
    """
    for value in (*args, kwargs.get("config"), kwargs.get("runtime")):
        config = value if isinstance(value, Mapping) else getattr(value, "config", None)
        settings = config.get("configurable") if isinstance(config, Mapping) else None
        found = settings.get("thread_id") if isinstance(settings, Mapping) else None
        if found is None:
            found = getattr(getattr(value, "execution_info", None), "thread_id", None)
        if found is not None:
            return str(found)
    return EPHEMERAL_THREAD


def is_async(node: Node) -> bool:
    """Whether a call of ``node`` returns a coroutine: a coroutine function, a partial of one, or ``async __call__``."""
    node = _plain(node)
    return inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(getattr(type(node), "__call__", None))  # noqa: B004


def _with_part(output: Any, part: Any) -> Any:
    """The output of a generator so far, as LangChain adds its parts up: what cannot be added replaces it."""
    try:
        return part if output is None else output + part
    except TypeError:
        return part


def _plain(node: Node) -> Node:
    while isinstance(node, functools.partial):
        node = node.func
    return node


def _name_of(node: Node) -> str:
    node = _plain(node)
    return str(getattr(node, "__name__", None) or type(node).__name__)


def _parameters(node: Node) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(node).parameters
    except (TypeError, ValueError):
        return None


def _takes_config(node: Node) -> bool:
    return "config" in (_parameters(node) or {})


def _signature(node: Node) -> inspect.Signature:
    """The node's signature with ``config``, which LangGraph then hands over."""
    known = _parameters(node)
    parameters = [*known.values()] if known is not None else [_STATE]
    if all(one.name != "config" for one in parameters):
        variable = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        parameters.insert(len(parameters) - variable, _CONFIG)
    return inspect.Signature(parameters)
