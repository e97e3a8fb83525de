"""Guarding a compiled graph that cannot be changed: ``guarded_invoke`` and its async and streaming twins.

The graph is taken apart, rewired and compiled again under the same name, checkpointer and store; the original stays
as it is. Sub-graphs are guarded too.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, Final

from trajectory_guard.extras import missing

try:
    from langgraph.graph.state import CompiledStateGraph
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

from trajectory_guard.config import GuardConfig
from trajectory_guard.flags import FlagBoard
from trajectory_guard.gates.langgraph import NudgeRole, apply_guard
from trajectory_guard.gates.rewire import GraphShapeError, clone
from trajectory_guard.runtime import shared_board

Compiled = CompiledStateGraph[Any, Any, Any, Any]
_MODES: Final = ("enforce", "nudge", "observe")
_KEPT: Final = ("config", "retry_policy", "cache_policy", "step_timeout", "stream_mode", "stream_eager")
_cache: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def guard_compiled(
    graph: Compiled,
    config: GuardConfig | None = None,
    *,
    tools: str | list[str] | None = None,
    agent: str | None = None,
    on_stop: str = "end",
    nudge_role: NudgeRole = "user",
    messages_key: str = "messages",
    board: FlagBoard | None = None,
) -> Compiled:
    """A guarded copy of a compiled graph, sub-graphs included; arguments as for ``apply_guard``.

    Raises:
        GraphShapeError: it is no compiled LangGraph graph, or neither it nor a sub-graph has tools to guard.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise GraphShapeError(f"expected a compiled LangGraph graph, got {type(graph).__name__}")
    builder, guarded = clone(graph.builder), False
    options: dict[str, Any] = {
        "on_stop": on_stop,
        "nudge_role": nudge_role,
        "messages_key": messages_key,
        "board": board,
    }
    for name, spec in builder.nodes.items():
        if isinstance(spec.runnable, CompiledStateGraph):
            try:
                builder.nodes[name] = replace(spec, runnable=guard_compiled(spec.runnable, config, **options))
                guarded = True
            except GraphShapeError:
                continue  # a sub-graph without tools of its own
    try:
        apply_guard(builder, config, tools=tools, agent=agent, **options)
    except GraphShapeError:
        if not guarded or tools is not None or agent is not None:
            raise
    return _recompile(graph, builder)


def _recompile(graph: Compiled, builder: Any) -> Compiled:
    extra = {"transformers": graph.stream_transformers} if getattr(graph, "stream_transformers", None) else {}
    twin = builder.compile(
        checkpointer=graph.checkpointer,
        store=graph.store,
        cache=graph.cache,
        interrupt_before=graph.interrupt_before_nodes or None,
        interrupt_after=graph.interrupt_after_nodes or None,
        debug=graph.debug,
        name=graph.name,
        **extra,
    )
    twin = twin.copy({key: getattr(graph, key) for key in _KEPT if hasattr(graph, key)})
    if isinstance(twin.output_channels, (list, tuple)) and "loop_status" in twin.channels:
        twin.output_channels = [*dict.fromkeys((*twin.output_channels, "loop_status"))]
    return twin  # type: ignore[no-any-return]


def _guarded(graph: Compiled, mode: str | None, options: dict[str, Any]) -> Compiled:
    if mode is not None:
        if mode not in _MODES:
            raise ValueError(f"mode: {mode!r} is none of {', '.join(map(repr, _MODES))}")
        guard = options.get("guard_config")
        if guard is None:  # the mode alone is no configuration that others have to agree with
            board = options.get("board") or shared_board()
            guard, options = board.config, {**options, "board": board}
        options = {**options, "guard_config": guard.model_copy(update={"mode": mode})}
    config = options.pop("guard_config", None)
    key = (
        config.model_dump_json() if config is not None else None,
        tuple(sorted((k, str(v)) for k, v in options.items())),
    )
    known = _cache.setdefault(graph, {})
    if key not in known:
        known[key] = guard_compiled(graph, config, **options)
    return known[key]  # type: ignore[no-any-return]


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = ("guard_config", "tools", "agent", "on_stop", "nudge_role", "messages_key", "board")
    return {k: options.pop(k) for k in names if k in options}, options


def guarded_invoke(graph: Compiled, input: Any, config: Any = None, *, mode: str | None = None, **options: Any) -> Any:
    """``graph.invoke(input, config)`` with a gate between its tools and its agent.

    Parameters:
        mode: ``enforce``, ``nudge`` or ``observe``; by default that of the configuration.
        options: ``guard_config``, ``tools``, ``agent``, ``on_stop``, ``nudge_role``, ``messages_key`` and ``board`` as
            for ``apply_guard``; everything else goes to ``invoke``.

    Returns:
        What ``invoke`` returns, with ``loop_status`` added.
    """
    guard, rest = _split(options)
    return _guarded(graph, mode, guard).invoke(input, config, **rest)


async def guarded_ainvoke(
    graph: Compiled, input: Any, config: Any = None, *, mode: str | None = None, **options: Any
) -> Any:
    """Async ``guarded_invoke``."""
    guard, rest = _split(options)
    return await _guarded(graph, mode, guard).ainvoke(input, config, **rest)


def guarded_stream(
    graph: Compiled, input: Any, config: Any = None, *, mode: str | None = None, **options: Any
) -> Iterator[Any]:
    """``graph.stream`` with a gate; options as for ``guarded_invoke``."""
    guard, rest = _split(options)
    yield from _guarded(graph, mode, guard).stream(input, config, **rest)


async def guarded_astream(
    graph: Compiled, input: Any, config: Any = None, *, mode: str | None = None, **options: Any
) -> AsyncIterator[Any]:
    """Async ``guarded_stream``."""
    guard, rest = _split(options)
    async for chunk in _guarded(graph, mode, guard).astream(input, config, **rest):
        yield chunk
