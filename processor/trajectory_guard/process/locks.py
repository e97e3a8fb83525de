"""Locks for code that runs while the application's own code may run in between, on the same thread.

Python may run a finalizer or a signal handler between any two of our statements: where an abandoned generator is
collected, the span around it ends there. Such code must not wait for a lock that its own thread holds: it would wait
for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from types import TracebackType

    class _RLock:
        """``_thread.RLock``: its type stub calls it final, and lacks the method ``threading.Condition`` relies on."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def __enter__(self) -> bool: ...
        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
else:
    from _thread import RLock as _RLock


P = ParamSpec("P")
R = TypeVar("R")


class HeldHereError(RuntimeError):
    """A thread asked for a lock that it has already: the protected values may be half changed."""


class HeldTooLongError(RuntimeError):
    """A thread waited for a lock for longer than it may: the one that holds it may be waiting for this thread."""


class RetiredError(RuntimeError):
    """A thread waited for the lock of something that another thread has replaced or removed meanwhile."""


class _Held(threading.local):
    """What the current thread holds.

    Attributes:
        outermost: the lock that it entered first. It is the last to be left: if the thread has left it, it holds none.
        patience_s: seconds for which it waits for a lock; -1 for as long as it takes.
    """

    outermost: OwnedLock | None = None
    patience_s: float = -1.0


_held: Final = _Held()


class OwnedLock(_RLock):
    """A lock for ``with`` and ``condition_on`` that raises instead of waiting for its own thread.

    Raises ``HeldHereError`` on entry, if the thread holds it, ``HeldTooLongError`` within ``patience``, and
    ``RetiredError`` if it is retired. The release is that of the C class: an exception that a signal handler raises on
    the way out would otherwise leave the lock held for ever.

    Attributes:
        retired: what the lock protects has been replaced or removed: a change to it would be lost. A thread that has
            found it before looks again (``looks_again``).
    """

    __slots__ = ("retired",)

    def __init__(self) -> None:
        self.retired = False

    def __enter__(self) -> bool:
        outermost = _held.outermost
        if outermost is None or not outermost._is_owned():
            _held.outermost = self
        elif self._is_owned():
            raise HeldHereError("this thread holds the lock: it is asked for by a finalizer or a signal handler")
        try:
            if self.acquire(timeout=_held.patience_s):
                if self.retired:
                    raise RetiredError("what the lock protects has been replaced or removed")
                return True
            raise HeldTooLongError(f"another thread has held the lock for {_held.patience_s:g} s")
        except BaseException:  # raised by a signal handler, perhaps after the lock was taken
            if self._is_owned():
                self.release()
            raise

    def locked(self) -> bool:
        """Whether any thread holds the lock."""
        if self._is_owned():
            return True
        if self.acquire(blocking=False):
            self.release()
            return False
        return True


def looks_again(method: Callable[P, R]) -> Callable[P, R]:
    """Call a method again that has looked something up and then found its lock retired: it looks up the successor.

    Before it has the lock such a method changes nothing that must not be changed twice.
    """

    @wraps(method)
    def looking(*args: P.args, **kwargs: P.kwargs) -> R:
        while True:
            try:
                return method(*args, **kwargs)
            except RetiredError:  # noqa: PERF203  raised once in thousands of calls, if ever
                continue

    return looking


def holds_lock() -> bool:
    """Whether the current thread holds a lock of the guard."""
    outermost = _held.outermost
    return outermost is not None and outermost._is_owned()


class patience:
    """A context in which this thread waits for each lock of the guard for so many seconds at most; None: without limit.

    Raises ``HeldTooLongError`` inside.
    """

    __slots__ = ("_before", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = -1.0 if seconds is None else seconds

    def __enter__(self) -> None:
        self._before, _held.patience_s = _held.patience_s, self._seconds

    def __exit__(self, *_: object) -> None:
        _held.patience_s = self._before


def condition_on(lock: OwnedLock) -> threading.Condition:
    """A condition to wait on and to notify inside ``with lock:``.

    ``with`` the condition itself would run Python code on the way out, where a signal handler's exception leaves the
    lock held.
    """
    return threading.Condition(cast(Any, lock))
