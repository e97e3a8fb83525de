"""Lines for standard error and standard output, written by a thread: a reader who stops reading delays nobody else."""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

MAX_MIB: Final = 8.0
FLUSH_S: Final = 2.0
_MIB: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 20
"""Lines are written together up to this size: with a call for each line, the thread would wait for the interpreter lock
before each, and fall behind those who log."""
_WRITABLE_S: Final = 1.0


class LineWriter:
    """Writes lines to a stream, in order, from a thread of its own.

    Every method may be called from any thread, and also where the garbage collector or a signal handler interrupts one.

    Parameters:
        stream: where the lines go. They are written to its descriptor, if it has one: a thread that is stuck in the
            stream itself would hold its lock, and the interpreter could not exit. None discards all lines.
        max_mib: MiB of lines that may wait; further ones are dropped and counted.
        resumed: called in the thread once the lines that waited are written, with the number of lines dropped before.

    Attributes:
        dropped: lines that were not written: too many waited, or the stream refused them.
    """

    def __init__(
        self, stream: TextIO | None, *, max_mib: float = MAX_MIB, resumed: Callable[[int], None] = lambda _: None
    ) -> None:
        self.dropped = 0
        self._stream, self._max_bytes, self._resumed = stream, round(max_mib * _MIB), resumed
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._descriptor: int | None = None
        with suppress(OSError, ValueError, AttributeError):  # a stream in memory has none
            self._descriptor = stream.fileno() if stream is not None else None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._changed = threading.Condition(threading.RLock())
        self._waiting = self._reported = self._batches = 0
        self._stuck_at = -1
        if stream is not None:
            threading.Thread(target=self._run, name="lines", daemon=True).start()

    def put(self, line: str, *, always: bool = False) -> None:
        """Write a line soon, or drop and count it if too much waits. ``always``: it is never dropped."""
        if self._stream is None:
            return
        data = f"{line}\n".encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._waiting + len(data) > self._max_bytes and not always:
                self.dropped += 1
                return
            self._waiting += len(data)
        self._lines.put(data)

    def flush(self, timeout_s: float) -> None:
        """Return once no line waits, or after ``timeout_s``; at once if that ran out before and nothing moved since."""
        with self._changed:
            if self._stuck_at == self._batches:
                return
            if not self._changed.wait_for(lambda: not self._waiting, timeout_s):
                self._stuck_at = self._batches

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            data = b"".join(batch)
            lost = self._write(data)
            with self._changed:
                self._waiting -= len(data)
                self._batches += 1
                self.dropped += lost
                dropped = self.dropped - self._reported
                if dropped and not lost and self._lines.empty():  # before ``flush`` learns that nothing waits
                    self._reported += dropped
                    self._resumed(dropped)
                self._changed.notify_all()

    def _next_batch(self) -> list[bytes]:
        batch = [self._lines.get()]
        size = len(batch[0])
        with suppress(queue.Empty):
            while size < _BATCH_BYTES:
                batch.append(self._lines.get_nowait())
                size += len(batch[-1])
        return batch

    def _write(self, data: bytes) -> int:
        """Write all of it; returns the number of lines that could not be written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        except (OSError, ValueError):  # the reader has gone, the disk is full, the stream is closed
            return bytes(rest).count(b"\n")
        return 0

    def _write_some(self, data: memoryview) -> int:
        if self._descriptor is None:
            assert self._stream is not None
            self._stream.write(bytes(data).decode(self._encoding))
            self._stream.flush()
            return len(data)
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # whoever shares a terminal may have made it non-blocking
            select.select((), (self._descriptor,), (), _WRITABLE_S)
            return 0
