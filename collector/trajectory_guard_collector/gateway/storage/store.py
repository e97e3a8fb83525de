"""Batches, write-ahead log and saved state on disk: an SQLite file behind an asyncio interface."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard_collector.config.models import Queue
from trajectory_guard_collector.errors import OverloadedError, TooLargeError, UnavailableError
from trajectory_guard_collector.gateway.storage.database import (
    Database,
    DatabaseError,
    StoredBatch,
    WaitingBatches,
    cannot_use,
)
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

__all__ = ["DatabaseError", "Store", "StoredBatch", "WaitingBatches"]

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1024 * 1024
_T = TypeVar("_T")
_Acknowledged = list[tuple[str, list[tuple[str, int]]]]
RETRY_AFTER_S: Final = 1.0
_FULL_SHARE: Final = 0.05
"""Share of the queue that is free at most while the queue counts as full: one large request does not make it full."""
_FULL: Final = "queue.max_size_mib is reached"
_PROBE_BYTES: Final = 256 * 1024
"""Free bytes required before the disk counts as usable again."""


class _Write(NamedTuple):
    statement: Callable[[Database], Any]
    size: int
    result: asyncio.Future[Any]


class Store:
    """Storage of batches, write-ahead log and state, in ``collector.db`` of a directory.

    All statements run in one thread. Writes that are asked for while a transaction is being committed go together into
    the next one, so that many requests share one flush to the disk. Only one collector can use a directory.

    Parameters:
        queue: ``storage`` (required), ``max_size_mib``, ``fsync``.
        saved_anew: see ``Database``; called in that thread.
    """

    def __init__(self, queue: Queue, *, saved_anew: Callable[[], None] = lambda: None) -> None:
        if queue.storage is None:
            raise ValueError("queue.storage is missing")
        self._directory = Path(queue.storage)
        self._fsync, self._saved_anew = queue.fsync, saved_anew
        self._thread: ThreadPoolExecutor | None = None
        self._opened: Database | None = None
        self._writes: list[_Write] = []
        self._acknowledged: _Acknowledged = []
        self._flusher: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._throttled = ThrottledLog(_log)
        self._probe: asyncio.TimerHandle | None = None
        self.capacity_bytes: Final = int(queue.max_size_mib * _MIB)
        self.used_bytes = 0
        self._refused_bytes = 0  # size of the last request if there was no room for it, else 0
        self.last_wal_id = 0

    async def start(self) -> None:
        """Open the file, or create it. Idempotent.

        Raises:
            DatabaseError: it is damaged, in use or cannot be written; names the file.
        """
        if self._opened is not None:
            return
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._opened, self.used_bytes, self.last_wal_id = await self._run(self._open)
        except BaseException:
            self._thread.shutdown(wait=False)
            self._thread = None
            raise

    async def stop(self) -> None:
        """Finish requested writes and close the file. Idempotent; may be called without ``start``."""
        if self._opened is None or self._thread is None:
            return
        self._kick()
        while self._flusher is not None and not self._flusher.done():
            await asyncio.wait([self._flusher])
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        database, self._opened = self._opened, None
        await self._run(database.close)
        self._thread.shutdown()
        self._thread = None

    def ready(self) -> str | None:
        """None if batches can be written, else the reason why not."""
        if self._opened is None:
            return "queue.storage: not open"
        if self._refused_bytes and self.used_bytes + self._refused_bytes > self.capacity_bytes:
            return _FULL
        return self._failure

    async def put(self, batch: Batch, exporters: Sequence[str], wal_entry: bytes | None = None) -> None:
        """Write a batch for exporters, and a write-ahead row, in one transaction. They are on disk on return.

        Must not be cancelled: see ``to_the_end``.

        Raises:
            OverloadedError: ``max_size_mib`` is reached, or the disk is full or failed; nothing was written.
            TooLargeError: the empty queue is too small for the batch: to send it again is of no use.
        """
        size = (len(batch.data) if exporters else 0) + len(wal_entry or b"")
        if size > self.capacity_bytes:
            message = f"a request of {size:,} bytes is larger than queue.max_size_mib ({self.capacity_bytes:,} bytes)"
            self._throttled.log(logging.ERROR, "large", message)
            raise TooLargeError(message)
        if self.used_bytes + size > self.capacity_bytes:
            self._refused_bytes = min(size, int(_FULL_SHARE * self.capacity_bytes))
            raise OverloadedError(_FULL, retry_after_s=RETRY_AFTER_S)
        self.used_bytes += size
        try:
            row = await self._write(lambda database: database.put(batch, exporters, wal_entry), size)
        except BaseException:
            self.used_bytes -= size
            raise
        self.last_wal_id = max(self.last_wal_id, row)

    def acknowledge(self, exporter: str, rows: Sequence[StoredBatch]) -> None:
        """Forget that an exporter needs batches. Happens with the next transaction, at the latest on ``stop``."""
        self._acknowledged.append((exporter, [(row.batch.signal.value, row.id) for row in rows]))
        self._kick()

    async def next_batches(
        self, exporter: str, signals: Collection[Signal], after: Mapping[Signal, int], max_bytes: int
    ) -> list[StoredBatch]:
        """The oldest batch that waits for an exporter and following ones of its signal; see ``Database``.

        Raises:
            sqlite3.Error: the disk failed.
        """
        return await self._run(lambda: self._database.next_batches(exporter, signals, after, max_bytes))

    async def pending_bytes(self, exporter: str) -> int:
        """Bytes that wait for an exporter."""
        return await self._read(lambda database: database.pending_bytes(exporter))

    async def waiting(self) -> list[WaitingBatches]:
        """Waiting batches by exporter and signal, whether or not these are configured."""
        return await self._read(Database.waiting)

    async def drop(self, dropped: Sequence[WaitingBatches]) -> None:
        """Drop the waiting batches of these exporters and signals. Allowed only while no other write is running."""
        await self._write(lambda database: database.drop(dropped))
        self.used_bytes = await self._run(self._database.used_bytes)

    async def wal_rows(self) -> list[tuple[int, bytes]]:
        """All write-ahead rows as ``(id, data)``, oldest first."""
        return await self._read(Database.wal_rows)

    async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        """All rows of a space as ``(key, data)``."""
        return await self._read(lambda database: database.load_kv(space))

    async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int = 0) -> None:
        """Write rows of a space (None deletes one) and delete write-ahead rows up to an id, in one transaction.

        Raises:
            OverloadedError: the disk is full or failed; nothing was changed.
        """
        await to_the_end(self._checkpoint(space, rows, wal_up_to))

    async def _checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int) -> None:
        size = sum(len(key) + len(data or b"") for key, data in rows)
        self.used_bytes -= await self._write(lambda database: database.checkpoint(space, rows, wal_up_to), size)

    @property
    def _database(self) -> Database:
        if self._opened is None:
            raise UnavailableError("queue.storage: not open")
        return self._opened

    def _open(self) -> tuple[Database, int, int]:
        database = Database(self._directory, fsync=self._fsync, saved_anew=self._saved_anew)
        try:
            return database, database.used_bytes(), database.last_wal_id()
        except sqlite3.Error as error:
            database.close()
            raise cannot_use(database.file, error) from error

    async def _read(self, query: Callable[[Database], _T]) -> _T:
        """Read what a start needs; raises ``DatabaseError``, since not all damage shows when the file is opened."""
        database = self._database
        try:
            return await self._run(lambda: query(database))
        except sqlite3.Error as error:
            raise cannot_use(database.file, error) from error

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _write(self, statement: Callable[[Database], _T], size: int = 0) -> _T:
        if self._opened is None:
            raise UnavailableError("queue.storage: not open")
        result: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._writes.append(_Write(statement, size, result))
        self._kick()
        try:
            return await result
        except (sqlite3.Error, OSError, DatabaseError) as error:
            raise OverloadedError(f"queue.storage: {error}", retry_after_s=RETRY_AFTER_S) from error

    def _kick(self) -> None:
        if self._opened is not None and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        while True:
            if self._writes or self._acknowledged:
                if not await self._commit() and not self._writes:
                    return
            elif not await self._run(self._give_back) and not (self._writes or self._acknowledged):
                return

    async def _commit(self) -> bool:
        acknowledged, self._acknowledged = self._acknowledged, []
        writes: list[_Write] = []
        if self._failure is None or not acknowledged:  # on a full disk, writes that free space go first, alone
            writes, self._writes = self._writes, []
        try:
            freed, taken, results = await self._run(lambda: self._transact(acknowledged, writes))
        except Exception as error:  # noqa: BLE001  the error is passed to the callers that wait for the write
            self._acknowledged[:0] = acknowledged
            waiting, self._writes = self._writes, []
            self._fail([*writes, *waiting], error)
            return False
        self.used_bytes -= freed
        for write, result in zip(taken, results, strict=True):
            if not write.result.done():
                write.result.set_result(result)
        left_out = [write for write in writes if write not in taken]
        if left_out:
            self._fail(left_out, sqlite3.OperationalError("database or disk is full"))
        elif writes and self._failure is not None:
            self._failure = None
            self._throttled.log(logging.INFO, "again", f"queue.storage: {self._database.file} can be written again")
        return True

    def _transact(self, acknowledged: _Acknowledged, writes: Sequence[_Write]) -> tuple[int, list[_Write], list[Any]]:
        def acknowledge(database: Database) -> int:
            return sum(database.acknowledge(exporter, rows) for exporter, rows in acknowledged)

        try:
            taken = _fitting(writes, self._database.room(sum(write.size for write in writes)))
            freed, *results = self._database.transact([acknowledge, *(write.statement for write in taken)])
        except (sqlite3.Error, OSError):
            with suppress(sqlite3.Error, OSError):
                self._database.shrink_log()
            raise
        return freed, taken, results

    def _fail(self, writes: Sequence[_Write], error: Exception) -> None:
        self._failure = f"queue.storage: {error}"
        self._throttled.log(logging.ERROR, "write", f"queue.storage: cannot write to {self._database.file}: {error}")
        for write in writes:
            if not write.result.done():
                write.result.set_exception(error)
        if self._probe is None:
            self._probe = asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._try_again)

    def _try_again(self) -> None:
        """Probe the disk with a write: while not ready, no traffic arrives to show that the disk works again."""
        self._probe = None
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        result.add_done_callback(asyncio.Future.exception)
        self._writes.append(_Write(Database.touch, _PROBE_BYTES, result))
        self._kick()

    def _give_back(self) -> bool:
        try:
            return self._database.give_back()
        except (sqlite3.Error, OSError, DatabaseError):  # the next write reports it
            return False


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Finish a started write even if the caller is cancelled, since others share and count its transaction."""
    return await asyncio.shield(asyncio.ensure_future(work))


def _fitting(writes: Sequence[_Write], room: int) -> list[_Write]:
    """The first of these writes that fit on the disk."""
    taken = []
    for write in writes:
        if write.size <= room or not write.size:
            taken.append(write)
            room -= write.size
    return taken
