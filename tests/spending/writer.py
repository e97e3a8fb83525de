"""A process that books model calls into an SQLite ledger, and prints each once it is booked: ``writer.py FILE NAME``."""

from __future__ import annotations

import os
import random
import sys
import time

from tests.spending.entries import DAY
from trajectory_guard.spending.ledger import LedgerEntry
from trajectory_guard.spending.sqlite import SQLiteStore
from trajectory_guard.spending.stores import LedgerError


def add(store: SQLiteStore, one: LedgerEntry) -> None:
    """Book a call, in a second attempt if the file was deleted at that very moment."""
    for _ in range(100):
        try:
            store.add(one)
        except LedgerError:  # noqa: PERF203  as the guard tries again later
            time.sleep(0.01)
        else:
            return
    raise SystemExit("the ledger takes no call")


def main(path: str, name: str) -> None:
    """Book calls until the process is killed. Each costs its number in micro-dollars; one in five comes twice."""
    store = SQLiteStore(path, busy_s=60)
    out = sys.stdout.fileno()
    chance = random.Random(name)
    for number in range(1, 1_000_000):
        one = LedgerEntry(f"{name}-{number}", f"t-{name}", "agent", "service", DAY, f"m{number % 3}", number, 1, number)
        add(store, one)
        if chance.random() < 0.2:
            add(store, one)
        os.write(out, f"{name}-{number}\n".encode())  # whole lines or none, also of a process that is killed


if __name__ == "__main__":
    main(*sys.argv[1:])
