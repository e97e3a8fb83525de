"""LangGraph's cache of nodes, without what a gate writes.

A cached node does not run again on a hit: LangGraph replays its writes, also in another thread. What an agent answers
may be replayed, because the application says so. What a gate decides is true of one thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph.cache.base import BaseCache, FullKey, Namespace

from trajectory_guard.gates.own_keys import MEMORY, guard_channels

_INTERVENED: Final = ("nudged", "stopped")
Writes = Iterable[tuple[str, Any]]


class CacheWithoutGates(BaseCache[Any]):
    """A cache of an application that keeps the writes of its nodes, and none of a gate.

    A visit in which the gate has nudged or stopped the agent is not kept: the agent did not answer on its own. A hit
    skips the evaluation; the next visit that misses the cache makes up for it.
    """

    def __init__(self, inner: BaseCache[Any]) -> None:
        super().__init__(serde=inner.serde)
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that has none yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """As ``BaseCache.get``; entries of processes that kept a gate's writes are read without them."""
        return _of_nodes(self._inner.get(keys))

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """As ``get``."""
        return _of_nodes(await self._inner.aget(keys))

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """As ``BaseCache.set``."""
        if kept := _to_keep(pairs):
            self._inner.set(kept)

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """As ``set``."""
        if kept := _to_keep(pairs):
            await self._inner.aset(kept)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """As ``BaseCache.clear``."""
        self._inner.clear(namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """As ``clear``."""
        await self._inner.aclear(namespaces)


def without_gates(cache: BaseCache[Any] | None) -> BaseCache[Any] | None:
    """The cache to compile a guarded graph with."""
    return cache if cache is None or isinstance(cache, CacheWithoutGates) else CacheWithoutGates(cache)


def _to_keep(pairs: Mapping[FullKey, tuple[Any, int | None]]) -> dict[FullKey, tuple[Any, int | None]]:
    kept = {key: (_of_node(writes), ttl) for key, (writes, ttl) in pairs.items()}
    return {key: (writes, ttl) for key, (writes, ttl) in kept.items() if writes is not None}


def _of_nodes(found: Mapping[FullKey, Any]) -> dict[FullKey, Any]:
    kept = {key: _of_node(writes) for key, writes in found.items()}
    return {key: writes for key, writes in kept.items() if writes is not None}


def _of_node(writes: Writes) -> Any:
    """The writes of the node itself; None if there are none, or the gate has intervened.

    Writes without a gate stay as they are.
    """
    own = {key: value for key, value in list(writes) if key in guard_channels()}
    if MEMORY not in own:
        return writes
    status = own.get("loop_status")
    if isinstance(status, Mapping) and status.get("status") in _INTERVENED:
        return None
    return [(key, value) for key, value in list(writes) if key not in own] or None
