"""Work that may wait, on a daemon thread of its own: never on a pool of the host, which may be full, or wait for us."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def on_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Do work on a daemon thread: the time-out of a socket bounds neither the look-up of a name nor the sum.

    Raises:
        RuntimeError: no thread can be started.
    """
    done: Future[T] = Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  the thread that waits raises it
            done.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return done


def within(work: Callable[[], T], timeout_s: float, name: str) -> T:
    """The result of work that may take so long.

    Raises:
        TimeoutError: it takes longer; it may go on.
    """
    done = on_thread(work, name)
    try:
        return done.result(timeout_s)
    except LateError:
        if done.done():
            raise  # of the work itself
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None


async def beside_the_loop(work: Callable[[], T], failed: Callable[[], object]) -> T:
    """The result of a gate's work that may wait (a collector, a ledger on disk), while the event loop goes on.

    The loop's default executor is the host's: it may be busy for minutes, or be full of tools that wait for the very
    agent whose gate this is. Where no thread can be started, the work is done here: each of its waits is bounded.

    Parameters:
        failed: counts that no thread could be started.
    """
    try:
        begun = on_thread(work, "trajectory_guard-gate")
    except RuntimeError:
        failed()
        return work()
    return await asyncio.wrap_future(begun)
