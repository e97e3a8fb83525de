"""What finalizers and signal handlers ask of the guard while their own thread is inside it: nobody waits for ever."""

from __future__ import annotations

import gc
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import eventually
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.process.locks import HeldHereError, OwnedLock, condition_on, holds_lock
from trajectory_guard.semantic.model_files import ModelError
from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings, Prepared

FAR_TOO_LONG_S = 30.0


def guarded() -> tuple[TrajectoryGuardProcessor, TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    processor = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig()), tracer_provider=provider)
    provider.add_span_processor(processor)
    return processor, provider


def call(number: int) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "load", "gen_ai.conversation.id": "c",
        "gen_ai.tool.call.arguments": json.dumps({"number": number}),
        "gen_ai.tool.call.result": f"text number {number} of the story",
    }  # fmt: skip


def ends(work: Callable[[], object]) -> bool:
    """Whether ``work`` ends on a thread of its own; one that waits for itself never does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(FAR_TOO_LONG_S)
    return not thread.is_alive()


@contextmanager
def collecting_at(threshold: int) -> Iterator[None]:
    """The garbage collector runs after so many new objects, as it did before when this ends."""
    before, ran = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(threshold)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not ran:
            gc.disable()


def evaluates(processor: TrajectoryGuardProcessor, steps: int) -> bool:
    """Whether so many steps are evaluated once all garbage is collected.

    While another thread collects, ``gc.collect`` does nothing, and the spans that it found end on that thread, later.
    """

    def all_are() -> bool:
        gc.collect()
        processor.force_flush()
        return bool(processor.board.counts["steps"] == steps)

    return eventually(all_are)


LOCKS: dict[str, Callable[[TrajectoryGuardProcessor], Any]] = {
    "board": lambda processor: processor.board.lock,
    "trajectory": lambda processor: processor.board._entries["c"].lock,
    "processor": lambda processor: processor._lock,
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_span_that_ends_inside_the_guard_is_evaluated_with_the_next_one(lock: str) -> None:
    processor, provider = guarded()
    tracer = provider.get_tracer("app")
    tracer.start_span("execute_tool load", attributes=call(0)).end()

    def inside() -> None:
        with LOCKS[lock](processor):
            tracer.start_span("execute_tool load", attributes=call(1)).end()

    assert ends(inside)
    assert processor.board.counts["steps"] == 1
    tracer.start_span("a request").end()
    assert processor.board.counts["steps"] == 2
    assert not [name for name in processor.board.counts if name.startswith("errors")]


def test_abandoned_generators_whose_spans_the_garbage_collector_ends() -> None:
    processor, provider = guarded()
    tracer = provider.get_tracer("app")

    def rows(number: int) -> Iterator[int]:
        span = tracer.start_span("execute_tool load", attributes=call(number))
        try:
            yield from range(9)
        finally:
            span.end()

    def work() -> None:
        for number in range(0, 600, 2):
            abandoned: list[Any] = [rows(number)]
            abandoned.append(abandoned)  # only the garbage collector ends it, wherever it runs
            next(abandoned[0])
            tracer.start_span("execute_tool load", attributes=call(number + 1)).end()

    with collecting_at(40):
        assert ends(work)
    assert evaluates(processor, 600), processor.board.counts
    assert not [name for name in processor.board.counts if name.startswith("errors")]


def test_a_lock_raises_where_its_own_thread_holds_it() -> None:
    lock, other = OwnedLock(), OwnedLock()
    assert not holds_lock()
    with lock, other:
        assert holds_lock()
        with pytest.raises(HeldHereError):
            lock.__enter__()
    assert not holds_lock()
    with other:  # released since
        assert holds_lock()
    assert not lock.locked()
    assert not other.locked()


def test_others_wait_for_a_lock_and_see_that_it_is_held() -> None:
    lock = OwnedLock()
    entered: list[bool] = []

    def wait() -> None:
        with lock:
            entered.append(holds_lock())

    with lock:
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        seen: list[bool] = []
        assert ends(lambda: seen.extend((lock.locked(), holds_lock())))
        assert seen == [True, False]
        assert not entered
    thread.join(FAR_TOO_LONG_S)
    assert entered == [True]


def test_a_condition_can_use_it() -> None:
    lock = OwnedLock()
    changed = condition_on(lock)
    ready: list[bool] = []

    def wait() -> None:
        with lock:
            changed.wait_for(lambda: ready)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    with lock:
        ready.append(True)
        changed.notify_all()
    thread.join(FAR_TOO_LONG_S)
    assert not thread.is_alive()


class _InterruptedError(Exception):
    pass


def no_model() -> Prepared:
    raise ModelError("no model")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
@pytest.mark.parametrize("what", ["a lock", "the settler"])
def test_an_exception_of_a_signal_handler_leaves_no_lock_held(what: str) -> None:
    def interrupt(*_: object) -> None:
        raise _InterruptedError

    settler = BackgroundSettler(ModelSettings(), load=no_model)
    lock, interrupted = settler._lock if what == "the settler" else OwnedLock(), 0

    def enter() -> None:
        while True:
            with lock:
                pass

    def ask() -> None:
        while True:
            settler.wait(0.0)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupted < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                (ask if what == "the settler" else enter)()
            except _InterruptedError:
                interrupted += 1
            assert not lock.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threshold", [pytest.param(50, marks=pytest.mark.slow), 300])
def test_abandoned_streams_of_nested_spans_end_wherever_the_garbage_collector_runs(threshold: int) -> None:
    """The span around the tool's is none of the guard's, and ends next, in the same place."""
    processor, provider = guarded()
    tracer = provider.get_tracer("app")

    def stream(number: int) -> Iterator[int]:
        outer = tracer.start_span("GET /stream")
        tool = tracer.start_span("execute_tool load", trace.set_span_in_context(outer), attributes=call(number))
        try:
            yield from range(9)
        finally:
            tool.end()
            outer.end()

    def work() -> None:
        for number in range(0, 600, 2):
            abandoned: list[Any] = [stream(number)]
            abandoned.append(abandoned)
            next(abandoned[0])
            tracer.start_span("execute_tool load", attributes=call(number + 1)).end()

    with collecting_at(threshold):
        assert ends(work)
    assert evaluates(processor, 600), processor.board.counts


@pytest.mark.parametrize("lock", LOCKS)
def test_nested_spans_that_end_inside_the_guard_are_evaluated_later(lock: str) -> None:
    processor, provider = guarded()
    tracer = provider.get_tracer("app")
    tracer.start_span("execute_tool load", attributes=call(0)).end()
    request = tracer.start_span("request")

    def inside() -> None:
        with LOCKS[lock](processor), trace.use_span(request):
            outer = tracer.start_span("GET /stream")
            with trace.use_span(outer):
                tracer.start_span("execute_tool load", attributes=call(1)).end()
            outer.end()

    assert ends(inside)
    assert processor.board.counts["steps"] == 1
    request.end()
    assert processor.board.counts["steps"] == 2


def test_postponed_spans_beyond_a_limit_are_counted() -> None:
    processor, provider = guarded()
    tracer = provider.get_tracer("app")
    tracer.start_span("execute_tool load", attributes=call(0)).end()
    with LOCKS["trajectory"](processor):
        for number in range(300):
            tracer.start_span("execute_tool load", attributes=call(number + 1)).end()
    processor.force_flush()
    assert processor.board.counts["expired_full"] == 44
    assert processor.board.counts["steps"] == 257
