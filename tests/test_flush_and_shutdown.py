"""``force_flush`` and ``shutdown`` as the SDK's contract has them: bounded, honest, never an exception, once."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from tests.helpers import PACKAGE
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Reply, langfuse
from trajectory_guard import (
    GuardConfig,
    Level,
    TrajectoryGuardProcessor,
    callbacks,
    instrument,
    runtime,
    uninstrument,
)
from trajectory_guard.board.store import FlagBoard

ANSWER = "We are closed on Mondays and open from Tuesday to Sunday."
NOBODY_LISTENS = "http://localhost:9"
SHUTDOWN_S = 5.0


class App:
    def __init__(self, **config: Any) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.board = FlagBoard(GuardConfig(**config))
        self.processor = TrajectoryGuardProcessor(board=self.board)
        self.provider.add_span_processor(self.processor)

    def loops(self, steps: int = 3) -> None:
        for _ in range(steps):
            attributes = {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
                "gen_ai.tool.call.arguments": '{"q": 1}', "gen_ai.tool.call.result": ANSWER,
            }  # fmt: skip
            self.provider.get_tracer("app").start_span("execute_tool search", attributes=attributes).end()

    @property
    def errors(self) -> set[str]:
        return {name for name in self.board.counts if name.startswith("errors.")}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def to(url: str) -> None:
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", PUBLIC_KEY)
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", SECRET_KEY)
        monkeypatch.setenv("LANGFUSE_BASE_URL", url)

    return to


@contextmanager
def hanging() -> Iterator[Callable[[Any], Any]]:
    """A callback that ends with this block."""
    go = threading.Event()

    async def hang(_: Any) -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)

    try:
        yield hang
    finally:
        go.set()
        assert callbacks.wait(30)


def seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def fails(*_: object) -> Any:
    raise OSError("the disk is gone")


class Behind(SpanProcessor):
    """A processor that stands behind the guard."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.seen.append("force_flush")
        return True

    def shutdown(self) -> None:
        self.seen.append("shutdown")


# --- force_flush ---------------------------------------------------------------------------------------------


@pytest.mark.newest
def test_what_is_not_flushed_in_time_is_false_and_the_processors_behind_get_their_turn() -> None:
    with hanging() as callback:
        app, behind = App(on_intervention=callback), Behind()
        app.provider.add_span_processor(behind)
        app.loops()
        assert app.provider.force_flush(200) is False
        assert behind.seen == ["force_flush"]
    assert app.provider.force_flush() is True
    assert app.errors == set()


@pytest.mark.slow
@pytest.mark.newest
def test_scores_that_langfuse_does_not_take_are_false_until_it_does(keys: Callable[[str], None]) -> None:
    with langfuse() as server:
        keys(server.url)
        app = App(langfuse_scores=True)
        server.script.extend([Reply(503)] * 2)
        app.loops()
        assert app.processor.force_flush(100) is False
        assert app.processor.force_flush(30_000) is True
        assert [one["name"] for one in server.written if "traceId" in one] == ["trajectory_health", "loop_detected"]
        app.provider.shutdown()


@pytest.mark.parametrize("timeout", [None, 0, -1, 10**12, 0.5])
def test_any_time_out_will_do(timeout: Any) -> None:
    app = App()
    app.loops()
    assert app.processor.force_flush(timeout) is True
    assert app.errors == set()


@pytest.mark.newest
def test_spending_that_cannot_be_saved_is_false(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "ledger.db"
    app = App(spending_file=str(file))
    tracer = app.provider.get_tracer("app")
    model_call = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 5,
    }  # fmt: skip
    tracer.start_span("chat m", attributes=model_call).end()
    assert app.processor.force_flush() is True
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    tracer.start_span("chat m", attributes=model_call).end()
    assert app.processor.force_flush() is False
    other.execute("ROLLBACK")
    other.close()
    assert app.processor.force_flush() is True
    app.provider.shutdown()


@pytest.mark.newest
def test_an_error_in_one_part_of_a_flush_takes_no_other_part_s_turn(monkeypatch: pytest.MonkeyPatch, keys: Any) -> None:
    with langfuse() as server:
        keys(server.url)
        app = App(langfuse_scores=True, budgets=[{"scope": "day", "usd": 5}])
        app.loops()
        monkeypatch.setattr(app.board.spending, "save_waiting", fails)
        assert app.processor.force_flush() is False
        assert app.errors == {"errors.force_flush"}
        assert [one["name"] for one in server.written if "traceId" in one] == ["trajectory_health", "loop_detected"]


