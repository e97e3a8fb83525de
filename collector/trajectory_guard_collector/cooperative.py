"""Long work in the event loop, in short turns, so that probes, receivers and exporters run in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar, cast
from weakref import WeakKeyDictionary

TURN_S: Final = 0.01
"""Seconds of work in one turn."""
_T = TypeVar("_T")
_locks: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


async def in_turns(work: Generator[None, None, _T]) -> _T:
    """Run a generator that yields wherever it can be interrupted, and return its result.

    All such work of an event loop shares one place: regardless of the number of requests, at most ``TURN_S`` seconds
    and one step of one of them pass between two rounds of the loop. They get their turns one after the other.

    Raises:
        Exception: whatever the generator raises.
    """
    while True:
        async with _lock():
            until = time.perf_counter() + TURN_S
            try:
                next(work)
                while time.perf_counter() < until:
                    next(work)
            except StopIteration as end:
                return cast(_T, end.value)
            # with the lock held, since the next task would otherwise continue in the same round
            await asyncio.sleep(0)


def at_once(work: Generator[None, None, _T]) -> _T:
    """Run a generator without interruption, and return its result."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        return cast(_T, end.value)


def _lock() -> asyncio.Lock:
    loop = asyncio.get_running_loop()
    lock = _locks.get(loop)
    if lock is None:
        lock = _locks[loop] = asyncio.Lock()
    return lock
