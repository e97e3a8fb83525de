"""Disk full, memory at the limit: reported to the sender, overcome, nothing lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.kit import request, tool
from tests.faults.processes import Collector, Rotel, arrived, eventually, only_full, started
from tests.faults.proxy import FINE, SILENT, proxy
from tests.faults.senders import GrpcSender, HttpSender, Sender, assert_well, ids, plain
from trajectory_guard_collector.config.models import Queue
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.gateway.storage.database import Database
from trajectory_guard_collector.gateway.storage.store import Store, StoredBatch
from trajectory_guard_collector.otlp.signals import Batch, Signal

MIB = 1 << 20
DISK_MIB = 32


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few MiB in memory."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


async def fills_up_and_recovers(collector: Collector, rotel: Rotel) -> None:
    """Send more than fits while rotel is down; start rotel; everything arrives, each refused request too."""
    senders: list[Sender] = [GrpcSender(collector.grpc_port), HttpSender(collector.url())]
    requests = [plain(f"full-{at}", 10, padding=100_000) for at in range(60)]
    assert sum(map(len, requests)) > 1.5 * DISK_MIB * MIB
    sending = asyncio.gather(*(senders[at % 2].send(data) for at, data in enumerate(requests)))
    await eventually(lambda: (collector.ready() or "").startswith("queue.storage: "), "the disk is full")
    await eventually(lambda: senders[0].refused["RESOURCE_EXHAUSTED"] > 0 < senders[1].refused["429"], "senders know")
    assert not sending.done()
    assert collector.metric("otelcol_exporter_enqueue_failed_spans_total") >= 10
    assert collector.metric("otelcol_receiver_refused_spans_total", transport="grpc") >= 10
    assert collector.metric("otelcol_receiver_refused_spans_total", transport="http") >= 10
    async with started(rotel):
        await sending
        await arrived(rotel, {one for data in requests for one in ids(data)})
        assert collector.metric("otelcol_receiver_accepted_spans_total") == 10 * len(requests)
        assert collector.errors() == 0
        await eventually(lambda: collector.ready() is None, "there is room again")
        await assert_well(collector, "after-the-full-disk")
        for sender in senders:
            await sender.close()


async def test_a_full_disk_is_reported_and_overcome(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        rotel = Rotel(tmp_path)
        exporters = {"otlp": {"endpoint": rotel.grpc_url}}
        async with started(Collector(tmp_path, exporters, queue={"storage": str(disk)})) as collector:
            await fills_up_and_recovers(collector, rotel)
            assert collector.running
            said = collector.log.read_text()
            assert "queue.storage: cannot write to" in said
            assert "collector.db can be written again" in said


async def test_a_disk_that_fails_without_a_word_is_overcome(tmp_path: Path) -> None:
    """A limit that the file system does not tell of: what fits goes on, what does not is refused until there is room."""
    rotel = Rotel(tmp_path)
    queue = {"storage": str(tmp_path / "queue")}
    async with started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, queue=queue)) as collector:
        collector.limit_files(6 * MIB)
        sender, small = GrpcSender(collector.grpc_port), [plain(f"s{at}", 10, padding=20_000) for at in range(15)]
        large = [plain(f"l{at}", 10, padding=800_000) for at in range(4)]
        await asyncio.gather(*(sender.send(data) for data in small))
        sending = asyncio.gather(*(sender.send(data) for data in large))
        await eventually(lambda: (collector.ready() or "").startswith("queue.storage: "), "no file may grow")
        async with started(rotel):
            await arrived(rotel, {one for data in small for one in ids(data)})
            await eventually(lambda: collector.metric("otelcol_exporter_queue_size") == 0, "what was sent is deleted")
            await eventually(lambda: sender.refused["RESOURCE_EXHAUSTED"] > 0, "the sender knows")
            assert not sending.done()
            collector.limit_files(-1)
            await sending
            await arrived(rotel, {one for data in large for one in ids(data)})
            await eventually(lambda: collector.ready() is None, "ready again")
            await sender.close()


async def fill(collector: Collector) -> set[str]:
    """Send until the first refusal; ids of the spans that were taken."""
    sender = GrpcSender(collector.grpc_port)
    taken: set[str] = set()
    for at in range(100):
        data = plain(f"r{at}", 10, padding=20_000)
        try:
            await sender.once(data)
        except grpc.aio.AioRpcError:
            return taken
        taken |= ids(data)
    raise AssertionError("everything fits")


@only_full
async def test_what_was_taken_before_the_disk_was_full_survives_a_kill(tmp_path: Path) -> None:
    rotel = Rotel(tmp_path)
    queue = {"storage": str(tmp_path / "queue")}
    async with started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, queue=queue)) as collector:
        collector.limit_files(6 * MIB)
        taken = await fill(collector)
        collector.kill()
        async with started(rotel):
            await asyncio.to_thread(collector.start)
            await arrived(rotel, taken)
            assert taken <= rotel.ids().keys()


def fill_disk(disk: Path, left: int) -> None:
    """As another program does: so many bytes are left."""
    free = os.statvfs(disk)
    with (disk / "of-another-program").open("wb") as file:
        file.write(bytes(free.f_bavail * free.f_frsize - left))


@pytest.mark.parametrize("left", [2 * MIB, 3 * MIB, 5 * MIB])
@pytest.mark.parametrize(("count", "size"), [(60, 100_000), (3, 3_000_000), (200, 20_000)])
async def test_what_another_program_leaves_of_the_disk_is_enough_to_delete_what_was_delivered(
    tmp_path: Path, left: int, count: int, size: int
) -> None:
    """The store used up the rest to move its log into the file: nothing could be deleted, and the queue stayed full."""
    with small_disk(tmp_path / "disk") as disk:
        store, batch = Store(Queue(storage=str(disk / "queue"))), Batch(Signal.TRACES, os.urandom(size), 1)
        await store.start()
        for _ in range(count):
            await store.put(batch, ["otlp"])
        fill_disk(disk, left)
        with pytest.raises(OverloadedError, match="full"):
            await store.put(Batch(Signal.TRACES, bytes(DISK_MIB * MIB), 1), ["otlp"])
        sent: list[StoredBatch] = []
        while rows := await store.next_batches("otlp", [Signal.TRACES], {Signal.TRACES: len(sent)}, MIB):
            store.acknowledge("otlp", rows)
            sent += rows
        assert [row.batch.data for row in sent] == [batch.data] * count
        await eventually(lambda: store.used_bytes == 0 and store.ready() is None, "there is room again")
        await store.put(batch, ["otlp"])
        await store.stop()
        await store.start()  # what was delivered is not sent again after a restart
        assert [one.batches for one in await store.waiting()] == [1]
        await store.stop()


def test_unused_space_is_given_back_in_large_parts(tmp_path: Path) -> None:
    """Page by page, each in a transaction of its own, a drained gigabyte would take hours."""
    database = Database(tmp_path, fsync=False)
    large = Batch(Signal.TRACES, bytes(MIB), 1)
    rows = [("traces", database.put(large, ["otlp"], None) or number) for number in range(1, 33)]
    database.transact([lambda store: store.acknowledge("otlp", rows)])
    sizes = []
    while database.give_back():
        database.shrink_log()
        sizes.append(database.file.stat().st_size)
    assert sizes[0] - sizes[1] > 3.9 * MIB
    assert database.file.stat().st_size < 24 * MIB
    database.close()


async def test_the_configured_size_on_disk_is_kept_to(tmp_path: Path) -> None:
    rotel = Rotel(tmp_path)
    queue = {"storage": str(tmp_path / "queue"), "max_size_mib": 2.0}
    async with started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, queue=queue)) as collector:
        sender, requests = GrpcSender(collector.grpc_port), [plain(f"r{at}", 10, padding=10_000) for at in range(40)]
        sending = asyncio.gather(*(sender.send(data) for data in requests))
        await eventually(lambda: collector.metric("otelcol_exporter_queue_size") > 1.8 * MIB, "the queue is full")
        await eventually(lambda: sender.refused["RESOURCE_EXHAUSTED"] > 20, "the senders hear of it")
        assert collector.metric("otelcol_exporter_queue_size") <= 2.0 * MIB
        assert collector.metric("otelcol_exporter_queue_capacity") == 2.0 * MIB
        assert sum(file.stat().st_size for file in (tmp_path / "queue").iterdir()) < 24 * MIB
        async with started(rotel):
            await sending
            await arrived(rotel, {one for data in requests for one in ids(data)})
            await sender.close()


async def test_at_the_memory_limit_data_is_refused_until_there_is_room(tmp_path: Path) -> None:
    async with started(Rotel(tmp_path)) as rotel, proxy(rotel.grpc_port) as between:
        exporters = {"otlp": {"endpoint": f"http://127.0.0.1:{between.port}", "timeout_s": 2.0, "compression": "none"}}
        limiter = {"limit_mib": 180, "spike_limit_mib": 40, "check_interval_s": 0.1}
        async with started(Collector(tmp_path, exporters, memory_limiter=limiter)) as collector:
            before = collector.held()
            senders: list[Sender] = [GrpcSender(collector.grpc_port), HttpSender(collector.url())]
            requests = [plain(f"memory-{at}", 40, padding=50_000) for at in range(80)]
            assert sum(map(len, requests)) > 150 * MIB
            between.set(SILENT)
            sending = asyncio.gather(*(senders[at % 2].send(data) for at, data in enumerate(requests)))
            await eventually(
                lambda: senders[0].refused["RESOURCE_EXHAUSTED"] > 0 < senders[1].refused["429"],
                "both senders were refused",
            )
            await eventually(lambda: (collector.ready() or "").startswith("memory: "), "not ready")
            for status in ("RESOURCE_EXHAUSTED", "429"):
                assert collector.metric("otelcol_receiver_requests_total", status=status) > 0
            between.set(FINE)
            await sending
            await arrived(rotel, {one for data in requests for one in ids(data)})
            assert collector.peak_rss() < 180 * MIB, f"{collector.peak_rss() / MIB:.0f} MiB, hard limit 180"
            await eventually(lambda: collector.ready() is None, "ready again")
            await assert_well(collector, "after-the-memory-limit")
            for sender in senders:
                await sender.close()
            await eventually(lambda: collector.held().rss < before.rss + 80 * MIB, "memory is given back")
            await eventually(lambda: collector.held().fds <= before.fds + 4, "descriptors are given back")
            assert collector.errors() == 0


def _long_step(conversation: int, at: int) -> Span:
    name = f"c{conversation}"
    return tool(f"{name}/{at}", {"page": at, "text": "x" * 2_000}, f"page {at}", conversation=name, trace=name, at=at)


@pytest.mark.nightly
async def test_memory_that_trajectories_hold_is_given_back_at_the_limit(tmp_path: Path) -> None:
    """Evaluated steps hold memory too: if none of it were given back, data would be refused for ever."""
    limiter = {"limit_mib": 160, "spike_limit_mib": 32, "check_interval_s": 0.1}
    async with started(Collector(tmp_path, {"debug": {}}, memory_limiter=limiter)) as collector:
        sender, most, sent = GrpcSender(collector.grpc_port), 0, 0
        reached = False  # how soon depends on the machine
        while sent < 160 or (not reached and sent < 640):
            steps = [_long_step(number, of) for of in range(sent, sent + 5) for number in range(200)]
            await sender.send(request(*steps), within_s=20.0)
            sent += 5
            most = max(most, collector.held().rss)
            reached = reached or "refusing data" in collector.log.read_text()
        assert reached, f"{most / MIB:.0f} MiB are not enough for this test"
        assert most < 190 * MIB, f"{most / MIB:.0f} MiB"
        await eventually(lambda: collector.flag("c1")["steps"] == sent, "scores are kept")
        await eventually(lambda: collector.ready() is None, "ready again")
        await sender.close()
        await assert_well(collector, "after-the-memory-limit")
        assert collector.errors() == 0
