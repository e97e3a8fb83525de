"""Both stores: many writers lose nothing, a second delivery counts once, an alert has one owner."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.spending.entries import DAY, entry
from trajectory_guard.spending import sqlite
from trajectory_guard.spending.ledger import Account, Change, Kind, LedgerEntry, ModelSum, nano_usd
from trajectory_guard.spending.sqlite import SQLiteStore
from trajectory_guard.spending.stores import LedgerError, LockedError, MemoryStore, SpendingStore

THREADS, CALLS = 64, 25
ALL = Account("day", "", DAY)
Make = Callable[[], SpendingStore]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SpendingStore:
    # the thread tests are about correctness, not about who waits how long
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "spending.db", busy_s=60)


def together(work: Callable[[int], object]) -> None:
    """Run ``work`` on 64 threads that begin at the same moment."""
    barrier = threading.Barrier(THREADS)

    def begin(at: int) -> object:
        barrier.wait()
        return work(at)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(THREADS)))


def test_64_threads_lose_no_micro_dollar(store: SpendingStore) -> None:
    def write(at: int) -> None:
        for number in range(CALLS):
            one = entry(
                call_id=f"{at}-{number}",
                trajectory=f"t{at % 8}",
                model=f"m{number % 3}",
                nano_usd=1 + at * CALLS + number,
            )
            assert store.add(one)
            assert not store.add(one)

    together(write)

    total = THREADS * CALLS
    sums = store.sums(ALL)
    assert sum(one.calls for one in sums.values()) == total
    assert sum(one.nano_usd for one in sums.values()) == total * (total + 1) // 2
    trajectories = [store.sums(Account("trajectory", f"t{at}")) for at in range(8)]
    assert sum(one.nano_usd for sums in trajectories for one in sums.values()) == total * (total + 1) // 2


def test_64_threads_deliver_the_same_calls(store: SpendingStore) -> None:
    entries = [entry(nano_usd=at) for at in range(CALLS)]
    booked: Counter[str] = Counter()
    lock = threading.Lock()

    def write(at: int) -> None:
        for one in entries[at % CALLS :] + entries[: at % CALLS]:
            if store.add(one):
                with lock:
                    booked[one.call_id] += 1

    together(write)

    assert booked == Counter(one.call_id for one in entries)
    assert store.sums(ALL)["large"] == ModelSum(CALLS, 1000 * CALLS, 100 * CALLS, 0, 0, sum(range(CALLS)))


def test_an_alert_is_claimed_by_one_of_64_threads(store: SpendingStore) -> None:
    won: list[int] = []
    together(lambda at: won.append(at) if store.claim("budget", ALL, 50) else None)
    assert len(won) == 1
    assert store.claim("budget", ALL, 80)
    assert store.claim("another budget", ALL, 50)


def test_an_account_without_calls_is_empty(store: SpendingStore) -> None:
    assert store.sums(Account("agent", "nobody")) == {}


# --- changes -------------------------------------------------------------------------------------------------


def held(store: SpendingStore) -> dict[Account, int]:
    """Calls by account."""
    accounts = [ALL, *(Account("trajectory", name) for name in "tu"), *(Account("agent", name) for name in "ab")]
    return {account: sum(one.calls for one in sums.values()) for account in accounts if (sums := store.sums(account))}


def revision(of: LedgerEntry, number: int, **fields: Any) -> Change:
    return Change(of._replace(revision=number, **fields), Kind.REVISE)


def test_a_call_that_moves_takes_its_sums_along(store: SpendingStore) -> None:
    one, other = entry(agent=""), entry(agent="")
    assert store.add_all([Change(one, Kind.ADD), Change(other, Kind.ADD), Change(one, Kind.ADD)]) == [1, 1, 0]
    assert store.add_all(
        [revision(one, 1, trajectory="u", agent="a"), revision(one, 1, trajectory="u", agent="a")]
    ) == [0, 0]
    assert held(store) == {
        ALL: 2,
        Account("trajectory", "t"): 1,
        Account("trajectory", "u"): 1,
        Account("agent", "a"): 1,
    }
    store.add_all([revision(one, 2, trajectory="u", agent="")])  # after a restart its span may be missing
    assert held(store)[Account("agent", "a")] == 1
    store.add_all([revision(one, 1, trajectory="t", agent="b")])  # an earlier revision that arrives late
    assert Account("agent", "b") not in held(store)


def test_a_call_that_is_withdrawn_leaves_nothing_behind(store: SpendingStore) -> None:
    one = entry(agent="a")
    assert store.add_all([Change(one, Kind.ADD), Change(one, Kind.WITHDRAW)]) == [1, -1]
    assert store.sums(ALL) == store.sums(Account("agent", "a")) == {}
    assert store.add_all([Change(one, Kind.ADD), revision(one, 1, agent="b"), Change(one, Kind.WITHDRAW)]) == [0, 0, 0]
    assert store.add(one) is False
    assert store.add_all([Change(one, Kind.RESTORE)]) == [1]
    assert held(store) == {ALL: 1, Account("trajectory", "t"): 1, Account("agent", "a"): 1}


def test_a_second_report_that_comes_first_books_nothing_later(store: SpendingStore) -> None:
    one = entry()
    assert store.add_all([Change(one, Kind.WITHDRAW), Change(one, Kind.ADD), Change(one)]) == [0, 0, 0]
    assert held(store) == {}


def test_a_call_that_was_booked_for_good_is_never_revised(store: SpendingStore) -> None:
    one = entry(agent="a")
    store.add(one)
    assert store.add_all([revision(one, 1, agent="b"), Change(one, Kind.WITHDRAW), Change(one, Kind.RESTORE)]) == [
        0,
        0,
        0,
    ]
    assert held(store) == {ALL: 1, Account("trajectory", "t"): 1, Account("agent", "a"): 1}


def test_a_revision_of_a_call_that_nobody_knows_books_it(store: SpendingStore) -> None:
    one = entry(agent="a")
    assert store.add_all([revision(one, 1), Change(one, Kind.ADD)]) == [1, 0]
    assert held(store)[ALL] == 1


def test_64_threads_move_calls_and_lose_none(store: SpendingStore) -> None:
    entries = [entry() for _ in range(CALLS)]
    store.add_all([Change(one, Kind.ADD) for one in entries])
    together(lambda at: store.add_all([revision(one, 1 + at, trajectory="tu"[at % 2]) for one in entries]))
    assert held(store) == {ALL: CALLS, **{account: CALLS for account in held(store) if account.scope == "trajectory"}}


# --- memory --------------------------------------------------------------------------------------------------


def test_memory_is_bounded_and_says_what_it_forgot() -> None:
    counts: Counter[str] = Counter()
    store = MemoryStore(counts, limit=10)
    for at in range(25):
        store.add(entry(trajectory=f"t{at}"))
    assert counts["spending.forgotten"] == 15
    assert store.sums(Account("trajectory", "t24"))
    assert store.sums(ALL)["large"].calls == 25


# --- SQLite --------------------------------------------------------------------------------------------------


def test_the_ledger_and_its_alerts_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    first = SQLiteStore(path)
    one = entry(nano_usd=7)
    first.add(one)
    first.claim("budget", ALL, 50)
    first.close()

    second = SQLiteStore(path)

    assert second.sums(ALL)["large"].nano_usd == 7
    assert not second.add(one)
    assert not second.claim("budget", ALL, 50)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one " * 50, encoding="utf-8")
    with pytest.raises(LedgerError, match=r"notes\.txt: file is not a database"):
        SQLiteStore(path)


@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_an_application_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    """A checkpointer's file, for example: one ledger in it would share its lock, its mode and its version."""
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE checkpoints (id)")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(
        LedgerError, match=r"app\.db: is not a ledger, but another application's database: 'checkpoints'"
    ):
        SQLiteStore(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["app.db"]


@pytest.mark.parametrize("name", [":memory:", "\0"])
def test_a_name_of_no_file_is_refused(name: str) -> None:
    with pytest.raises(LedgerError):
        SQLiteStore(name)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    SQLiteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match="newer version"):
        SQLiteStore(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"missing/spending\.db: there is no directory"):
        SQLiteStore(tmp_path / "missing" / "spending.db")


