"""Processors that share a few threads (``ConcurrentMultiSpanProcessor``): nobody waits for ever, and nothing is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import eventually
from tests.test_locks import LOCKS, call, ends
from trajectory_guard import FlagBoard, GuardConfig, Intervention, Level, telemetry
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

Build = Callable[..., tuple[TrajectoryGuardProcessor, TracerProvider]]


def pooled(threads: int, *behind: SpanProcessor, **config: Any) -> tuple[TrajectoryGuardProcessor, TracerProvider]:
    """A provider whose processors run on a few threads."""
    provider = TracerProvider(active_span_processor=ConcurrentMultiSpanProcessor(threads), shutdown_on_exit=False)
    processor = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig(**config)))
    for one in (processor, *behind):
        provider.add_span_processor(one)
    return processor, provider


def pool_within(threads: int, *behind: SpanProcessor, **config: Any) -> tuple[TrajectoryGuardProcessor, TracerProvider]:
    """A provider with such processors as one of its own."""
    provider, pool = TracerProvider(shutdown_on_exit=False), ConcurrentMultiSpanProcessor(threads)
    processor = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig(**config)))
    for one in (processor, *behind):
        pool.add_span_processor(one)
    provider.add_span_processor(pool)
    return processor, provider


BUILDS: dict[str, Build] = {"the provider's": pooled, "one of the provider's": pool_within}


def loop(provider: TracerProvider, conversation: str, calls: int = 4) -> None:
    for _ in range(calls):
        attributes = {**call(0), "gen_ai.conversation.id": conversation}
        provider.get_tracer("app").start_span("execute_tool load", attributes=attributes).end()


def named(exporter: InMemorySpanExporter, name: str) -> int:
    return sum(one.name == name for one in exporter.get_finished_spans())


def all_end(agents: list[threading.Thread]) -> bool:
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join(30)
    return not any(agent.is_alive() for agent in agents)


def loops(provider: TracerProvider, count: int) -> list[threading.Thread]:
    return [threading.Thread(target=loop, args=(provider, str(at)), daemon=True) for at in range(count)]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("threads", "agents"), [(1, 1), (2, 8)])
def test_the_guards_own_spans_wait_for_no_thread(build: str, threads: int, agents: int) -> None:
    exporter = InMemorySpanExporter()
    processor, provider = BUILDS[build](threads, SimpleSpanProcessor(exporter))
    assert all_end(loops(provider, agents))
    assert named(exporter, telemetry.SPAN_NAME) == agents
    assert processor.board.counts["steps"] == 4 * agents


@pytest.mark.parametrize("build", BUILDS)
def test_the_span_of_the_last_intervention_is_exported_before_the_end(build: str) -> None:
    for _ in range(20):
        exporter = InMemorySpanExporter()
        _, provider = BUILDS[build](2, BatchSpanProcessor(exporter))
        loop(provider, "c", calls=3)
        provider.shutdown()
        assert named(exporter, telemetry.SPAN_NAME) == 1


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("threads", "agents"), [(1, 1), (2, 2), (2, 8)])
def test_a_callback_may_start_spans(build: str, threads: int, agents: int) -> None:
    exporter, providers = InMemorySpanExporter(), []

    def alert(due: Intervention) -> None:
        providers[0].get_tracer("app").start_span(f"alert {due.level}").end()

    processor, provider = BUILDS[build](threads, SimpleSpanProcessor(exporter), on_intervention=alert)
    providers.append(provider)
    assert all_end(loops(provider, agents))
    assert eventually(lambda: named(exporter, "alert NUDGE") == agents)
    assert not [name for name in processor.board.counts if name.startswith("errors")]


def test_an_error_of_a_callback_is_counted() -> None:
    def broken(_: Intervention) -> None:
        raise RuntimeError("broken")

    processor, provider = pooled(2, on_intervention=broken)
    loop(provider, "c")
    provider.force_flush()
    assert processor.board.counts["errors.on_intervention"] == 1


def test_a_flush_waits_for_callbacks() -> None:
    go, done = threading.Event(), threading.Event()

    def slow(_: Intervention) -> None:
        go.wait(30)
        done.set()

    _, provider = pooled(2, on_intervention=slow)
    loop(provider, "c", calls=3)
    go.set()
    provider.force_flush()
    assert done.is_set()


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_span_that_ends_inside_the_guard_is_evaluated_with_the_next_one(build: str, lock: str) -> None:
    """A finalizer or a signal handler has ended it: its thread holds the lock, and waits for the thread of the pool."""
    processor, provider = BUILDS[build](1)
    tracer = provider.get_tracer("app")
    tracer.start_span("execute_tool load", attributes=call(0)).end()

    def inside() -> None:
        with LOCKS[lock](processor):
            outer = tracer.start_span("GET /stream")
            tracer.start_span("execute_tool load", attributes=call(1)).end()
            outer.end()

    assert ends(inside)
    tracer.start_span("a request").end()
    assert processor.board.counts["steps"] == 2
    assert not [name for name in processor.board.counts if name.startswith("errors")]


def test_the_tokens_of_a_call_that_waited_count_once() -> None:
    """The model call ends inside the guard, and waits for the board once its tokens are known."""
    processor, provider = pooled(1, cursor=True)
    tracer = provider.get_tracer("app")
    messages = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "load", "arguments": {}}]}]
    chat = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": json.dumps(messages),
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10, "gen_ai.conversation.id": "c",
    }  # fmt: skip
    with tracer.start_as_current_span("a request"):

        def inside() -> None:
            with LOCKS["board"](processor):
                span.end()

        # the conversation is known: the next call needs no lock of the board for that
        tracer.start_span("chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c"}).end()
        span = tracer.start_span("chat m", attributes=chat)
        assert ends(inside)
        loop(provider, "c", calls=3)
    flag = processor.board.read("c")
    assert flag is not None
    assert flag.verdict.spent.tokens == 0  # those before the first repeat


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_request_that_ends_inside_the_guard_ends_its_trace(build: str, lock: str) -> None:
    """A nudge and a stop that nobody took in it would hit the next one."""
    processor, provider = BUILDS[build](1)
    tracer = provider.get_tracer("app")
    outer = tracer.start_span("a request")
    with trace.use_span(outer):
        loop(provider, "c", calls=9)
    flag = processor.board.read("c")
    assert flag is not None
    assert flag.level is Level.STOP

    def inside() -> None:
        with LOCKS[lock](processor):
            outer.end()

    assert ends(inside)
    tracer.start_span("the next request").end()
    assert processor.board.take("c").level is Level.OBSERVE


def test_spans_that_end_while_others_flush_and_shut_down() -> None:
    exporter = InMemorySpanExporter()
    processor, provider = pooled(2, SimpleSpanProcessor(exporter))
    flushing = [threading.Thread(target=provider.force_flush, args=(1_000,), daemon=True) for _ in range(20)]
    agents = [threading.Thread(target=loop, args=(provider, str(at), 40), daemon=True) for at in range(6)]
    assert all_end([*agents, *flushing])
    assert processor.board.counts["steps"] == 240
    ending = [threading.Thread(target=loop, args=(provider, f"late {at}", 40), daemon=True) for at in range(4)]
    assert all_end([*ending, threading.Thread(target=provider.shutdown, daemon=True)])
    assert not [name for name in processor.board.counts if name.startswith("errors")]


def test_processors_that_are_added_later_get_the_guards_spans() -> None:
    ended: list[str] = []

    class Later(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.append(span.name)

    _, provider = pooled(1)
    loop(provider, "first")
    provider.add_span_processor(Later())
    loop(provider, "second")
    assert ended.count(telemetry.SPAN_NAME) == 1
