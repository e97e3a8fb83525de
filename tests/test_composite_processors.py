"""The guard's processor inside one of the application's, which holds a lock of its own around every call."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import eventually
from trajectory_guard import TrajectoryGuardProcessor, telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig

CALL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
    "gen_ai.tool.call.arguments": '{"q": "x"}', "gen_ai.tool.call.result": "No results found",
}  # fmt: skip


class Locked(SpanProcessor):
    """Routes spans to others under a plain lock, as a tail sampler or a router by tenant does."""

    def __init__(self, *inner: SpanProcessor) -> None:
        self.inner, self.lock = inner, threading.Lock()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        with self.lock:
            for one in self.inner:
                one.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        with self.lock:
            for one in self.inner:
                one.on_end(span)


class Threads(SpanProcessor):
    """Notes the thread on which each span ends, by name."""

    def __init__(self) -> None:
        self.ended: dict[str, threading.Thread] = {}

    def on_end(self, span: ReadableSpan) -> None:
        self.ended[span.name] = threading.current_thread()


def works(provider: TracerProvider) -> None:
    """An application whose agent makes one call four times, on a thread of its own, so that a deadlock shows."""

    def run() -> None:
        for _ in range(4):
            provider.get_tracer("app").start_span("execute_tool search", attributes=CALL).end()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_lock_around_the_guard_stalls_nobody(depth: int) -> None:
    exporter, board, provider = InMemorySpanExporter(), FlagBoard(GuardConfig()), TracerProvider()
    guard = TrajectoryGuardProcessor(board=board)
    inner: SpanProcessor = Locked(SimpleSpanProcessor(exporter), guard)
    provider.add_span_processor(inner if depth == 1 else Locked(inner))
    works(provider)

    assert board.read("c").level.name == "NUDGE"
    assert guard.force_flush()
    own = [one for one in exporter.get_finished_spans() if one.name == telemetry.SPAN_NAME]
    assert len(own) == 1
    assert not {name for name in board.counts if name.startswith("errors")}


def test_beside_such_a_processor_the_own_span_ends_on_the_thread_of_the_call() -> None:
    threads, provider = Threads(), TracerProvider()
    provider.add_span_processor(Locked(SimpleSpanProcessor(InMemorySpanExporter())))
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard(GuardConfig())))
    provider.add_span_processor(threads)
    works(provider)

    assert threads.ended[telemetry.SPAN_NAME] is threads.ended["execute_tool search"]


def test_a_span_that_cannot_be_emitted_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.name == telemetry.SPAN_NAME:
                raise RuntimeError("no room")

    board, provider = FlagBoard(GuardConfig()), TracerProvider()
    provider.add_span_processor(Broken())
    provider.add_span_processor(Locked(TrajectoryGuardProcessor(board=board)))
    works(provider)

    assert eventually(lambda: board.counts["errors.on_end"] == 1)
    assert eventually(lambda: "span failed" in caplog.text)
