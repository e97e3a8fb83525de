"""Forks and imports while other threads are at work: locks that children renew, imports that forks wait for."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import MethodType, TracebackType
from typing import Any, Final, cast

from trajectory_guard import telemetry

_FORK_WAIT_S: Final = 30.0
_log: Final = logging.getLogger(telemetry.LOGGER)
_owners: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], object]]] = weakref.WeakKeyDictionary()


def after_fork(method: Callable[[], object]) -> None:
    """Have a bound method called in forked children, as long as its object lives; one method an object."""
    bound = cast(MethodType, method)
    _owners[bound.__self__] = bound.__func__


def load_here(*modules: str) -> None:
    """Import libraries, as far as they are installed, before a thread of the guard does.

    Other libraries look these up in ``sys.modules`` without the lock of imports (clients of models look for ``httpx``).
    While a thread imports one, they would find half a module there, and the application's own request would fail.
    """
    for module in modules:
        if module not in sys.modules:
            with suppress(Exception):  # missing or broken: whoever needs it says so
                import_module(module)


def now_and_after_fork(method: Callable[[], object]) -> None:
    """Call a bound method, and have it called in forked children, as long as its object lives."""
    method()
    after_fork(method)


class ForkDelay:
    """A context in which a thread of the guard may import: a fork waits for its end, ``_FORK_WAIT_S`` at most.

    A child forked while a thread imports would keep half-imported modules and their locks until it ends: an import of
    the application's own would hang there, or find half a module.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held = False  # by a fork
        _delays.append(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """Wait until no thread imports, and let none begin."""
        self._is_held = self._lock.acquire(timeout=_FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Let threads import again."""
        if self._is_held:
            self._is_held = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Renew the lock: no thread imports in a child."""
        self._is_held = False
        self._lock = threading.Lock()


_delays: Final[list[ForkDelay]] = []


def _before() -> None:
    for delay in _delays:
        delay.before_fork()


def _in_parent() -> None:
    for delay in _delays:
        delay.after_fork_in_parent()


def _in_child() -> None:
    for delay in _delays:
        delay.after_fork_in_child()
    failed: list[tuple[str, Exception]] = []
    for owner, method in list(_owners.items()):
        try:
            method(owner)
        except Exception as error:  # noqa: BLE001, PERF203  the owners after this one still need their locks
            failed.append((type(owner).__name__, error))
    for name, failure in failed:
        _log.error("trajectory_guard: %s is not ready in a forked process", name, exc_info=failure)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