def test_an_error_in_one_part_of_a_shutdown_takes_no_other_part_s_turn(
    monkeypatch: pytest.MonkeyPatch, keys: Callable[[str], None]
) -> None:
    with langfuse() as server:
        keys(server.url)
        server.script.append(Reply(503))  # what waits is sent before shutdown returns, or never
        app = App(langfuse_scores=True, budgets=[{"scope": "day", "usd": 5}])
        app.loops()
        monkeypatch.setattr(app.board.spending, "close", fails)
        app.provider.shutdown()
        assert app.errors == {"errors.shutdown"}
        assert [one["name"] for one in server.written if "traceId" in one] == ["trajectory_health", "loop_detected"]


# --- shutdown ------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_a_callback_as_a_flush_does() -> None:
    said = []

    async def say(intervention: Any) -> None:
        await asyncio.sleep(0.05)
        said.append(intervention.level)

    app = App(on_intervention=say)
    app.loops()
    app.provider.shutdown()
    assert said == [Level.NUDGE]


@pytest.mark.slow
def test_shutdown_is_bounded_and_the_second_one_does_nothing(
    keys: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    keys(NOBODY_LISTENS)
    with hanging() as callback:
        app, behind = App(langfuse_scores=True, on_intervention=callback), Behind()
        app.provider.add_span_processor(behind)
        app.loops()
        assert seconds(app.provider.shutdown) < 2 * SHUTDOWN_S
        assert behind.seen == ["shutdown"]
        lost = [one for one in caplog.messages if "did not reach Langfuse" in one]
        assert len(lost) == 1
        caplog.clear()
        assert seconds(app.processor.shutdown) < SHUTDOWN_S / 2
        assert caplog.messages == []
        assert seconds(app.processor.force_flush) < SHUTDOWN_S / 2
    assert app.errors == set()


def test_after_shutdown_spans_are_ignored_until_the_guard_is_switched_on() -> None:
    app = App()
    app.loops(2)
    app.provider.shutdown()
    app.loops(3)
    assert app.board.read("c").steps == 2
    assert app.processor.force_flush() is True
    app.processor.switch_on()
    app.loops(1)
    assert app.board.read("c").steps == 3
    app.processor.shutdown()
    app.loops(1)
    assert app.board.read("c").steps == 3


def test_instrument_switches_a_guard_on_that_was_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    provider = TracerProvider(shutdown_on_exit=False)
    processor = instrument(provider)
    for _ in range(2):
        provider.shutdown()
        assert processor.enabled is False
        assert instrument(provider) is processor
        assert processor.enabled is True
    uninstrument(provider)


def test_spans_open_at_uninstrument_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    provider = TracerProvider(shutdown_on_exit=False)
    processor = instrument(provider)
    span = provider.get_tracer("t").start_span("open")
    kept = weakref.ref(span)
    uninstrument(provider)
    span.end()
    del span
    gc.collect()
    assert kept() is None
    assert processor.enabled is False


def test_a_shutdown_inside_the_guard_as_of_a_signal_handler_ends() -> None:
    app = App(budgets=[{"scope": "day", "usd": 5}], on_intervention=print)
    app.loops()

    def inside() -> None:
        with app.board.lock:
            app.provider.force_flush()
            app.provider.shutdown()

    thread = threading.Thread(target=inside, daemon=True)
    thread.start()
    thread.join(6 * SHUTDOWN_S)
    assert not thread.is_alive()
    assert app.processor.enabled is False


def test_the_exit_of_a_process_whose_langfuse_is_gone_is_bounded() -> None:
    code = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from trajectory_guard import GuardConfig, instrument
trace.set_tracer_provider(TracerProvider())
instrument(config=GuardConfig(langfuse_scores=True))
for _ in range(3):
    trace.get_tracer("app").start_span("execute_tool x", attributes={
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "gen_ai.tool.call.arguments": "{}",
        "gen_ai.tool.call.result": "Closed on Mondays. Open from Tuesday to Sunday, nine to five."}).end()
print("ended", flush=True)
"""
    environ = {
        **os.environ, "PYTHONPATH": str(PACKAGE.parent), "LANGFUSE_PUBLIC_KEY": PUBLIC_KEY,
        "LANGFUSE_SECRET_KEY": SECRET_KEY, "LANGFUSE_BASE_URL": NOBODY_LISTENS,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ended\n"
        took = seconds(lambda: process.communicate(timeout=60))
    assert process.returncode == 0
    assert took < 3 * SHUTDOWN_S
