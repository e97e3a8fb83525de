"""The SQLite file of a store, used from one thread."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard.errors import PortableError
from trajectory_guard.file_places import Place, foreign_table, place_of
from trajectory_guard_collector.otlp.signals import Batch, Signal

_logger: Final = logging.getLogger(__name__)
FILE_NAME: Final = "collector.db"
_T = TypeVar("_T")
_VERSION: Final = 1
_PAGE_BYTES: Final = 8192
_WAL_PAGES: Final = 2048
_WAL_BYTES: Final = _WAL_PAGES * _PAGE_BYTES
_VACUUM_PAGES: Final = 512
_MAX_JOINED: Final = 1024
_KEPT_FREE_PAGES: Final = 2048
_SPARE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the disk reserved for deleting: on a full disk not even delivered batches could be deleted."""
_SCHEMA: Final = """
CREATE TABLE batches(id INTEGER PRIMARY KEY AUTOINCREMENT, signal TEXT NOT NULL, items INTEGER NOT NULL,
                     size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE pending(exporter TEXT NOT NULL, signal TEXT NOT NULL, batch_id INTEGER NOT NULL,
                     PRIMARY KEY(exporter, signal, batch_id)) WITHOUT ROWID;
CREATE INDEX pending_by_batch ON pending(batch_id);
CREATE TABLE journal(id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB NOT NULL);
CREATE TABLE kv(space TEXT NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY(space, key)) WITHOUT ROWID;
"""
_TABLES: Final = ("batches", "pending", "journal", "kv")


class DatabaseError(PortableError):
    """A store cannot be opened: damaged, in use, not writable. Names key and file; the file is unchanged."""

    def __init__(self, message: str) -> None:
        super().__init__(f"queue.storage: {message}")


def cannot_use(file: Path, error: sqlite3.Error) -> DatabaseError:
    """Message for an SQLite error; advises to move the file away only if it is damaged."""
    if isinstance(error, sqlite3.OperationalError):  # locked, full, an error of the disk: the content may be fine
        reason = "in use by another collector" if "locked" in str(error) else str(error)
        return DatabaseError(f"{file}: {reason}")
    return DatabaseError(f"{file}: damaged ({error}); move the file away to start empty")


class StoredBatch(NamedTuple):
    """A batch that waits on disk.

    Fields:
        id: ascending in the order of arrival.
        batch: the batch to send.
    """

    id: int
    batch: Batch


class WaitingBatches(NamedTuple):
    """Number and size of the batches of one signal that wait for an exporter."""

    exporter: str
    signal: Signal
    batches: int
    items: int
    size: int


