"""A fork while other threads are at work: the child goes on evaluating."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.board.unknown_ids import UnknownIds
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.integrity import IntegrityGate
from trajectory_guard.gates.tool_gate import ToolGate
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.process import forking
from trajectory_guard.process.forking import ForkDelay
from trajectory_guard.spending.prices import PriceTable

TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "gen_ai.tool.call.arguments": "{}",
    "gen_ai.tool.call.result": "closed on Mondays, open from Tuesday to Sunday", "gen_ai.conversation.id": "c",
}  # fmt: skip


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Another thread has the lock."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    yield
    done.set()
    thread.join()


LOCKS: dict[str, Callable[[TrajectoryGuardProcessor], Any]] = {
    "board": lambda processor: processor.board.lock,
    "trajectory": lambda processor: processor.board._entries["c"].lock,
    "processor": lambda processor: processor._lock,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("lock", LOCKS)
def test_a_child_does_not_wait_for_threads_of_its_parent(lock: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    processor = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig()), tracer_provider=provider)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("app")
    tracer.start_span("execute_tool x", attributes=TOOL).end()
    with held(LOCKS[lock](processor)):
        child = os.fork()
        if child == 0:
            signal.alarm(3)
            for _ in range(3):
                tracer.start_span("execute_tool x", attributes=TOOL).end()
            os._exit(0 if processor.board.read("c").level.value in ("NUDGE", "STOP") else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_called_after_a_fork_is_not_kept_alive() -> None:
    others = weakref.WeakSet(forking._owners)  # of other tests, some of which may go at any time
    board = FlagBoard(GuardConfig())
    ours = [weakref.ref(owner) for owner in list(forking._owners) if owner not in others]
    assert len(ours) == len(("the board", "its prices", "its branches"))
    del board
    gc.collect()
    assert {owner() for owner in ours} == {None}


OWNERS: dict[str, Callable[[], Any]] = {
    "board": lambda: FlagBoard(GuardConfig()),
    "ledger": lambda: FlagBoard(GuardConfig(track_spending=True)).spending,
    "prices": PriceTable,
    "unknown ids": UnknownIds,
    "gate around a node": lambda: IntegrityGate([bool]),
    "gate before a tool": lambda: ToolGate(Gate(board=FlagBoard(GuardConfig())), None),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("name", OWNERS)
def test_a_child_has_locks_that_no_thread_of_its_parent_holds(name: str) -> None:
    owner = OWNERS[name]()
    attribute = "lock" if name == "board" else "_lock"  # a lock is replaced in the child: ask for it by name
    with held(getattr(owner, attribute)):
        child = os.fork()
        if child == 0:
            os._exit(getattr(owner, attribute).locked())
    assert os.waitpid(child, 0)[1] == 0


class Fails:
    def renew(self) -> None:
        raise RuntimeError("not in this child")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_an_owner_that_fails_in_a_child_leaves_no_other_without_its_locks() -> None:
    fails = Fails()
    forking.after_fork(fails.renew)
    board = FlagBoard(GuardConfig())  # after it
    with held(board.lock):
        child = os.fork()
        if child == 0:
            os._exit(board.lock.locked())
    assert os.waitpid(child, 0)[1] == 0
    del fails


# --- imports ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_an_import_and_the_child_is_free_to_import() -> None:
    taken, asked = threading.Event(), threading.Event()
    steps: list[str] = []

    class Announced(ForkDelay):
        def before_fork(self) -> None:
            asked.set()
            super().before_fork()

    def import_slowly() -> None:
        with delay:
            taken.set()
            asked.wait(30)
            steps.append("imported")

    delay = Announced()
    thread = threading.Thread(target=import_slowly)
    thread.start()
    try:
        taken.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(3)
            with delay:
                os._exit(steps != ["imported"])
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        with delay:
            pass
    finally:
        forking._delays.remove(delay)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_looks_prices_up_that_its_parent_had_asked_for() -> None:
    pytest.importorskip("genai_prices")
    script = """
        import os, signal
        from trajectory_guard.spending.prices import PriceTable
        prices = PriceTable()
        prices.get("gpt-4o")
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            import genai_prices
        prices.wait(["gpt-4o"], 30)
        assert prices.cost("gpt-4o", 1000, 100) > 0
        assert not prices.is_asked("gpt-4o")
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=90, check=False
    )
    assert run.returncode == 0, run.stderr
