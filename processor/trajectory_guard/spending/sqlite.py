"""The ledger in an SQLite file: shared by the processes of one machine, and there after a restart.

Each model call of a process, and each request of a collector, is one transaction: ids of calls, and sums in all
accounts. A process that is killed has booked a call as a whole or not at all, and a second booking of it is answered
with "known". The file is in write-ahead mode, so that reading never waits for other processes; it has to lie on a local
disk.

A file that is deleted or replaced while it is open would take bookings that nobody finds. So each access compares the
file of that name with the one that is open, by device and inode.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

from trajectory_guard import telemetry
from trajectory_guard.file_places import Place, foreign_table, place_of
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.spending.ledger import (
    TRAJECTORY,
    Account,
    Change,
    Differences,
    Kind,
    Known,
    LedgerEntry,
    Mark,
    ModelSum,
    changed,
)
from trajectory_guard.spending.stores import LedgerError, LockedError

VERSION: Final = 2
KEEP_CALLS_DAYS: Final = 7
"""Days for which call ids are kept: a span delivered again later would count again."""
KEEP_REVISABLE_DAYS: Final = 2
"""Days for which a call of a collector can be revised. Its entry takes some 200 bytes."""
KEEP_TRAJECTORIES_DAYS: Final = 90
KEEP_DAYS: Final = 400
"""Days for which the account of a single day, and its alerts, are kept. Totals of agents and services are kept."""
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, day TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS sums (
        scope TEXT NOT NULL, name TEXT NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL,
        calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        open_input INTEGER NOT NULL, open_output INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
        last_day TEXT NOT NULL, PRIMARY KEY (scope, name, day, model)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS alerts (
        budget TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, day TEXT NOT NULL, percent INTEGER NOT NULL,
        PRIMARY KEY (budget, scope, name, day, percent)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS calls_by_day ON calls (day)",
    # apart from ``calls``: revisions are kept for fewer days, and only a collector has any
    "CREATE TABLE IF NOT EXISTS revisable (id TEXT PRIMARY KEY, day TEXT NOT NULL, entry TEXT) WITHOUT ROWID",
)
_BOOK: Final = """
    INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (scope, name, day, model) DO UPDATE SET
        calls = calls + excluded.calls,
        input_tokens = min(input_tokens + excluded.input_tokens, {most}),
        output_tokens = min(output_tokens + excluded.output_tokens, {most}),
        open_input = min(open_input + excluded.open_input, {most}),
        open_output = min(open_output + excluded.open_output, {most}),
        nano_usd = min(nano_usd + excluded.nano_usd, {most}), last_day = max(last_day, excluded.last_day)""".format(
    most=2**63 - 1  # a sum beyond it would become a number with a fraction
)
_READ: Final = """
    SELECT model, calls, input_tokens, output_tokens, open_input, open_output, nano_usd
    FROM sums WHERE scope = ? AND name = ? AND day = ? AND calls > 0"""
_KNOWN: Final = "SELECT entry FROM calls LEFT JOIN revisable USING (id) WHERE id = ?"
_WITHDRAWN: Final = ""
_SEPARATOR: Final = "\x1f"
_RETRY_S: Final = 0.01
_START_S: Final = 1.0
"""Processes that start together change the mode of a new file one after the other."""
_TRIES: Final = 10
_TABLES: Final = ("calls", "sums", "alerts", "revisable")
_log: Final = logging.getLogger(telemetry.LOGGER)
_inherited: Final[list[Any]] = []  # connections of a parent: closing one in a child would release the parent's locks


class SQLiteStore:
    """A ledger in a file.

    Parameters:
        path: of the file; created if it is missing.
        busy_s: seconds to wait for other writers; then ``LedgerError``. The thread that waits ends a span of the
            application, or answers requests; a transaction takes a tenth of a millisecond.

    A file that is locked at the start, as by a backup, is opened later: until then calls wait, as always while it is
    locked.

    Raises:
        LedgerError: the file cannot be opened, is no ledger, or was written by a newer version.
    """

    def __init__(self, path: str | Path, *, busy_s: float = 0.02) -> None:
        self.path, self._busy_s = Path(path), busy_s
        self._connection: sqlite3.Connection | None = None
        self._places: dict[Path, Place] = {}  # of the open file, its log and the index of that
        self._day: date | None = None  # on which old rows were deleted last
        now_and_after_fork(self._renew)
        try:
            with self._lock, self._opened(_START_S):
                pass
        except LockedError as error:
            _log.warning("trajectory_guard: spending_file: %s; it is opened as soon as it is free", error)

    def _renew(self) -> None:
        self._lock = OwnedLock()
        if self._connection is not None:
            _inherited.append(self._connection)
            self._connection = None

    # --- the protocol of stores ----------------------------------------------------------------------------------

    def add(self, entry: LedgerEntry) -> bool:
        """As ``SpendingStore.add``. The process may be killed at any time; once this returns, the call is booked."""
        return self.add_all((Change(entry),)) == [1]

    def add_all(self, changes: Sequence[Change]) -> list[int]:
        """As ``SpendingStore.add_all``: one transaction."""
        differences = Differences()
        with self._lock, self._opened() as connection, _transaction(connection):
            self._check_place()
            counts = [differences.count(*_carry_out(connection, change)) for change in changes]
            last = max((change.entry.day for change in changes), default="")
            rows = [(*_key(account), model, *one, account.day or last) for account, model, one in differences.rows()]
            connection.executemany(_BOOK, rows)
            today = datetime.now(timezone.utc).date()  # not the entry's: a clock that is wrong would delete everything
            if today != self._day and rows:
                self._forget(connection, today)
                self._day = today
        return counts

    def sums(self, account: Account) -> dict[str, ModelSum]:
        """As ``SpendingStore.sums``."""
        with self._lock, self._opened() as connection:
            return {model: ModelSum(*sums) for model, *sums in connection.execute(_READ, _key(account))}

    def models(self) -> set[str]:
        """As ``SpendingStore.models``."""
        with self._lock, self._opened() as connection:
            return {model for (model,) in connection.execute("SELECT DISTINCT model FROM sums")}

    def claim(self, budget: str, account: Account, percent: int) -> bool:
        """As ``SpendingStore.claim``."""
        with self._lock, self._opened() as connection, _transaction(connection):
            self._check_place()
            row = (budget, *_key(account), percent)
            return connection.execute("INSERT OR IGNORE INTO alerts VALUES (?, ?, ?, ?, ?)", row).rowcount == 1

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- the file ------------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, patience_s: float = 0.0) -> Iterator[sqlite3.Connection]:
        """The connection. ``patience_s``: seconds to wait for a process that changes the mode of the file."""
        try:
            if self._connection is None:
                self._connection = self._open(patience_s=patience_s)
            elif self._is_moved():
                self._connection = self._follow(self._connection)
            yield self._connection
        except OSError as error:  # the folder is no longer readable
            raise LedgerError(f"{self.path}: {error.strerror}") from error
        except sqlite3.Error as error:
            kind = LockedError if _is_locked(error) else LedgerError
            raise kind(f"{self.path}: {why_unopened(self.path) or error}") from error

    def _is_moved(self) -> bool:
        return place_of(self.path) != self._places[self.path]

    def _check_place(self) -> None:
        """Call it in a transaction, whose lock keeps others from going on in another file meanwhile."""
        if self._is_moved():
            raise LedgerError(f"{self.path}: was deleted or replaced just now")

    def _follow(self, before: sqlite3.Connection) -> sqlite3.Connection:
        """Continue in the file that has the name now. A new file receives the contents of the old one.

        Every process that has the old file open calls this. The lock on that file admits one after the other, and no
        process books there meanwhile: the first one copies the contents, the others find them.
        """
        was_deleted = not self.path.exists()
        with _transaction(before):
            for file, place in self._places.items():
                if file != self.path and place is not None and place_of(file) == place:
                    file.unlink()  # it belongs to the old file: SQLite would read it into the new one
            connection = self._open(before)
        before.close()
        _log.error(
            "trajectory_guard: spending_file: %s was %s while it was open; the ledger continues in the new file%s",
            self.path, *(("deleted", ", and keeps what it had") if was_deleted else ("replaced", "")),
        )  # fmt: skip
        return connection

    def _open(self, before: sqlite3.Connection | None = None, patience_s: float = 0.0) -> sqlite3.Connection:
        connection, place = self._connect()
        try:
            self._write_ahead(connection, patience_s)
            connection.execute("PRAGMA synchronous = NORMAL")
            if before is not None or not _is_up_to_date(connection):
                self._bring_up_to_date(connection, before)
        except BaseException:
            connection.close()
            raise
        own = [Path(f"{os.path.realpath(self.path)}{end}") for end in ("-wal", "-shm")]  # beside the target of a link
        self._places = {self.path: place, **{name: place_of(name) for name in own}}
        return connection

    def _bring_up_to_date(self, connection: sqlite3.Connection, before: sqlite3.Connection | None) -> None:
        """Create or convert the tables; a new file receives the contents of the one ``before`` it."""
        with _transaction(connection):
            version = _version(connection)
            if version > VERSION:
                raise LedgerError(f"{self.path}: written by a newer version of trajectory_guard")
            if version == 1:
                _to_nano(connection)
            for statement in _SCHEMA:
                connection.execute(statement)
            if before is not None and not version:
                _copy(before, connection)
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def _connect(self) -> tuple[sqlite3.Connection, Place]:
        """Open the file, and create it if it is missing. The place is that of the file that was opened.

        SQLite does not tell it: it is certain if the same file had the name before and afterwards.
        """
        for _ in range(_TRIES):
            try:
                before = place_of(self.path)
            except ValueError as error:  # a character that no name of a file has
                raise LedgerError(f"{self.path}: {error}") from None
            connection = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
            if before is not None and before == place_of(self.path):
                return connection, before
            connection.close()
        raise LedgerError(f"{self.path}: names no file, or one that is deleted or replaced again and again")

    def _write_ahead(self, connection: sqlite3.Connection, least_s: float) -> None:
        """SQLite does not wait for others while it changes the mode of a file, whatever the busy time-out.

        The file of another application keeps its mode.
        """
        deadline = time.monotonic() + max(self._busy_s, least_s)
        while True:
            try:
                other = foreign_table(connection, _TABLES)
                if other is not None:
                    raise LedgerError(f"{self.path}: is not a ledger, but another application's database: {other!r}")
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:  # noqa: PERF203  another process changes the mode
                if not _is_locked(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def _forget(self, connection: sqlite3.Connection, today: date) -> None:
        """On the first call of a day: call ids, trajectories and single days that nobody asks for any more."""
        revisable, calls, trajectories, days = (
            (today - timedelta(days=kept)).isoformat()
            for kept in (KEEP_REVISABLE_DAYS, KEEP_CALLS_DAYS, KEEP_TRAJECTORIES_DAYS, KEEP_DAYS)
        )
        connection.execute("DELETE FROM revisable WHERE day < ?", (revisable,))
        connection.execute("DELETE FROM calls WHERE day < ?", (calls,))
        connection.execute("DELETE FROM sums WHERE scope = ? AND last_day < ?", (TRAJECTORY, trajectories))
        connection.execute("DELETE FROM sums WHERE day != '' AND day < ?", (days,))
        connection.execute("DELETE FROM alerts WHERE day != '' AND day < ?", (days,))
        connection.execute(
            "DELETE FROM alerts WHERE scope = ? AND name NOT IN (SELECT name FROM sums WHERE scope = ?)",
            (TRAJECTORY, TRAJECTORY),
        )


def _is_locked(error: sqlite3.Error) -> bool:
    return "locked" in str(error)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _is_up_to_date(connection: sqlite3.Connection) -> bool:
    """Whether nothing has to be written to open the file: it may be locked for writing."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return _version(connection) == VERSION and found.issuperset(_TABLES)