class Database:
    """The tables of a store.

    ``batches`` holds requests, ``pending`` the exporters that still need them, ``journal`` and ``kv`` the state of the
    pipeline. Only one process can have the file open.

    Parameters:
        directory: created if it does not exist, for this user only. The files in it are always for this user only.
        fsync: flush to the disk at every commit.
        saved_anew: called after the file was deleted while it was open, and everything was written to a new one.

    Raises:
        DatabaseError: damaged, in use, not writable, or of another version.
    """

    def __init__(self, directory: Path, *, fsync: bool, saved_anew: Callable[[], None] = lambda: None) -> None:
        self._fsync, self._saved_anew = fsync, saved_anew
        self.file = directory / FILE_NAME
        self._log = directory / f"{FILE_NAME}-wal"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._keep_private()
            self._connect()
        except (OSError, sqlite3.Error) as error:
            raise DatabaseError(f"{self.file}: cannot open: {error}") from error
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _connect(self) -> None:
        self._place = place_of(self.file)  # before: another file that takes its place now is noticed later
        self._connection = sqlite3.connect(self.file, timeout=0.0, isolation_level=None)
        self._place_of_log: Place = None

    def _keep_private(self) -> None:
        """Create the file, or make it private: it holds requests of all senders. SQLite's own files follow its mode."""
        _refuse_unwritable(self.file.parent)
        if self.file.is_symlink():  # its target elsewhere would be created or made private
            raise DatabaseError(f"{self.file}: is a symbolic link; link the directory instead")
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            # Not opened here: closing it would give up the locks of a collector in the same process.
            for file in (self.file, self._log, self.file.with_name(f"{FILE_NAME}-shm")):
                if file.exists():
                    _refuse_unwritable(file)
                    _restrict(file)

    def close(self) -> None:
        """Write the log into the file and close the file."""
        self._connection.close()

    def transact(self, writes: Iterable[Callable[[Database], _T]]) -> list[_T]:
        """Run all writes in one transaction, durable on return, and return their results.

        Raises:
            sqlite3.Error: nothing was written.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            results = [write(self) for write in writes]
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return results

    def used_bytes(self) -> int:
        """Bytes of all requests and write-ahead rows."""
        (batches,) = self._row("SELECT coalesce(sum(size), 0) FROM batches")
        (wal,) = self._row("SELECT coalesce(sum(length(data)), 0) FROM journal")
        return int(batches) + int(wal)

    def pending_bytes(self, exporter: str) -> int:
        """Bytes that wait for an exporter."""
        query = "SELECT coalesce(sum(size), 0) FROM pending JOIN batches ON id = batch_id WHERE exporter = ?"
        return int(self._row(query, exporter)[0])

    def put(self, batch: Batch, exporters: Sequence[str], wal_entry: bytes | None) -> int:
        """Insert a batch for exporters and a write-ahead row; returns the row's id, 0 without one."""
        if exporters:
            row = (batch.signal.value, batch.items, len(batch.data), batch.data)
            cursor = self._connection.execute("INSERT INTO batches(signal, items, size, data) VALUES (?, ?, ?, ?)", row)
            pending = [(exporter, batch.signal.value, cursor.lastrowid) for exporter in exporters]
            self._connection.executemany("INSERT INTO pending VALUES (?, ?, ?)", pending)
        if wal_entry is None:
            return 0
        return self._connection.execute("INSERT INTO journal(data) VALUES (?)", (wal_entry,)).lastrowid or 0

    def acknowledge(self, exporter: str, rows: Sequence[tuple[str, int]]) -> int:
        """Forget that an exporter needs batches ``(signal, id)``; returns the bytes of those that no exporter needs."""
        keys = [(exporter, *row) for row in rows]
        self._connection.executemany("DELETE FROM pending WHERE exporter = ? AND signal = ? AND batch_id = ?", keys)
        return sum(self._delete_unneeded(batch_id) for _, batch_id in rows)

    def next_batches(
        self, exporter: str, signals: Collection[Signal], after: Mapping[Signal, int], max_bytes: int
    ) -> list[StoredBatch]:
        """The oldest batch that waits for an exporter, and following ones of its signal, up to a size.

        Parameters:
            exporter: its name.
            signals: those it takes.
            after: id of the last batch taken, by signal.
            max_bytes: limit for all together; a larger batch is returned alone.
        """
        heads = [(self._head(exporter, signal, after.get(signal, 0)), signal) for signal in Signal if signal in signals]
        first, signal = min((head for head in heads if head[0]), default=(0, Signal.TRACES))
        if not first:
            return []
        ids: list[tuple[int, int]] = []
        total = 0
        query = (
            "SELECT id, size, items FROM pending JOIN batches ON id = batch_id"
            " WHERE exporter = ? AND pending.signal = ? AND batch_id >= ? ORDER BY batch_id LIMIT ?"
        )
        for batch_id, size, items in self._connection.execute(query, (exporter, signal.value, first, _MAX_JOINED)):
            total += size
            if ids and total > max_bytes:
                break
            ids.append((batch_id, items))
        return [StoredBatch(batch_id, Batch(signal, self._data(batch_id), items)) for batch_id, items in ids]

    def waiting(self) -> list[WaitingBatches]:
        """Waiting batches by exporter and signal, whether or not these are configured."""
        query = (
            "SELECT exporter, pending.signal, count(*), sum(items), sum(size)"
            " FROM pending JOIN batches ON id = batch_id GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return [WaitingBatches(exporter, Signal(signal), *sums) for exporter, signal, *sums in self._rows(query)]

    def drop(self, dropped: Sequence[WaitingBatches]) -> None:
        """Forget that exporters need batches of a signal, and delete the batches that no exporter needs."""
        for one in dropped:
            keys = (one.exporter, one.signal.value)
            self._connection.execute("DELETE FROM pending WHERE exporter = ? AND signal = ?", keys)
        self._connection.execute("DELETE FROM batches WHERE id NOT IN (SELECT batch_id FROM pending)")

    def wal_rows(self) -> list[tuple[int, bytes]]:
        """All write-ahead rows, oldest first."""
        return self._rows("SELECT id, data FROM journal ORDER BY id")

    def last_wal_id(self) -> int:
        """Id of the write-ahead row written last, even if it was deleted since."""
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")
        return int(rows[0][0]) if rows else 0

    def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        """All rows of a space, by key."""
        return self._rows("SELECT key, data FROM kv WHERE space = ? ORDER BY key", space)

    def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int) -> int:
        """Write rows of a space (None deletes), delete write-ahead rows up to an id; returns the bytes of those."""
        written = [(space, key, data) for key, data in rows if data is not None]
        self._connection.executemany("INSERT OR REPLACE INTO kv VALUES (?, ?, ?)", written)
        deleted = [(space, key) for key, data in rows if data is None]
        self._connection.executemany("DELETE FROM kv WHERE space = ? AND key = ?", deleted)
        (freed,) = self._row("SELECT coalesce(sum(length(data)), 0) FROM journal WHERE id <= ?", wal_up_to)
        self._connection.execute("DELETE FROM journal WHERE id <= ?", (wal_up_to,))
        return int(freed)

    def touch(self) -> None:
        """Write a few redundant bytes, to check whether the disk accepts writes."""
        self._rows(f"PRAGMA user_version = {_VERSION}")

    def give_back(self) -> bool:
        """Return a few MiB of unused pages to the file system. Returns whether there are more."""
        before = int(self._row("PRAGMA freelist_count")[0])
        if before <= _KEPT_FREE_PAGES:
            return False
        self.room(0)
        self._vacuum(_VACUUM_PAGES)
        return _KEPT_FREE_PAGES < int(self._row("PRAGMA freelist_count")[0]) < before

    def room(self, wanted: int) -> int:
        """Bytes that can be written so that they can still be moved from the log into the file, and be deleted.

        Parameters:
            wanted: if there is less, the log is cut off to make room.

        Raises:
            OSError: another file has taken the place of this one.
        """
        self._keep_place()
        room = self._room()
        if room < wanted or room < 0:
            self.shrink_log()
            room = self._room()
        return room

    def _missing_pages(self) -> int:
        """Pages that the log adds to the file and for which the disk has no room; 0 if there is room for all of them.

        Another program may have filled the disk. To try nevertheless would use up the rest of it, with which delivered
        batches can still be deleted.
        """
        disk = os.statvfs(self.file)
        added = int(self._row("PRAGMA page_count")[0]) * _PAGE_BYTES - self.file.stat().st_size
        return max(0, -(-(added - disk.f_bavail * disk.f_frsize) // _PAGE_BYTES))

    def _room(self) -> int:
        disk = os.statvfs(self.file)
        free = disk.f_bavail * disk.f_frsize - _SPARE_BYTES
        log = self._log.stat().st_size if self._log.exists() else 0
        unused = int(self._row("PRAGMA freelist_count")[0]) * _PAGE_BYTES
        return min(free, (free + unused - log) // 2)  # new data is written to the log first, then to the file

    def _keep_place(self) -> None:
        """Save everything anew if the file or its log was deleted: what is written there would be gone at the exit."""
        if place_of(self.file) != self._place:
            self._save_anew()
        elif self._place_of_log is None:  # the first write makes the log
            self._place_of_log = place_of(self._log)
        elif place_of(self._log) != self._place_of_log:
            self._rows("PRAGMA journal_mode = DELETE")  # writes the log into the file
            self._rows("PRAGMA journal_mode = WAL")
            self._place_of_log = None
            self._report_deleted(self._log)

    def _save_anew(self) -> None:
        if place_of(self.file) is not None:  # somebody restored it, or started another collector: not to be overwritten
            raise OSError(f"{self.file} was replaced while it was open; move the other file away to continue")
        copy = self.file.with_name(f"{FILE_NAME}.new")
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(copy, isolation_level=None)) as target:
            self._connection.backup(target)
        self._log.unlink(missing_ok=True)  # it belongs to the deleted file: SQLite would read it into the new one
        copy.rename(self.file)
        before = self._connection, self._place, self._place_of_log
        try:
            self._connect()
            self._open()
        except BaseException:
            if self._connection is not before[0]:
                self._connection.close()
            self._connection, self._place, self._place_of_log = before
            raise
        before[0].close()
        self._report_deleted(self.file)

    def _report_deleted(self, file: Path) -> None:
        _logger.error("queue.storage: %s was deleted while it was open; everything in it is written again", file)
        self._saved_anew()

    def shrink_log(self) -> None:
        """Write the log into the file and cut it off, to make room on a full disk; nothing if the log does not fit."""
        missing = self._missing_pages()
        if missing and self._can_vacuum(2 * missing):
            with suppress(sqlite3.OperationalError):  # no room even for that
                self._vacuum(2 * missing)  # what is deleted need not be written into the file
            missing = self._missing_pages()
        if not missing:
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _can_vacuum(self, pages: int) -> bool:
        """Whether so many pages can be given up on a full disk: moving those that are still in use takes room, too."""
        disk = os.statvfs(self.file)
        unused = int(self._row("PRAGMA freelist_count")[0])
        moved = min(pages, int(self._row("PRAGMA page_count")[0]) - unused)
        written = 2 * moved + pages // 256 + 16
        return 0 < pages <= 2 * unused and written * _PAGE_BYTES <= disk.f_bavail * disk.f_frsize

    def _vacuum(self, pages: int) -> None:
        # execute() would free one page only. Pages that leave the cache before the end are written to the log in vain.
        try:
            self._connection.executescript(f"PRAGMA cache_spill = OFF; PRAGMA incremental_vacuum({pages})")
        finally:  # also on a full disk: a large transaction would be in memory as a whole
            self._rows("PRAGMA cache_spill = ON")

    def _open(self) -> None:
        try:
            # An exclusive lock is taken with the first access and held: a second process cannot open the file.
            self._rows("PRAGMA locking_mode = EXCLUSIVE")
            if self._is_new():
                self._create()
            self._rows("PRAGMA journal_mode = WAL")
            self._rows(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
            # Some builds overwrite deleted data: this doubles the writes, and prevents deleting on a full disk.
            self._rows("PRAGMA secure_delete = OFF")
            self._rows(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            self._rows(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        except sqlite3.Error as error:
            raise cannot_use(self.file, error) from error

    def _is_new(self) -> bool:
        (damage,) = self._row("PRAGMA quick_check(1)")
        if damage != "ok":
            raise DatabaseError(f"{self.file}: damaged ({damage}); move the file away to start empty")
        (version,) = self._row("PRAGMA user_version")
        if version not in (0, _VERSION):
            raise DatabaseError(f"{self.file}: has format {version}, this version reads format {_VERSION}")
        other = foreign_table(self._connection, _TABLES)
        if other is not None:
            advice = "move the file away to start empty"
            raise DatabaseError(f"{self.file}: is the database of another application, with {other!r}; {advice}")
        return bool(version == 0)

    def _create(self) -> None:
        self._rows(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._rows("PRAGMA auto_vacuum = INCREMENTAL")
        self._connection.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")

    def _head(self, exporter: str, signal: Signal, after: int) -> int:
        query = "SELECT min(batch_id) FROM pending WHERE exporter = ? AND signal = ? AND batch_id > ?"
        return self._row(query, exporter, signal.value, after)[0] or 0

    def _data(self, batch_id: int) -> bytes:
        return bytes(self._row("SELECT data FROM batches WHERE id = ?", batch_id)[0])

    def _delete_unneeded(self, batch_id: int) -> int:
        row = self._rows(
            "SELECT size FROM batches WHERE id = ? AND NOT EXISTS (SELECT 1 FROM pending WHERE batch_id = id)", batch_id
        )
        self._connection.executemany("DELETE FROM batches WHERE id = ?", [(batch_id,)] * len(row))
        return sum(size for (size,) in row)

    def _row(self, query: str, *values: object) -> tuple[Any, ...]:
        return self._rows(query, *values)[0]

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()


def _refuse_unwritable(path: Path) -> None:
    """Check before SQLite does, which would report missing permissions as a disk I/O error."""
    wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    if not os.access(path, wanted, effective_ids=os.access in os.supports_effective_ids):
        raise DatabaseError(f"{path}: is not writable by uid {os.geteuid()}")


def _restrict(file: Path) -> None:
    mode = stat.S_IMODE(file.stat().st_mode)
    if not mode & 0o077:
        return
    try:
        file.chmod(mode & 0o700)
    except PermissionError:  # another user created it and shares it on purpose
        _logger.warning("queue.storage: %s can be read by other users, and only its owner can change that", file)
