"""Delivery with storage: a batch is acknowledged once it is on disk, and sent from there."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from typing import Final

from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.gateway.exporters.sender import GaveUpError, Sender
from trajectory_guard_collector.gateway.storage.store import Store, StoredBatch, WaitingBatches, to_the_end
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1024 * 1024
_PAUSE_AFTER_ERROR_S: Final = 1.0


class DurableQueue:
    """Sends the batches that wait on disk for one exporter, oldest first, with a fixed number of consumers.

    Waiting requests of one signal are sent together up to ``max_batch_mib``: concatenated requests are one request.
    The queue retries a batch until the backend has it or ``max_elapsed_time_s`` is over. Only the batches being sent
    are in memory. ``stop`` continues to send as long as the backend accepts; the rest is safe on disk.

    Parameters:
        sender: sends to the backend.
        config: ``sending_queue`` and ``retry_on_failure``.
        store: holds the waiting batches.
        metrics: counters and gauges.
    """

    def __init__(self, sender: Sender, config: ExporterConfig, store: Store, metrics: Metrics) -> None:
        self.sender = sender
        self._max_bytes = int(config.sending_queue.max_batch_mib * _MIB)
        self._num_consumers = config.sending_queue.num_consumers
        self._max_elapsed_s = config.retry_on_failure.max_elapsed_time_s or math.inf
        self._store = store
        self._metrics = metrics
        self._taken: dict[Signal, int] = {}
        self._reading = asyncio.Lock()
        self._wakeup = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failing = False
        self._consumers: list[asyncio.Task[None]] = []
        self._waiting_bytes = 0
        self._in_flight = 0
        metrics.watch(catalogue.QUEUE_SIZE, lambda: max(0, self._waiting_bytes), exporter=sender.name)
        metrics.watch(catalogue.QUEUE_CAPACITY, lambda: store.capacity_bytes, exporter=sender.name)
        metrics.watch(catalogue.IN_FLIGHT, lambda: self._in_flight, exporter=sender.name)

    async def start(self) -> None:
        """Start to send, the batches of an earlier run first."""
        self._waiting_bytes = await self._store.pending_bytes(self.sender.name)
        self._consumers = [asyncio.create_task(self._consume()) for _ in range(self._num_consumers)]

    async def stop(self, timeout_s: float) -> None:
        """Send waiting batches until the backend fails or ``timeout_s`` seconds are over; the rest stays on disk."""
        self._stopping.set()
        self._wakeup.set()
        if self._consumers:
            await asyncio.wait(self._consumers, timeout=timeout_s)
        for consumer in self._consumers:
            consumer.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        if self._consumers and self._waiting_bytes > 0:
            _log.info("exporter %s: %d bytes stay in the queue on disk", self.sender.name, self._waiting_bytes)
        self._consumers = []

    def wake(self, batch: Batch) -> None:
        """Notify the queue that a batch was written for this exporter."""
        self._waiting_bytes += len(batch.data)
        self._wakeup.set()

    async def _consume(self) -> None:
        while await self._work():
            pass

    async def _work(self) -> bool:
        """Send the next rows; False once the queue has stopped."""
        try:
            rows = await self._take()
            if rows:
                await self._send(rows)
        except Exception as error:  # noqa: BLE001  the queue continues
            self._metrics.error(f"queue of {self.sender.name}")
            _log.error("exporter %s: cannot process the queue: %s", self.sender.name, error)
            if self._stopping.is_set():
                return False
            await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
            return True
        return bool(rows)

    async def _take(self) -> list[StoredBatch]:
        """The next rows, once there are any; none when stopping."""
        while not self._failing:
            async with self._reading:
                # Before reading: a batch that is written meanwhile sets it again.
                self._wakeup.clear()
                rows = await self._store.next_batches(
                    self.sender.name, self.sender.exporter.signals, self._taken, self._max_bytes
                )
                if rows:
                    self._taken[rows[-1].batch.signal] = rows[-1].id
                    self._wakeup.set()
                    return rows
            if self._stopping.is_set():
                self._wakeup.set()
                return []
            await self._wakeup.wait()
        return []

    async def _send(self, rows: Sequence[StoredBatch]) -> None:
        self._in_flight += 1
        try:
            give_up_at = asyncio.get_running_loop().time() + self._max_elapsed_s
            joined = [row.batch for row in rows]
            await self.sender.send(_join(rows), give_up_at=lambda: give_up_at, stop=self._stopping, joined=joined)
        except GaveUpError as error:
            if self._stopping.is_set():
                self._failing = True
                return
            self._give_up(rows[0].batch.signal, error)
        finally:
            self._in_flight -= 1
        self._store.acknowledge(self.sender.name, rows)
        self._waiting_bytes -= sum(len(row.batch.data) for row in rows)

    def _give_up(self, signal: Signal, error: GaveUpError) -> None:
        self._metrics.add(catalogue.SEND_FAILED[signal], error.items, exporter=self.sender.name)
        _log.error(
            "exporter %s: %d %s were dropped after max_elapsed_time_s: %s",
            self.sender.name,
            error.items,
            signal.items,
            error,
        )


class StoredDelivery:
    """Writes each batch to disk, once for all exporters that take its signal.

    Parameters:
        senders: one an exporter, with its configuration.
        store: open when ``start`` is called.
        metrics: counters and gauges.
        drop_unrouted: exporters whose batches are dropped if the configuration no longer has them.
    """

    def __init__(
        self,
        senders: Sequence[tuple[Sender, ExporterConfig]],
        store: Store,
        metrics: Metrics,
        *,
        drop_unrouted: Collection[str] = (),
    ) -> None:
        self._drop_unrouted = drop_unrouted
        self._queues = [DurableQueue(sender, config, store, metrics) for sender, config in senders]
        self._store = store
        self._metrics = metrics

    async def start(self) -> None:
        """Start to send, the batches of an earlier run first. Warns about batches of exporters that no longer exist."""
        routes = {(queue.sender.name, signal) for queue in self._queues for signal in queue.sender.exporter.signals}
        unrouted = [one for one in await self._store.waiting() if (one.exporter, one.signal) not in routes]
        dropped = [one for one in unrouted if one.exporter in self._drop_unrouted]
        if dropped:
            await self._store.drop(dropped)
        for one in dropped:
            self._metrics.add(catalogue.SEND_FAILED[one.signal], one.items, exporter=one.exporter)
            _log.warning(
                "exporters.%s: %d waiting batches of %s were dropped, as queue.drop_unrouted says",
                one.exporter, one.batches, one.signal,
            )  # fmt: skip
        kept = [one for one in unrouted if one not in dropped]
        for name in sorted({one.exporter for one in kept}):
            self._report_unrouted(name, [one for one in kept if one.exporter == name])
        for queue in self._queues:
            await queue.start()

    def _report_unrouted(self, name: str, waiting: Sequence[WaitingBatches]) -> None:
        """Warn about batches that no exporter takes any more; they count against ``max_size_mib``."""
        size = sum(one.size for one in waiting)
        _log.warning(
            "exporters.%s is not configured for %s any more: %d waiting batches (%.1f MiB) stay on disk; configure it"
            " again under that name to deliver them, or name it in queue.drop_unrouted to drop them",
            name, ", ".join(one.signal for one in waiting), sum(one.batches for one in waiting), size / _MIB,
        )  # fmt: skip
        if all(queue.sender.name != name for queue in self._queues):
            self._metrics.watch(catalogue.QUEUE_SIZE, lambda: size, exporter=name)
            self._metrics.watch(catalogue.QUEUE_CAPACITY, lambda: self._store.capacity_bytes, exporter=name)
            self._metrics.watch(catalogue.IN_FLIGHT, lambda: 0, exporter=name)

    async def stop(self, timeout_s: float) -> None:
        """Send waiting batches to backends that accept them, within ``timeout_s`` seconds; the rest stays on disk."""
        await asyncio.gather(*(queue.stop(timeout_s) for queue in self._queues))

    def ready(self) -> str | None:
        """None if batches can be written, else the reason why not."""
        return self._store.ready()

    async def deliver(self, batch: Batch, key: bytes, wal_entry: bytes | None) -> None:
        """Return once the batch and its write-ahead row are on disk.

        Raises:
            OverloadedError: the disk or the queue is full; nothing was written.
        """
        await to_the_end(self._deliver(batch, wal_entry))

    async def _deliver(self, batch: Batch, wal_entry: bytes | None) -> None:
        queues = [queue for queue in self._queues if queue.sender.takes(batch.signal)]
        names = [queue.sender.name for queue in queues]
        try:
            await self._store.put(batch, names, wal_entry)
        except OverloadedError:
            for name in names:
                self._metrics.add(catalogue.ENQUEUE_FAILED[batch.signal], batch.items, exporter=name)
            raise
        for queue in queues:
            queue.wake(batch)


def _join(rows: Sequence[StoredBatch]) -> Batch:
    if len(rows) == 1:
        return rows[0].batch
    data = b"".join(row.batch.data for row in rows)
    return Batch(rows[0].batch.signal, data, sum(row.batch.items for row in rows))