def why_unopened(path: Path) -> str | None:
    """The reason why the file of a ledger cannot be opened, as far as the file system shows it; None if it can."""
    folder = path.absolute().parent
    if path.is_dir():
        return "is a directory, not a file"
    if not folder.is_dir():
        return f"there is no directory {folder}"
    return None if os.access(path if path.exists() else folder, os.W_OK) else "may not be written"


def _to_nano(connection: sqlite3.Connection) -> None:
    """Version 1 counted money in micro-dollars."""
    connection.execute("ALTER TABLE sums RENAME COLUMN micro_usd TO nano_usd")
    connection.execute(f"UPDATE sums SET nano_usd = min(nano_usd * 1000, {2**63 - 1})")
    for call, text in connection.execute("SELECT id, entry FROM revisable WHERE entry != ''").fetchall():
        entry = LedgerEntry(*json.loads(text))
        if entry.nano_usd is not None:
            text = json.dumps(entry._replace(nano_usd=entry.nano_usd * 1000))
            connection.execute("UPDATE revisable SET entry = ? WHERE id = ?", (text, call))


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Write everything into a new file, or of a damaged one all that can be read."""
    for table in _TABLES:
        try:
            rows = source.execute(f"SELECT * FROM {table}")
            target.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows.description))})", rows)
        except sqlite3.DatabaseError as error:  # noqa: PERF203  the other tables may be whole
            if isinstance(error, sqlite3.OperationalError):  # the disk is full, or the file is locked
                raise
            _log.warning("trajectory_guard: spending_file: not all of %r could be read: %s", table, error)


def _carry_out(connection: sqlite3.Connection, change: Change) -> tuple[Known, Known]:
    """Write a change of one call; returns what was known of the call before and after."""
    entry = change.entry
    new = connection.execute("INSERT OR IGNORE INTO calls VALUES (?, ?)", (entry.call_id, entry.day)).rowcount
    if change.is_first and not new:
        return Mark.FINAL, Mark.FINAL
    known = Mark.UNKNOWN if new else _known(connection, entry.call_id)
    after = changed(known, change)
    if after != known and change.kind is not Kind.FINAL:
        text = json.dumps(after) if isinstance(after, LedgerEntry) else _WITHDRAWN
        connection.execute("INSERT OR REPLACE INTO revisable VALUES (?, ?, ?)", (entry.call_id, entry.day, text))
    return known, after


def _known(connection: sqlite3.Connection, call_id: str) -> Known:
    (text,) = connection.execute(_KNOWN, (call_id,)).fetchone()
    if text is None:
        return Mark.FINAL
    return LedgerEntry(*json.loads(text)) if text else Mark.WITHDRAWN


def _key(account: Account) -> tuple[str, str, str]:
    """Scope, name and day of an account. The tenant is a part of the name, so that no two tenants share a row."""
    scope, name, day, tenant = account
    if tenant or name.startswith(_SEPARATOR):
        name = f"{_SEPARATOR}{len(tenant)}{_SEPARATOR}{tenant}{name}"
    return scope, name, day


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. The lock for writing is taken at once: one taken later could not wait for others."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
