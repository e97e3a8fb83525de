"""The file of a ledger is deleted or replaced while processes have it open: what was booked is found again."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import PACKAGE, TESTS
from tests.spending.entries import DAY, entry
from trajectory_guard.spending.ledger import Account, Change, Kind
from trajectory_guard.spending.spending import Spending
from trajectory_guard.spending.sqlite import SQLiteStore
from trajectory_guard.spending.stores import LedgerError

ALL = Account("day", "", DAY)
FILE = "spending.db"
PROCESSES = 3


def _remove(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def _move(folder: Path) -> None:
    (folder / FILE).rename(folder / "elsewhere.db")


REMOVED = {"file": _remove(FILE), "file and log": _remove(FILE, f"{FILE}-wal", f"{FILE}-shm"), "moved": _move}


def calls(store: SQLiteStore, account: Account = ALL) -> int:
    return sum(one.calls for one in store.sums(account).values())


def killed(folder: Path) -> SQLiteStore:
    """The ledger as a process finds it that starts after all others were killed."""
    copy = folder.with_name("copy")
    copy.mkdir()
    for file in folder.glob(f"{FILE}*"):
        if not file.name.endswith("-shm"):  # a process that is killed leaves none that is valid
            (copy / file.name).write_bytes(file.read_bytes())
    return SQLiteStore(copy / FILE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger"


@pytest.mark.parametrize("removed", REMOVED)
def test_the_contents_are_copied_to_a_new_file_and_other_processes_find_them(
    folder: Path, removed: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, other, one = SQLiteStore(folder / FILE), SQLiteStore(folder / FILE), entry(agent="a")
    store.add_all([Change(one, Kind.ADD), Change(entry())])
    assert store.claim("budget", ALL, 50)

    REMOVED[removed](folder)

    assert store.add(entry())
    assert "spending.db was deleted while it was open" in caplog.text
    assert not other.add(one)
    assert other.add(entry())
    assert not other.claim("budget", ALL, 50)
    assert other.add_all([Change(one._replace(agent="b", revision=1), Kind.REVISE)]) == [0]
    later = killed(folder)
    assert (calls(later), calls(later, Account("agent", "a")), calls(later, Account("agent", "b"))) == (4, 0, 1)


def test_whoever_only_reads_finds_the_new_file_too(folder: Path) -> None:
    store, reader = SQLiteStore(folder / FILE), SQLiteStore(folder / FILE)
    store.add(entry())
    REMOVED["file"](folder)
    store.add(entry())
    assert calls(reader) == 2


def test_a_copy_that_is_restored_is_used_as_it_is(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, restored = SQLiteStore(folder / FILE), SQLiteStore(folder / "backup.db")
    for _ in range(3):
        store.add(entry())
    restored.add(entry())
    restored.close()
    (folder / "backup.db").replace(folder / FILE)

    assert store.add(entry())

    assert "spending.db was replaced while it was open" in caplog.text
    assert calls(killed(folder)) == 2
    with sqlite3.connect(folder / FILE) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_somebody_elses_file_is_not_overwritten_and_calls_wait(folder: Path) -> None:
    spending = Spending(SQLiteStore(folder / FILE))
    spending.book(entry())
    (folder / "notes").write_bytes(b"somebody's notes" * 100)
    (folder / "notes").replace(folder / FILE)
    spending.book(entry())
    with pytest.raises(LedgerError, match=r"spending\.db: file is not a database"):
        spending.balance(ALL)
    assert (folder / FILE).read_bytes() == b"somebody's notes" * 100
    (folder / FILE).unlink()
    spending.save_waiting()
    assert calls(killed(folder)) == 2


def test_of_a_damaged_file_that_is_deleted_the_readable_part_is_kept(folder: Path) -> None:
    store = SQLiteStore(folder / FILE)
    for _ in range(200):  # enough that the ids of calls fill many pages
        store.add(entry())
    with sqlite3.connect(folder / FILE) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'calls'").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (folder / FILE).open("r+b") as file:
        file.seek((root - 1) * page)
        file.write(b"\xff" * page)
    store.close()
    store = SQLiteStore(folder / FILE)
    with pytest.raises(LedgerError):
        store.add(entry())

    (folder / FILE).unlink()

    assert store.add(entry())
    assert calls(killed(folder)) == 201


@pytest.mark.slow
def test_processes_lose_no_call_while_their_file_is_deleted_again_and_again(folder: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PACKAGE.parent), str(TESTS.parent)))}
    outs = [folder.with_name(f"{at}.txt") for at in range(PROCESSES)]
    writers = []
    try:
        for at, out in enumerate(outs):
            with out.open("wb") as file:
                command = [sys.executable, "-m", "tests.spending.writer", str(folder / FILE), f"w{at}"]
                writers.append(subprocess.Popen(command, env=environ, stdout=file))
        _wait_for_all(outs)
        for _ in range(5):
            (folder / FILE).unlink()
            _wait_for_all(outs)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    reported = {line for out in outs for line in out.read_text(encoding="ascii").splitlines()}
    with sqlite3.connect(folder / FILE) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert reported <= {call for (call,) in connection.execute("SELECT id FROM calls")}


def _wait_for_all(outs: list[Path]) -> None:
    """Wait until each process has booked some more calls: all of them then use the file that is there."""
    deadline = time.monotonic() + 120
    wanted = [out.stat().st_size + 200 for out in outs]
    while any(out.stat().st_size < size for out, size in zip(outs, wanted, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
