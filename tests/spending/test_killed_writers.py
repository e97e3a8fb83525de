"""Eight processes write one SQLite ledger and are killed at random: every call that was booked is there, once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import PACKAGE, TESTS
from tests.spending.entries import DAY
from trajectory_guard.spending.ledger import Account
from trajectory_guard.spending.sqlite import SQLiteStore

PROCESSES = 8
ACCOUNTS = (
    Account("day", "", DAY), Account("agent", "agent"), Account("agent", "agent", DAY),
    Account("service", "service"), Account("service", "service", DAY),
)  # fmt: skip


def start(ledger: Path, name: str, folder: Path) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PACKAGE.parent), str(TESTS.parent)))}
    with (folder / f"{name}.txt").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spending.writer", str(ledger), name], env=environ, stdout=out
        )


def written(folder: Path) -> set[str]:
    return {line for file in folder.glob("*.txt") for line in file.read_text(encoding="ascii").splitlines()}


@pytest.mark.slow
def test_eight_processes_killed_at_random_lose_no_micro_dollar(tmp_path: Path) -> None:
    chance = random.Random(14)
    ledger, folder = tmp_path / "spending.db", tmp_path / "written"
    folder.mkdir()
    writers = {f"w{at}-0": start(ledger, f"w{at}-0", folder) for at in range(PROCESSES)}
    try:
        for generation in range(1, 4):  # each process is killed three times, and another takes its place
            wanted = 400 * generation
            deadline = time.monotonic() + 120
            while len(written(folder)) < wanted and time.monotonic() < deadline:
                time.sleep(0.05)
            for name in chance.sample(sorted(writers), PROCESSES):
                time.sleep(chance.random() / 50)
                writer = writers.pop(name)
                writer.send_signal(signal.SIGKILL)
                writer.wait()
                follower = f"{name.split('-')[0]}-{generation}"
                writers[follower] = start(ledger, follower, folder)
    finally:
        for writer in writers.values():
            writer.kill()
            writer.wait()

    reported = written(folder)
    assert len(reported) >= 1200
    with sqlite3.connect(ledger) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        booked = {call for (call,) in connection.execute("SELECT id FROM calls")}
    assert (
        reported <= booked
    )  # a process may be killed between booking a call and telling of it, never the other way round
    assert len(booked - reported) <= 4 * PROCESSES
    store = SQLiteStore(ledger)
    expected = sum(int(call.rpartition("-")[2]) for call in booked)
    for account in ACCOUNTS:
        sums = store.sums(account).values()
        assert sum(one.nano_usd for one in sums) == expected
        assert sum(one.input_tokens for one in sums) == expected
        assert sum(one.calls for one in sums) == sum(one.output_tokens for one in sums) == len(booked)
