"""The engine's state of a trajectory: at rest one string of bytes, which no garbage collection walks through.

A full collection stops all threads for as long as it takes to look at each object that holds others. A state consists
of some fifty of them, and ten thousand conversations fit into the table.
"""

from __future__ import annotations

from collections.abc import Callable

from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.process.locks import OwnedLock


class RestingState:
    """A state that is packed while nobody uses it.

    Attributes:
        lock: held by the thread that works on the state; last_used: seconds, by the clock of the table.
    """

    __slots__ = ("_packed", "_state", "_wake", "last_used", "lock")

    def __init__(self, state: TrajectoryState) -> None:
        self._state: TrajectoryState | None = state
        self._packed = b""
        self.lock, self.last_used = OwnedLock(), 0.0
        self._wake: Callable[[RestingState], None] | None = None

    @property
    def state(self) -> TrajectoryState:
        """The engine's state, unpacked if it rests. Another thread may pack it again before this one has seen it."""
        state = self._state
        while state is None:
            assert self._wake is not None  # as of ``pack``
            self._wake(self)
            state = self._state
        return state

    @state.setter
    def state(self, state: TrajectoryState) -> None:
        """Replace the state; the caller holds ``lock``."""
        if self._state is None and self._wake is not None:
            self._wake(self)  # a reader may be unpacking the one before: it must not come after this one
        self._state = state

    def pack(self, wake: Callable[[RestingState], None]) -> None:
        """Keep the state as bytes until it is asked for; not while a thread works on it, nor before its first step.

        Parameters:
            wake: called when the state is asked for; it calls ``unpack``.
        """
        if self._state is None or self._state.index == 0 or self.lock.locked() or not self.lock.acquire(blocking=False):
            return
        try:
            self._packed, self._wake = self._state.to_bytes(), wake
            self._state = None
        finally:
            self.lock.release()

    def unpack(self, load: Callable[[bytes], TrajectoryState]) -> None:
        """Restore the state, unless another thread has; the bytes are kept until ``drop_packed``."""
        if self._state is None:
            self._state = load(self._packed)

    def drop_packed(self) -> None:
        """Forget the bytes of a state that is awake; the caller keeps all others from packing it."""
        if self._state is not None:
            self._packed = b""