def test_a_locked_file_is_an_error_after_the_busy_time_out(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    store = SQLiteStore(path, busy_s=0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    one = entry()
    with pytest.raises(LedgerError, match="locked"):
        store.add(one)
    other.execute("ROLLBACK")
    assert store.add(one)


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "existing"])
def test_a_file_that_is_locked_at_the_start_is_opened_as_soon_as_it_is_free(
    is_new: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup holds the file while a worker starts: it starts, and its calls wait."""
    monkeypatch.setattr(sqlite, "_START_S", 0.0)
    path = tmp_path / "spending.db"
    if not is_new:
        SQLiteStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store, one = SQLiteStore(path, busy_s=0.01), entry()
    assert ("is locked; it is opened as soon as it is free" in caplog.text) is is_new
    with pytest.raises(LockedError):
        store.add(one)
    other.execute("ROLLBACK")
    assert store.add(one)


def test_old_call_ids_and_trajectories_are_deleted_and_sums_of_agents_kept(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    store = SQLiteStore(path)
    store.add(entry(day="2020-01-01", trajectory="old"))
    store.close()

    later = SQLiteStore(path)
    later.add(entry(day="2020-01-02", trajectory="also old"))

    assert later.sums(Account("trajectory", "old")) == {}
    assert later.sums(Account("agent", "researcher"))["large"].calls == 2


def test_accounts_of_single_days_and_alerts_of_what_is_gone_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    store, day = SQLiteStore(path), Account("agent", "researcher", "2020-01-01")
    old, new, total = Account("trajectory", "old"), Account("trajectory", "new"), Account("agent", "researcher")
    store.add(entry(day="2020-01-01", trajectory="old"))
    for account in (old, new, day, total):
        assert store.claim("budget", account, 80)
    store.close()

    later = SQLiteStore(path)
    later.add(entry(trajectory="new"))

    assert later.sums(day) == {}
    assert later.sums(Account("agent", "researcher", DAY))["large"].calls == 1
    assert [later.claim("budget", account, 80) for account in (old, new, day, total)] == [True, False, True, False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_opens_the_file_for_itself(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "spending.db", busy_s=60)
    store.add(entry())
    child = os.fork()
    if child == 0:
        try:
            store.add(entry(call_id="of the child"))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    store.add(entry())
    assert store.sums(ALL)["large"].calls == 3


def test_changes_are_carried_out_together_or_not_at_all(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "spending.db")
    broken: Any = entry(model=object())
    with pytest.raises(LedgerError):
        store.add_all([Change(entry(), Kind.ADD), Change(broken)])
    assert store.sums(ALL) == {}


def test_a_file_of_the_version_before_is_read_and_still_written_by_it(tmp_path: Path) -> None:
    """Processes that have not been updated yet go on: a call is two values in ``calls`` to them."""
    path = tmp_path / "spending.db"
    store = SQLiteStore(path)
    with sqlite3.connect(path) as before:
        before.execute("DROP TABLE revisable")
    store.close()
    later, one = SQLiteStore(path), entry()
    with sqlite3.connect(path) as before:
        before.execute("INSERT OR IGNORE INTO calls VALUES (?, ?)", (one.call_id, one.day))
    assert later.add_all([Change(one, Kind.ADD), revision(one, 1, agent="b")]) == [0, 0]


def test_what_can_be_revised_is_forgotten_after_two_days(tmp_path: Path) -> None:
    path, one = tmp_path / "spending.db", entry(day="2020-01-01")
    store = SQLiteStore(path)
    store.add_all([Change(one, Kind.ADD)])
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM revisable").fetchone() == (0,)


def test_a_file_of_the_version_before_keeps_its_money(tmp_path: Path) -> None:
    """Which was counted in micro-dollars."""
    path = tmp_path / "spending.db"
    store = SQLiteStore(path)
    one = entry(call_id="revisable", nano_usd=7_000)
    store.add_all((Change(one, Kind.ADD), Change(entry(call_id="final", nano_usd=5_000))))
    store.close()
    with closing(sqlite3.connect(path)) as before:
        before.execute("UPDATE sums SET nano_usd = nano_usd / 1000")
        before.execute("UPDATE revisable SET entry = ?", (json.dumps(one._replace(nano_usd=7)),))
        before.execute("ALTER TABLE sums RENAME COLUMN nano_usd TO micro_usd")
        before.execute("PRAGMA user_version = 1")
        before.commit()
    upgraded = SQLiteStore(path)
    assert upgraded.sums(ALL)[one.model].nano_usd == 12_000
    upgraded.add_all((Change(one._replace(revision=1), Kind.WITHDRAW),))
    assert upgraded.sums(ALL)[one.model].nano_usd == 5_000


def test_a_sum_that_no_file_can_hold_stays_a_whole_number(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "spending.db")
    store.add_all([Change(entry(nano_usd=nano_usd(1e12))) for _ in range(300)])
    with closing(sqlite3.connect(tmp_path / "spending.db")) as file:
        file.execute("UPDATE sums SET nano_usd = 9223372036854775800, input_tokens = 9223372036854775800")
        file.commit()
    store.add_all([Change(entry(nano_usd=nano_usd(1e12))) for _ in range(3)])
    (one,) = store.sums(ALL).values()
    assert (one.nano_usd, one.input_tokens) == (2**63 - 1, 2**63 - 1)
    assert all(isinstance(number, int) for number in one)
