"""Locks for code that runs while the application's own code may run in between, on the same thread.

Python may run a finalizer or a signal handler between any two of our statements: where an abandoned generator is
collected, the span around it ends there. Such code must not wait for a lock that its own thread holds: it would wait
for ever.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, cast

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


class HeldHereError(RuntimeError):
    """A thread asked for a lock that it has already: the protected values may be half changed."""


class HeldTooLongError(RuntimeError):
    """A thread waited for a lock for longer than it may: the one that holds it may be waiting for this thread."""


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

    Raises ``HeldHereError`` on entry, if the thread holds it, and ``HeldTooLongError`` within ``patience``. The release
    is that of the C class: an exception that a signal handler raises on the way out would otherwise leave the lock held
    for ever.
    """

    __slots__ = ()

    def __enter__(self) -> bool:
        outermost = _held.outermost
        if outermost is None or not outermost._is_owned():
            _held.outermost = self
        elif self._is_owned():
            raise HeldHereError("this thread holds the lock: it is asked for by a finalizer or a signal handler")
        try:
            if self.acquire(timeout=_held.patience_s):
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
