"""Delivery without storage: acknowledged once every backend has the batch."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import suppress
from typing import Any

import pytest
from grpc import StatusCode
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.collector.backends import (
    Counted,
    delivering,
    grpc_backend,
    held,
    http_backend,
    log_records,
    metric_points,
    otlp,
    refuse,
    refuse_poison,
    settings,
    spans,
    until,
)
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.errors import OverloadedError, UnavailableError
from trajectory_guard_collector.gateway.delivery import router
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.otlp.signals import Batch, Signal


async def test_every_backend_has_the_batch_when_deliver_returns():
    async with grpc_backend() as one, grpc_backend() as two, http_backend() as three:
        exporters = {"otlp/1": otlp(one), "otlp/2": otlp(two), "otlphttp": {"endpoint": three.endpoint}}
        async with delivering(settings(exporters)) as delivery:
            for batch in (spans(range(9)), metric_points(2), log_records(3)):
                await delivery.deliver(batch)
                assert [backend.taken[-1] for backend in (one, two, three)] == [(batch.signal, batch.data)] * 3


async def test_exporters_may_have_the_names_of_newer_opentelemetry_collectors():
    async with grpc_backend() as one, http_backend() as two:
        exporters = {"otlp_grpc": otlp(one), "otlp_http/two": {"endpoint": two.endpoint}}
        async with delivering(settings(exporters)) as delivery:
            await delivery.deliver(spans(range(3)))
    assert (one.spans.total(), two.spans.total()) == (3, 3)


async def test_spans_of_the_sdk_arrive_as_they_were_encoded():
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    with provider.get_tracer("test").start_as_current_span("agent"):
        provider.get_tracer("test").start_span("tool").end()
    data = encode_spans(memory.get_finished_spans()).SerializeToString()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        await delivery.deliver(Batch(Signal.TRACES, data, 2))
    assert backend.taken == [(Signal.TRACES, data)]
    assert backend.spans.total() == 2


async def test_a_slow_backend_does_not_hold_up_the_others():
    gate = asyncio.Event()
    async with grpc_backend() as slow, grpc_backend() as fast:
        slow.always = held(gate)
        async with delivering(settings({"otlp/slow": otlp(slow), "otlp/fast": otlp(fast)})) as delivery:
            waiting = [asyncio.create_task(delivery.deliver(spans([number]))) for number in range(20)]
            await fast.until(lambda: fast.spans.total() == 20)
            assert not any(task.done() for task in waiting)
            gate.set()
            await asyncio.gather(*waiting)
    assert slow.spans == fast.spans == dict.fromkeys(range(20), 1)


async def test_a_backend_that_is_down_is_reported_to_the_sender_and_the_others_do_not_get_the_batch_twice():
    batch = spans(range(5))
    async with grpc_backend() as down, grpc_backend() as up:
        config = settings({"otlp/down": otlp(down), "otlp/up": otlp(up)}, deadline_s=1.0)
        down.always = refuse(StatusCode.UNAVAILABLE)
        async with delivering(config) as delivery:
            for _ in range(2):
                with pytest.raises(UnavailableError, match="otlp/down: "):
                    await delivery.deliver(batch, key=b"1")
            down.always = None
            await delivery.deliver(batch, key=b"1")
    assert up.spans == down.spans == dict.fromkeys(range(5), 1)


async def test_a_backend_that_is_back_is_logged_once(caplog):
    caplog.set_level("INFO")
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        async with delivering(settings({"otlp": otlp(backend)}, deadline_s=0.2)) as delivery:
            with pytest.raises(UnavailableError):
                await delivery.deliver(spans([0]))
            backend.always = None
            for number in range(3):
                await delivery.deliver(spans([number]))
    assert caplog.text.count("exporter otlp: delivers again, after ") == 1


async def test_what_arrives_after_the_deadline_is_not_sent_again():
    gate = asyncio.Event()
    async with grpc_backend() as slow:
        slow.script.append(held(gate))
        async with delivering(settings({"otlp": otlp(slow)}, deadline_s=0.5)) as delivery:
            with pytest.raises(UnavailableError, match="no reply in time"):
                await delivery.deliver(spans(range(5)), key=b"1")
            gate.set()
            await slow.until(lambda: slow.spans.total() == 5)
            await delivery.deliver(spans(range(5)), key=b"1")
    assert len(slow.requests) == 1


async def test_a_batch_that_is_sent_again_while_it_waits_gets_more_time():
    gate = asyncio.Event()
    async with grpc_backend() as slow:
        slow.always = held(gate)
        config = settings({"otlp": otlp(slow, sending_queue={"num_consumers": 1})}, deadline_s=1.0)
        async with delivering(config) as delivery:
            ahead = asyncio.create_task(delivery.deliver(spans([0])))
            await slow.until(lambda: bool(slow.requests))
            with pytest.raises(UnavailableError):
                await delivery.deliver(spans([1]), key=b"1")
            again = asyncio.create_task(delivery.deliver(spans([1]), key=b"1"))
            await asyncio.sleep(0)
            gate.set()
            await again
            await asyncio.gather(ahead, return_exceptions=True)
    assert slow.spans == {0: 1, 1: 1}


async def test_the_same_batch_at_the_same_time_is_sent_once():
    gate = asyncio.Event()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.always = held(gate)
        twice = [asyncio.create_task(delivery.deliver(spans(range(5)), key=b"1")) for _ in range(2)]
        await backend.until(lambda: bool(backend.requests))
        gate.set()
        await asyncio.gather(*twice)
    assert len(backend.requests) == 1


async def test_one_key_of_two_signals_is_two_batches():
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        await asyncio.gather(delivery.deliver(spans([1]), key=b"1"), delivery.deliver(log_records(1), key=b"1"))
    assert {signal for signal, _ in backend.taken} == {Signal.TRACES, Signal.LOGS}


async def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(router, "MAX_REMEMBERED", 10)
    many = {"num_consumers": 30}
    async with grpc_backend() as down, grpc_backend() as up:
        down.always = refuse(StatusCode.UNAVAILABLE)
        config = settings({"otlp/down": otlp(down, sending_queue=many), "otlp/up": otlp(up)}, deadline_s=1.0)
        async with delivering(config) as delivery:
            keys = [bytes([number]) for number in range(30)]
            await asyncio.gather(*(delivery.deliver(spans([1]), key=key) for key in keys), return_exceptions=True)
            await up.until(lambda: up.spans[1] == 30)
            down.always = None
            await delivery.deliver(spans([1]), key=keys[-1])
            assert up.spans[1] == 30
            await delivery.deliver(spans([1]), key=keys[0])
    assert up.spans[1] == 31


async def test_a_full_queue_refuses_and_the_others_still_get_the_batch():
    gate, metrics = asyncio.Event(), Counted()
    section = {"sending_queue": {"queue_size": 2, "num_consumers": 1}}
    async with grpc_backend() as slow, grpc_backend() as fast:
        slow.always = held(gate)
        config = settings({"otlp/slow": otlp(slow, **section), "otlp/fast": otlp(fast)})
        async with delivering(config, metrics) as delivery:
            first = asyncio.create_task(delivery.deliver(spans([0])))
            await slow.until(lambda: bool(slow.requests))
            waiting = [asyncio.create_task(delivery.deliver(spans([number]))) for number in (1, 2)]
            await until(lambda: delivery.ready() == "queue full: otlp/slow")
            assert metrics.value("otelcol_exporter_queue_size", "otlp/slow") == 2
            assert metrics.value("otelcol_exporter_queue_capacity", "otlp/slow") == 2
            assert metrics.value("otelcol_exporter_in_flight_requests", "otlp/slow") == 1
            with pytest.raises(OverloadedError, match="queue full: otlp/slow") as refusal:
                await delivery.deliver(spans([3]), key=b"3")
            assert refusal.value.retry_after_s == 1.0
            gate.set()
            await asyncio.gather(first, *waiting)
            assert delivery.ready() is None
            await delivery.deliver(spans([3]), key=b"3")
    assert slow.spans == fast.spans == dict.fromkeys(range(4), 1)
    assert metrics.value("enqueue_failed_spans", "otlp/slow") == 1


async def test_no_more_requests_at_a_time_than_consumers():
    gate = asyncio.Event()
    async with grpc_backend() as backend:
        backend.always = held(gate)
        async with delivering(settings({"otlp": otlp(backend, sending_queue={"num_consumers": 3})})) as delivery:
            waiting = [asyncio.create_task(delivery.deliver(spans([number]))) for number in range(9)]
            await backend.until(lambda: len(backend.requests) >= 3)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(backend.requests) == 3
            gate.set()
            await asyncio.gather(*waiting)
    assert backend.spans.total() == 9


async def test_a_sender_that_goes_away_does_not_stop_the_export_and_leaves_no_task():
    gate = asyncio.Event()
    async with grpc_backend() as backend:
        before = asyncio.all_tasks()
        async with delivering(settings({"otlp": otlp(backend)})) as delivery:
            backend.always = held(gate)
            sender = asyncio.create_task(delivery.deliver(spans(range(5)), key=b"1"))
            await backend.until(lambda: bool(backend.requests))
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            gate.set()
            await backend.until(lambda: backend.spans.total() == 5)
            await delivery.deliver(spans(range(5)), key=b"1")
        assert len(backend.requests) == 1
        servers = ("AioServer", "HandleExceptions")  # the backend's own
        left = asyncio.all_tasks() - before
        await until(lambda: all(task.done() or any(name in repr(task) for name in servers) for task in left))


async def test_what_a_backend_refuses_for_good_is_no_error_for_the_sender(caplog):
    metrics = Counted()
    async with grpc_backend() as strict, grpc_backend() as other:
        strict.always = refuse_poison
        config = settings({"otlp/strict": otlp(strict), "otlp/other": otlp(other)})
        async with delivering(config, metrics) as delivery:
            for number in range(3):
                await delivery.deliver(spans([number], poison=[number]))
    assert other.spans.total() == 3
    assert metrics.value("send_failed_spans", "otlp/strict") == 3
    assert metrics.value("send_failed_spans", "otlp/other") == 0
    assert caplog.text.count("were dropped") == 1


async def test_a_signal_that_no_exporter_takes_is_dropped_and_said_once(caplog):
    async with (
        grpc_backend() as backend,
        delivering(settings({"otlp": otlp(backend, signals=["traces"])})) as delivery,
    ):
        await delivery.deliver(log_records(1))
        await delivery.deliver(log_records(1))
    assert not backend.requests
    assert caplog.text.count("no exporter takes logs") == 1


async def test_stop_waits_for_exports_in_work_and_refuses_new_ones():
    gate = asyncio.Event()
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.always = held(gate)
        waiting = asyncio.create_task(delivery.deliver(spans(range(5))))
        await backend.until(lambda: bool(backend.requests))
        stopping = asyncio.create_task(delivery.stop(10.0))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="shutting down"):
            await delivery.deliver(spans([9]))
        gate.set()
        await asyncio.gather(stopping, waiting)
        assert delivery.ready() == "delivery is not running"
    assert backend.spans.total() == 5


async def test_stop_takes_no_longer_than_it_may_and_tells_the_senders():
    async with grpc_backend() as backend, delivering(settings({"otlp": otlp(backend)})) as delivery:
        backend.always = held(asyncio.Event())
        section = [asyncio.create_task(delivery.deliver(spans([number]))) for number in range(10)]
        await backend.until(lambda: len(backend.requests) == 4)
        start = time.monotonic()
        await delivery.stop(0.1)
        results = await asyncio.gather(*section, return_exceptions=True)
    assert time.monotonic() - start < 15.0
    assert [str(result) for result in results] == ["otlp: shutting down"] * 10


async def test_stop_is_idempotent_and_legal_without_start():
    delivery = Delivery(CollectorConfig(), Counted())
    await delivery.stop(1.0)
    with pytest.raises(UnavailableError):
        await delivery.deliver(spans([1]))
    await delivery.start()
    await delivery.start()
    await delivery.stop(1.0)
    await delivery.stop(1.0)


async def test_the_debug_exporter_prints_a_line_per_batch(capsys):
    metrics = Counted()
    config = settings({"debug": {"verbosity": "batches"}, "debug/quiet": {}})
    async with delivering(config, metrics) as delivery:
        batch = spans(range(7))
        await delivery.deliver(batch)
    assert capsys.readouterr().out == f"debug: traces: 7 spans, {len(batch.data)} bytes\n"
    assert metrics.value("sent_spans", "debug") == metrics.value("sent_spans", "debug/quiet") == 7


async def test_batches_are_not_kept_once_their_outcome_is_known():
    marker = b"remember me" * 10

    def kept() -> bool:
        gc.collect()
        return any(isinstance(each, Batch) and marker in each.data for each in gc.get_objects())

    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        async with delivering(settings({"otlp": otlp(backend)}, deadline_s=0.05)) as delivery:
            for number in range(20):
                batch = Batch(Signal.TRACES, spans([number]).data + b"\xf2\x3f\x6e" + marker, 1)
                with pytest.raises(UnavailableError):
                    await delivery.deliver(batch, key=bytes([number]))
            assert kept()
            del batch
            backend.requests.clear()
            await until(lambda: not kept())


# --- ready -----------------------------------------------------------------------------------------------------------


async def refused_once(delivery: Delivery, batch: Batch) -> None:
    with pytest.raises(UnavailableError):
        await delivery.deliver(batch)


@pytest.mark.parametrize("answer", ["refuses", "hangs"])
async def test_a_collector_whose_only_backend_is_down_is_not_ready_until_it_is_back(answer):
    async with grpc_backend() as backend:
        config = settings({"otlp": otlp(backend)}, deadline_s=0.05)
        async with delivering(config) as delivery:
            assert delivery.ready() is None
            gate = asyncio.Event()
            backend.always = refuse(StatusCode.UNAVAILABLE) if answer == "refuses" else held(gate)
            await refused_once(delivery, spans([1]))
            retry = config.exporters["otlp"].retry_on_failure
            assert delivery.ready() == "no backend: otlp"
            assert await comes(lambda: delivery.ready() is None), f"asked again after {retry.max_interval_s} s"
            await refused_once(delivery, spans([2]))
            assert delivery.ready() == "no backend: otlp"
            backend.always = None
            gate.set()
            await served(delivery, spans([3]))
            assert delivery.ready() is None


async def comes(holds: Any) -> bool:
    await until(holds)
    return True


async def served(delivery: Delivery, batch: Batch) -> None:
    """A sender tries again until its batch is taken."""
    for _ in range(1_000):
        with suppress(UnavailableError):
            return await delivery.deliver(batch, key=b"again")
        await asyncio.sleep(0.01)
    raise AssertionError("never taken")


async def test_a_collector_that_takes_some_signal_is_ready():
    async with grpc_backend() as down, grpc_backend() as up:
        down.always = refuse(StatusCode.UNAVAILABLE)
        slow = {"initial_interval_s": 1.0, "max_interval_s": 600.0}
        traces = {**otlp(down), "signals": ["traces"], "retry_on_failure": slow}
        exporters = {"otlp/traces": traces, "otlp/logs": {**otlp(up), "signals": ["logs"]}}
        async with delivering(settings(exporters, deadline_s=0.05)) as delivery:
            await refused_once(delivery, spans([1]))
            assert delivery.ready() is None
            up.always = refuse(StatusCode.UNAVAILABLE)
            exporters["otlp/logs"]["retry_on_failure"] = slow
        async with delivering(settings(exporters, deadline_s=0.05)) as delivery:
            await refused_once(delivery, spans([1]))
            await refused_once(delivery, log_records(1))
            assert delivery.ready() == "no backend: otlp/traces, otlp/logs"


async def test_a_collector_is_not_ready_if_one_of_two_backends_holds_every_request_up():
    async with grpc_backend() as down, grpc_backend() as up:
        down.always = refuse(StatusCode.UNAVAILABLE)
        slow = {"initial_interval_s": 1.0, "max_interval_s": 600.0}
        exporters = {"otlp/down": {**otlp(down), "retry_on_failure": slow}, "otlp/up": otlp(up)}
        async with delivering(settings(exporters, deadline_s=0.05)) as delivery:
            await refused_once(delivery, spans([1]))
            assert delivery.ready() == "no backend: otlp/down"
