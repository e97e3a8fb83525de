"""Delivery with storage: acknowledged once it is on disk, and delivered whatever happens then."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from tests.collector.backends import (
    Counted,
    GrpcBackend,
    delivering,
    grpc_backend,
    held,
    log_records,
    otlp,
    refuse,
    refuse_poison,
    reply,
    settings,
    span_ids,
    spans,
    until,
)
from trajectory_guard_collector.config.models import CollectorConfig, Queue
from trajectory_guard_collector.errors import OverloadedError, TooLargeError, UnavailableError
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.gateway.storage.database import Database, cannot_use
from trajectory_guard_collector.gateway.storage.store import DatabaseError, Store
from trajectory_guard_collector.otlp.signals import Batch, Signal

MIB = 1024 * 1024


def stored(directory: Path, exporters: dict[str, Any], **queue: Any) -> CollectorConfig:
    return settings(exporters, storage=str(directory), fsync=False, **queue)


@asynccontextmanager
async def opened(config: CollectorConfig) -> AsyncIterator[Store]:
    store = Store(config.queue)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


@asynccontextmanager
async def running(config: CollectorConfig, metrics: Counted | None = None) -> AsyncIterator[tuple[Delivery, Store]]:
    async with opened(config) as store, delivering(config, metrics, store) as delivery:
        yield delivery, store


async def _until_nothing_waits(store: Store, exporter: str) -> None:
    """A backend has a batch before the store knows of it."""
    while await store.pending_bytes(exporter):
        await asyncio.sleep(0.005)


async def repeat(delivery: Delivery, batch: Batch, times: int) -> None:
    for _ in range(times):
        await delivery.deliver(batch)


async def test_a_batch_is_acknowledged_with_every_backend_down_and_arrives_later(tmp_path):
    metrics = Counted()
    async with grpc_backend() as backend:
        await backend.stop()
        async with running(stored(tmp_path, {"otlp": otlp(backend)}), metrics) as (delivery, store):
            for number in range(20):
                await delivery.deliver(spans([number]))
            assert store.used_bytes == metrics.value("otelcol_exporter_queue_size", "otlp") > 0
            await backend.start()
            await backend.until(lambda: backend.spans.total() == 20)
            await until(lambda: store.used_bytes == 0)
            assert metrics.value("otelcol_exporter_queue_size", "otlp") == 0
            assert metrics.value("sent_spans", "otlp") == 20
    assert backend.spans == dict.fromkeys(range(20), 1)


async def test_what_waits_survives_a_restart_in_order(tmp_path):
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        one = {"num_consumers": 1, "max_batch_mib": 0.0001}
        config = stored(tmp_path, {"otlp": otlp(backend, sending_queue=one)})
        async with running(config) as (delivery, _):
            for number in range(20):
                await delivery.deliver(spans([number]))
        backend.always = None
        async with running(config):
            await backend.until(lambda: backend.spans.total() == 20)
    arrived = [tuple(span_ids(data)) for _, data in backend.taken]
    assert list(dict.fromkeys(arrived)) == [(number,) for number in range(20)]  # at least once: a repetition is fine


async def test_waiting_requests_of_a_signal_are_sent_together(tmp_path):
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        config = stored(tmp_path, {"otlp": otlp(backend, sending_queue={"max_batch_mib": 0.02})})
        async with running(config) as (delivery, _):
            for number in range(100):
                await delivery.deliver(spans([number], padding=1000))
                await delivery.deliver(log_records(1))
        backend.always = None
        async with running(config):
            await backend.until(lambda: backend.spans.total() == 100)
            await backend.until(lambda: any(signal is Signal.LOGS for signal, _ in backend.taken))
    requests = [data for signal, data in backend.taken if signal is Signal.TRACES]
    assert backend.spans == dict.fromkeys(range(100), 1)
    assert len(requests) < 10
    assert all(len(data) <= 0.02 * MIB for data in requests)


async def test_a_slow_backend_does_not_hold_up_the_others(tmp_path):
    gate = asyncio.Event()
    async with grpc_backend() as slow, grpc_backend() as fast:
        slow.always = held(gate)
        config = stored(tmp_path, {"otlp/slow": otlp(slow), "otlp/fast": otlp(fast)})
        async with running(config) as (delivery, store):
            for number in range(50):
                await delivery.deliver(spans([number]))
            await fast.until(lambda: fast.spans.total() == 50)
            assert not slow.spans
            assert store.used_bytes > 0
            gate.set()
            await slow.until(lambda: slow.spans.total() == 50)
            await until(lambda: store.used_bytes == 0)


async def test_a_full_queue_refuses_and_takes_again_once_it_was_drained(tmp_path):
    metrics, batch = Counted(), spans(range(10), padding=5000)
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        config = stored(tmp_path, {"otlp": otlp(backend)}, max_size_mib=0.5)
        async with running(config, metrics) as (delivery, store):
            with pytest.raises(OverloadedError, match="max_size_mib") as refusal:
                await repeat(delivery, batch, 100)
            assert refusal.value.retry_after_s == 1.0
            assert 0.4 * MIB < store.used_bytes <= 0.5 * MIB
            assert metrics.value("enqueue_failed_spans", "otlp") == 10
            backend.always = None
            await until(lambda: store.used_bytes == 0)
            await delivery.deliver(batch)


async def test_a_full_queue_is_not_ready_until_there_is_room_again(tmp_path):
    """A load balancer that goes on sending there gets nothing but refusals."""
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        async with running(stored(tmp_path, {"otlp": otlp(backend)}, max_size_mib=1.0)) as (delivery, store):
            with pytest.raises(OverloadedError):
                await repeat(delivery, spans(range(3), padding=5_000), 100)
            assert delivery.ready() == "queue.max_size_mib is reached"
            backend.always = None
            await until(lambda: delivery.ready() is None)
            await delivery.deliver(spans(range(3), padding=5_000))
            assert store.used_bytes < MIB


@pytest.mark.parametrize(
    ("size", "refusal"), [(0.8, OverloadedError), (2.0, TooLargeError)], ids=["no room now", "never any room"]
)
async def test_a_request_that_is_too_large_for_the_queue_does_not_make_it_full(tmp_path, size, refusal):
    """One for which there will never be room would be sent again for ever."""
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        async with running(stored(tmp_path, {"otlp": otlp(backend)}, max_size_mib=1.0)) as (delivery, _):
            await repeat(delivery, spans(range(10), padding=5_000), 10)
            with pytest.raises(refusal):
                await delivery.deliver(spans([0], padding=int(size * MIB)))
            assert delivery.ready() is None
            await delivery.deliver(spans(range(10), padding=5_000))


async def test_a_poison_span_is_dropped_and_its_neighbours_arrive(tmp_path):
    metrics = Counted()
    async with grpc_backend() as backend:
        backend.always = refuse_poison
        async with running(stored(tmp_path, {"otlp": otlp(backend)}), metrics) as (delivery, store):
            for first in range(0, 100, 10):
                await delivery.deliver(spans(range(first, first + 10), poison=[55]))
            await until(lambda: store.used_bytes == 0)
    assert backend.spans == dict.fromkeys(set(range(100)) - {55}, 1)
    assert metrics.value("send_failed_spans", "otlp") == 1


async def test_a_batch_is_given_up_after_the_longest_time(tmp_path):
    metrics = Counted()
    retry = {"initial_interval_s": 0.01, "max_interval_s": 0.02, "max_elapsed_time_s": 0.1}
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        config = stored(tmp_path, {"otlp": otlp(backend, retry_on_failure=retry)})
        async with running(config, metrics) as (delivery, store):
            await delivery.deliver(spans(range(7)))
            await until(lambda: store.used_bytes == 0)
    assert metrics.value("send_failed_spans", "otlp") == 7
    assert len(backend.requests) > 1


async def test_what_waits_for_an_exporter_that_is_gone_stays_and_is_delivered_once_it_is_back(tmp_path, caplog):
    metrics = Counted()
    async with grpc_backend() as old, grpc_backend() as kept, grpc_backend() as new:
        old.always = kept.always = refuse(StatusCode.UNAVAILABLE)
        before = stored(tmp_path, {"otlp/old": otlp(old), "otlp/kept": otlp(kept)})
        async with running(before) as (delivery, store):
            await repeat(delivery, spans([0]), 3)
            owed = store.used_bytes
        old.always = kept.always = None
        after = stored(tmp_path, {"otlp/kept": otlp(kept), "otlp/new": otlp(new)})
        async with running(after, metrics) as (delivery, store):
            await delivery.deliver(spans([1]))
            # The bytes on disk do not say so: those that kept is still to get are the same that old has not got.
            await until(lambda: metrics.value("otelcol_exporter_queue_size", "otlp/kept") == 0)
            await until(lambda: store.used_bytes == owed)  # what came since is gone again
            assert metrics.value("otelcol_exporter_queue_size", "otlp/old") == owed
        assert caplog.text.count("exporters.otlp/old is not configured for traces any more: 3 waiting batches") == 1
        assert "queue.drop_unrouted" in caplog.text
        assert not old.spans
        async with running(before) as (_, store):
            await until(lambda: store.used_bytes == 0)
    assert (old.spans, kept.spans, new.spans) == ({0: 3}, {0: 3, 1: 1}, {1: 1})


async def test_what_waits_for_an_exporter_that_is_gone_is_dropped_if_it_is_named(tmp_path, caplog):
    metrics = Counted()
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        gone = {"otlp/old": otlp(backend), "otlp/older": otlp(backend)}
        async with running(stored(tmp_path, {**gone, "otlp": otlp(backend)})) as (delivery, _):
            await delivery.deliver(spans(range(7)))
        backend.always = None
        config = stored(tmp_path, {"otlp": otlp(backend)}, drop_unrouted=["otlp/old", "otlp"])
        async with running(config, metrics) as (_, store):
            await asyncio.wait_for(_until_nothing_waits(store, "otlp"), 30)
        assert backend.spans.total() == 7
        async with opened(config) as store:
            assert [(one.exporter, one.items) for one in await store.waiting()] == [("otlp/older", 7)]
        async with running(stored(tmp_path, {"otlp": otlp(backend)}, drop_unrouted=["otlp/older"])) as (_, store):
            assert store.used_bytes == 0
    assert metrics.value("send_failed_spans", "otlp/old") == 7
    assert metrics.value("send_failed_spans", "otlp") == metrics.value("send_failed_spans", "otlp/older") == 0
    assert "exporters.otlp/old: 1 waiting batches of traces were dropped" in caplog.text


async def test_what_waits_of_a_signal_that_an_exporter_takes_no_more_stays(tmp_path, caplog):
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        async with running(stored(tmp_path, {"otlp": otlp(backend)})) as (delivery, _):
            await delivery.deliver(log_records(2))
            await delivery.deliver(spans([1]))
        backend.always = None
        async with running(stored(tmp_path, {"otlp": otlp(backend, signals=["traces"])})):
            await backend.until(lambda: backend.spans == {1: 1})
        assert "exporters.otlp is not configured for logs any more: 1 waiting batches" in caplog.text
        assert [signal for signal, _ in backend.taken] == [Signal.TRACES]
        async with running(stored(tmp_path, {"otlp": otlp(backend)})):  # what was not acknowledged in time comes again
            await backend.until(lambda: Signal.LOGS in [signal for signal, _ in backend.taken])


async def test_stop_drains_what_waits(tmp_path):
    gate = asyncio.Event()
    async with grpc_backend() as backend:
        backend.always = held(gate)
        async with opened(stored(tmp_path, {"otlp": otlp(backend)})) as store:
            delivery = Delivery(stored(tmp_path, {"otlp": otlp(backend)}), Counted(), store)
            await delivery.start()
            for number in range(20):
                await delivery.deliver(spans([number]))
            stopping = asyncio.create_task(delivery.stop(20.0))
            await asyncio.sleep(0)
            with pytest.raises(UnavailableError):
                await delivery.deliver(spans([99]))
            gate.set()
            await stopping
            assert backend.spans == dict.fromkeys(range(20), 1)


async def test_stop_takes_no_longer_than_it_may_and_the_rest_stays(tmp_path):
    async with grpc_backend() as backend:
        backend.always = held(asyncio.Event())
        config = stored(tmp_path, {"otlp": otlp(backend)})
        async with opened(config) as store:
            delivery = Delivery(config, Counted(), store)
            await delivery.start()
            await delivery.deliver(spans([1]))
            start = time.monotonic()
            await delivery.stop(0.1)
            await delivery.stop(0.1)
            assert time.monotonic() - start < 15.0
        backend.always = None
        async with running(config):
            await backend.until(lambda: backend.spans == {1: 1})


async def stopped_soon(config: CollectorConfig, backend: GrpcBackend, batches: int) -> None:
    """Let batches come to a backend that fails, and stop with plenty of time."""
    async with opened(config) as store:
        delivery = Delivery(config, Counted(), store)
        await delivery.start()
        for number in range(batches):
            await delivery.deliver(spans([number]))
        await backend.until(lambda: bool(backend.requests))
        start = time.monotonic()
        await delivery.stop(60.0)
        assert time.monotonic() - start < 30.0


async def test_stop_waits_neither_for_a_pause_nor_for_a_backend_that_fails(tmp_path, caplog):
    patient = {"initial_interval_s": 60, "max_interval_s": 60, "max_elapsed_time_s": 30}
    one = {"num_consumers": 1, "max_batch_mib": 0.0001}
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        section = otlp(backend, retry_on_failure={"initial_interval_s": 60, "max_interval_s": 60}, sending_queue=one)
        config = stored(tmp_path, {"otlp": section})
        with caplog.at_level(logging.INFO):
            await stopped_soon(config, backend, 20)
        assert len(backend.requests) == 1
        assert "bytes stay in the queue on disk" in caplog.text
        backend.always = None
        async with running(stored(tmp_path, {"otlp": otlp(backend, retry_on_failure=patient)})) as (_, store):
            await until(lambda: store.used_bytes == 0)
    assert backend.spans == dict.fromkeys(range(20), 1)


async def test_stop_ends_at_the_first_batch_that_is_not_taken(tmp_path):
    one = {"num_consumers": 1, "max_batch_mib": 0.0001}
    gate = asyncio.Event()
    async with grpc_backend() as backend:
        unavailable = refuse(StatusCode.UNAVAILABLE)
        backend.script.extend([held(gate), reply(b""), unavailable, *[reply(b"")] * 9])
        config = stored(tmp_path, {"otlp": otlp(backend, sending_queue=one)})
        async with opened(config) as store:
            delivery = Delivery(config, Counted(), store)
            await delivery.start()
            for number in range(6):
                await delivery.deliver(spans([number]))
            await backend.until(lambda: bool(backend.requests))
            stopping = asyncio.create_task(delivery.stop(20.0))
            await asyncio.sleep(0)
            gate.set()
            await stopping
            assert [span_ids(data) for _, data in backend.taken] == [[0], [1]]
            assert len(backend.requests) == 3
        backend.script.clear()
        async with running(config) as (_, store):
            await until(lambda: store.used_bytes == 0)
    assert backend.spans == dict.fromkeys(range(6), 1)


async def test_a_sender_that_goes_away_does_not_undo_the_write(tmp_path):
    async with grpc_backend() as backend, running(stored(tmp_path, {"otlp": otlp(backend)})) as (delivery, store):
        senders = [asyncio.create_task(delivery.deliver(spans([number]))) for number in range(20)]
        await asyncio.sleep(0)
        for sender in senders[::2]:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        await backend.until(lambda: set(range(1, 20, 2)) <= set(backend.spans))
        await until(lambda: store.used_bytes == 0)
    assert set(backend.spans.values()) == {1}  # what a sender left behind was written once or not at all


async def test_two_collectors_cannot_share_a_directory(tmp_path):
    config = stored(tmp_path, {"debug": {}})
    async with opened(config):
        with pytest.raises(DatabaseError, match=r"collector\.db: in use by another collector"):
            await Store(config.queue).start()
        command = (sys.executable, "-m", "tests.collector.durable_writer", "1", str(tmp_path))
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert b"in use by another collector" in errors
    async with opened(config):
        pass


@pytest.mark.parametrize("version", [0, 1])
async def test_the_database_of_an_application_is_named_and_left_alone(tmp_path, version):
    file = tmp_path / "collector.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"CREATE TABLE users (id); PRAGMA user_version = {version};")
    before = file.read_bytes()
    with pytest.raises(DatabaseError, match=r"collector\.db: is the database of another application, with"):
        await Store(Queue(storage=str(tmp_path))).start()
    assert file.read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "pages", "version"])
async def test_a_damaged_file_is_named_and_left_alone(tmp_path, damage):
    file = tmp_path / "collector.db"
    config = stored(tmp_path, {"debug": {}})
    if damage == "garbage":
        file.write_bytes(b"not a database" * 1000)
    else:
        async with opened(config) as store:
            for number in range(50):
                await store.put(spans([number], padding=5000), ["otlp"])
        if damage == "version":
            with sqlite3.connect(file) as connection:
                connection.execute("PRAGMA user_version = 99")
            connection.close()
        else:
            data = bytearray(file.read_bytes())
            data[8192 : 8192 * 4] = b"\xff" * 8192 * 3
            file.write_bytes(data)
    before = file.read_bytes()
    with pytest.raises(DatabaseError, match=r"collector\.db"):
        await Store(config.queue).start()
    assert file.read_bytes() == before


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere: be nobody for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("locked", [".", "collector.db", "collector.db-wal"])
def test_what_may_not_be_written_is_named_with_the_user(tmp_path, monkeypatch, locked):
    directory = tmp_path / "storage"
    Database(directory, fsync=False).close()
    (directory / "collector.db-wal").touch()
    for path, mode in ((tmp_path, 0o755), (directory, 0o777), *((file, 0o666) for file in directory.iterdir())):
        path.chmod(mode)
    (directory / locked).chmod(0o555)
    monkeypatch.chdir(directory)  # the folders above are root's
    with without_privileges():
        reported = f"queue.storage: {locked}: is not writable by uid {os.geteuid()}"
        with pytest.raises(DatabaseError) as refusal:
            Database(Path(), fsync=False)
    assert str(refusal.value) == reported


def test_only_damage_is_told_to_be_moved_away(tmp_path):
    assert "move the file away" in str(cannot_use(tmp_path, sqlite3.DatabaseError("file is not a database")))
    reported = str(cannot_use(tmp_path, sqlite3.OperationalError("disk I/O error")))
    assert reported == f"queue.storage: {tmp_path}: disk I/O error"


async def test_nobody_else_can_read_the_files(tmp_path):
    config = stored(tmp_path / "a" / "b", {"debug": {}})
    async with opened(config) as store:
        await store.put(spans([1]), ["otlp"])
        files = list((tmp_path / "a" / "b").iterdir())
        assert {file.name for file in files} >= {"collector.db", "collector.db-wal"}
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


async def test_files_of_an_earlier_version_are_taken_from_others(tmp_path):
    config = stored(tmp_path, {"debug": {}})
    async with opened(config) as store:
        await store.put(spans([1]), ["otlp"])
    for name in ("collector.db", "collector.db-wal", "collector.db-shm"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    async with opened(config) as store:
        assert await store.pending_bytes("otlp") > 0
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


async def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match=r"file.collector\.db: cannot open"):
        await Store(Queue(storage=str(tmp_path / "file"))).start()


@pytest.mark.slow
async def test_the_file_stays_bounded_over_many_cycles_and_space_is_given_back(tmp_path):
    file, sizes = tmp_path / "collector.db", []
    async with grpc_backend() as backend:
        async with running(stored(tmp_path, {"otlp": otlp(backend)})) as (delivery, store):
            for _ in range(8):
                backend.always = refuse(StatusCode.UNAVAILABLE)
                await asyncio.gather(*(delivery.deliver(spans([n], padding=400_000)) for n in range(60)))
                backend.always = None
                await until(lambda: store.used_bytes == 0)
                sizes.append(sum(each.stat().st_size for each in tmp_path.iterdir()))
        assert max(sizes) < 64 * MIB, sizes
    assert file.stat().st_size < 20 * MIB


async def test_write_ahead_log_and_saved_state(tmp_path):
    config = stored(tmp_path, {"otlp": {"endpoint": "http://localhost:1"}})
    async with running(config) as (delivery, store):
        await delivery.deliver(spans([1]), wal_entry=b"one")
        await delivery.deliver(spans([2]), wal_entry=b"two")
        await delivery.deliver(spans([3]))
        assert store.last_wal_id == 2
        await store.checkpoint("state", [(b"a", b"1"), (b"b", b"2")], wal_up_to=1)
        await store.checkpoint("other", [(b"a", b"3")])
        await store.checkpoint("state", [(b"a", None), (b"b", b"4")])
    async with opened(config) as store:
        assert await store.wal_rows() == [(2, b"two")]
        assert await store.load_kv("state") == [(b"b", b"4")]
        assert await store.load_kv("other") == [(b"a", b"3")]
        await store.checkpoint("state", [], wal_up_to=2)
        used = store.used_bytes
    async with running(config) as (delivery, store):
        assert store.used_bytes == used
        assert store.last_wal_id == 2
        await delivery.deliver(spans([4]), wal_entry=b"three")
        assert await store.wal_rows() == [(3, b"three")]


async def test_a_write_ahead_row_is_written_for_a_signal_that_goes_nowhere(tmp_path):
    config = stored(tmp_path, {"otlp": {"endpoint": "http://localhost:1", "signals": ["logs"]}})
    async with running(config) as (delivery, store):
        await delivery.deliver(spans([1]), wal_entry=b"one")
        assert store.used_bytes == 3
        assert await store.wal_rows() == [(1, b"one")]
