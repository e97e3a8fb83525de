"""Delivery: at least once, to every exporter that takes the signal. Without storage, a batch is acknowledged once every
backend has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard_collector.config.models import CollectorConfig, SendingQueue
from trajectory_guard_collector.errors import OverloadedError, UnavailableError
from trajectory_guard_collector.gateway.delivery.persistent import StoredDelivery
from trajectory_guard_collector.gateway.exporters import build_exporters
from trajectory_guard_collector.gateway.exporters.sender import GaveUpError, Sender
from trajectory_guard_collector.gateway.storage.store import Store
from trajectory_guard_collector.otlp.replies import RejectedItems
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
MAX_REMEMBERED: Final = 8192
RETRY_AFTER_S: Final = 1.0


class DeliveryStrategy(Protocol):
    """Delivery with or without storage: ``StoredDelivery`` or ``DirectDelivery``."""

    async def start(self) -> None:
        """Start to send."""

    async def stop(self, timeout_s: float) -> None:
        """Send waiting batches, within ``timeout_s`` seconds."""

    def ready(self) -> str | None:
        """None if batches are accepted, else the reason why not."""

    async def deliver(self, batch: Batch, key: bytes, wal_entry: bytes | None) -> None:
        """Return when the batch is safe to acknowledge; errors as of ``Delivery.deliver``."""


class Delivery:
    """Accepts batches and delivers them to the backends.

    Without a store ``deliver`` returns once every backend has the batch; with one, once it is on disk. Items
    that a backend refuses permanently are dropped, counted and logged; the sender gets no error, since it must not send
    them again.

    Parameters:
        config: ``exporters`` and ``queue``.
        metrics: counters and gauges.
        via: names the collectors that a request of a signal has passed.
        write: receives the lines of debug exporters.
        store: holds waiting batches, if ``queue.storage`` is set. Its owner starts it before and stops it after.

    Raises:
        ValueError: an exporter's section cannot be used; names the key.
    """

    def __init__(
        self,
        config: CollectorConfig,
        metrics: Metrics,
        store: Store | None = None,
        *,
        via: Callable[[Signal], str] = lambda _: "",
        write: Callable[[str], object] = print,
    ) -> None:
        log = ThrottledLog(_log)
        self._exporters = build_exporters(config.exporters, log, via, write)
        self._unrouted: set[Signal] = set()
        self._running = False
        self._started = False
        senders = [
            (Sender(exporter, config.exporters[exporter.name].retry_on_failure, metrics, log), exporter.name)
            for exporter in self._exporters
        ]
        self._strategy: DeliveryStrategy
        if store is None:
            queues = [(sender, config.exporters[name].sending_queue) for sender, name in senders]
            pauses_s = {name: config.exporters[name].retry_on_failure.max_interval_s for _, name in senders}
            self._strategy = DirectDelivery(queues, config.queue.deadline_s, metrics, pauses_s)
        else:
            self._strategy = StoredDelivery(
                [(sender, config.exporters[name]) for sender, name in senders],
                store,
                metrics,
                drop_unrouted=config.queue.drop_unrouted,
            )

    async def start(self) -> None:
        """Create the clients and start to send; does not wait for backends."""
        if self._started:
            return
        self._started = True
        for exporter in self._exporters:
            await exporter.start()
        await self._strategy.start()
        self._running = True

    async def deliver(self, batch: Batch, *, key: bytes = b"", wal_entry: bytes | None = None) -> RejectedItems | None:
        """Return when the batch is safe to acknowledge.

        Parameters:
            batch: the batch to send.
            key: digest of the request as it came, the same when the sender sends it again. Backends that have
                the batch already do not get it twice; without a key they may.
            wal_entry: row to write in the same transaction as the batch; ignored without a store.

        Returns:
            Metrics or logs that no exporter takes: they are dropped, and their sender must know. None for spans, which
            were evaluated.

        Raises:
            OverloadedError: a queue or the disk is full; the sender should try again.
            UnavailableError: a backend did not take the batch in time, or delivery is stopping.
        """
        if not self._running:
            raise UnavailableError("shutting down")
        if not any(batch.signal in exporter.signals for exporter in self._exporters):
            self._warn_unrouted(batch.signal)
            if batch.items and batch.signal is not Signal.TRACES:
                return RejectedItems(batch.items, f"no exporter of this collector takes {batch.signal}")
        await self._strategy.deliver(batch, key, wal_entry)
        return None

    async def stop(self, timeout_s: float) -> None:
        """Refuse further batches, send waiting ones within ``timeout_s`` seconds, close connections.

        Without a store the senders of the remaining batches are asked to retry; with one these stay on disk, and a
        failing backend is not waited for. Idempotent; may be called without ``start``.
        """
        self._running = False
        if not self._started:
            return
        self._started = False
        await self._strategy.stop(timeout_s)
        await asyncio.gather(*(exporter.stop() for exporter in self._exporters), return_exceptions=True)

    def ready(self) -> str | None:
        """None if batches are accepted, else the reason why not."""
        return self._strategy.ready() if self._running else "delivery is not running"

    def _warn_unrouted(self, signal: Signal) -> None:
        if signal not in self._unrouted:
            self._unrouted.add(signal)
            _log.warning("no exporter takes %s: they are dropped", signal)


class Failure(NamedTuple):
    """The reason why a backend does not have a batch.

    Fields:
        reason: description of the failure.
        retry_after_s: seconds the backend asked to wait, None if it did not.
    """

    reason: str
    retry_after_s: float | None = None


_STOPPING: Final = Failure("shutting down")


class PendingExport:
    """An export of a batch to one backend that waits, or its outcome.

    It refers neither to the batch nor to an exception, whose traceback would keep the batch alive: exports are kept
    long after they end.

    Parameters:
        give_up_at: time of the event loop's clock after which no attempt begins; moved if the sender sends the
            batch again before that.
    """

    def __init__(self, give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.outcome: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    def resolve(self, failure: Failure | None) -> None:
        """Set the outcome: None if the backend has the batch. Only the first call counts."""
        if not self.outcome.done():
            self.outcome.set_result(failure)

    @property
    def failure(self) -> Failure | None:
        """The reason why the backend does not have the batch; None if it has it or the export is still running."""
        return self.outcome.result() if self.outcome.done() else None


class MemoryQueue:
    """The queue of one exporter in memory: bounded, with a fixed number of consumers.

    Parameters:
        sender: sends to the backend.
        config: ``queue_size`` and ``num_consumers``.
        metrics: counters and gauges.
    """

    def __init__(self, sender: Sender, config: SendingQueue, metrics: Metrics) -> None:
        self.sender = sender
        self._config = config
        self._metrics = metrics
        self._entries: asyncio.Queue[tuple[Batch, PendingExport]] = asyncio.Queue(config.queue_size)
        self._consumers: list[asyncio.Task[None]] = []
        self._in_flight = 0
        metrics.watch(catalogue.QUEUE_SIZE, self._entries.qsize, exporter=sender.name)
        metrics.watch(catalogue.QUEUE_CAPACITY, lambda: config.queue_size, exporter=sender.name)
        metrics.watch(catalogue.IN_FLIGHT, lambda: self._in_flight, exporter=sender.name)

    @property
    def full(self) -> bool:
        """Whether no further batch can wait."""
        return self._entries.full()

    def start(self) -> None:
        """Start to send."""
        self._consumers = [asyncio.create_task(self._consume()) for _ in range(self._config.num_consumers)]

    def put(self, batch: Batch, give_up_at: float) -> PendingExport | None:
        """Put a batch into the queue; None if the queue is full."""
        if self.full:
            self._metrics.add(catalogue.ENQUEUE_FAILED[batch.signal], batch.items, exporter=self.sender.name)
            return None
        pending = PendingExport(give_up_at)
        self._entries.put_nowait((batch, pending))
        return pending

    async def stop(self, timeout_s: float) -> None:
        """Wait for the queued batches, then give up the rest."""
        if self._consumers:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._entries.join(), timeout_s)
        for consumer in self._consumers:
            consumer.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        self._consumers = []
        while not self._entries.empty():
            self._entries.get_nowait()[1].resolve(_STOPPING)

    async def _consume(self) -> None:
        while True:
            await self._work()

    async def _work(self) -> None:
        batch, pending = await self._entries.get()
        self._in_flight += 1
        try:
            pending.resolve(await self._send(batch, pending))
        finally:
            self._in_flight -= 1
            pending.resolve(_STOPPING)
            self._entries.task_done()

    async def _send(self, batch: Batch, pending: PendingExport) -> Failure | None:
        if asyncio.get_running_loop().time() > pending.give_up_at:
            return Failure("waited too long in the queue")
        try:
            await self.sender.send(batch, give_up_at=lambda: pending.give_up_at)
        except GaveUpError as error:
            return Failure(str(error), error.retry_after_s)
        except Exception as error:  # noqa: BLE001  the failure is reported to the sender, and the consumer continues
            self._metrics.error(f"queue of {self.sender.name}")
            _log.exception("exporter %s: cannot send a batch", self.sender.name)
            return Failure(str(error))
        return None


class DirectDelivery:
    """Sends each batch to all backends at once and waits for all of them.

    If some backends have a batch and others do not in time, the sender is asked to retry. For the 8,192 batches of this
    kind seen last, the delivery remembers by the batch's key which exporters have the batch or are sending it; they do
    not get it again.

    Parameters:
        senders: one an exporter, with the configuration of its queue.
        deadline_s: seconds within which the backends must have a batch.
        metrics: counters and gauges.
        pauses_s: by exporter, seconds after a refusal for which its backend counts as down.
    """

    def __init__(
        self,
        senders: Sequence[tuple[Sender, SendingQueue]],
        deadline_s: float,
        metrics: Metrics,
        pauses_s: Mapping[str, float],
    ) -> None:
        self._pauses_s = pauses_s
        self._down: dict[str, float] = {}  # until when, by the clock of the event loop
        self._queues = [MemoryQueue(sender, config, metrics) for sender, config in senders]
        self._deadline_s = deadline_s
        self._remembered: BoundedTable[tuple[Signal, bytes], dict[str, PendingExport]] = BoundedTable(MAX_REMEMBERED)

    async def start(self) -> None:
        """Start to send."""
        for queue in self._queues:
            queue.start()

    async def stop(self, timeout_s: float) -> None:
        """Wait for running exports, at most ``timeout_s`` seconds."""
        await asyncio.gather(*(queue.stop(timeout_s) for queue in self._queues))

    def ready(self) -> str | None:
        """None if requests are accepted; else the names of full queues, or of the backends that hold all requests up.

        A backend that did not take the last request counts as down for a while only: where nobody sends to a collector
        that is not ready, no request would show that the backend is back.
        """
        full = [queue.sender.name for queue in self._queues if queue.full]
        if full:
            return f"queue full: {', '.join(full)}"
        now = asyncio.get_running_loop().time()
        down = [queue.sender for queue in self._queues if self._down.get(queue.sender.name, now) > now]
        refused = {signal for sender in down for signal in Signal if sender.takes(signal)}
        taken = {signal for queue in self._queues for signal in Signal if queue.sender.takes(signal)}
        return f"no backend: {', '.join(sender.name for sender in down)}" if down and refused == taken else None

    async def deliver(self, batch: Batch, key: bytes, wal_entry: bytes | None) -> None:
        """Return once every backend has the batch. Ignores the write-ahead row, since there is no storage.

        Raises:
            OverloadedError: a queue is full.
            UnavailableError: a backend did not take the batch in time.
        """
        exports, full = self._submit(batch, key)
        if full:
            raise OverloadedError(f"queue full: {', '.join(full)}", retry_after_s=RETRY_AFTER_S)
        if exports:
            await asyncio.wait([pending.outcome for pending in exports.values()], timeout=self._deadline_s)
        for name, pending in exports.items():
            if pending.outcome.done() and pending.failure is None:
                self._down.pop(name, None)
            else:
                self._down[name] = asyncio.get_running_loop().time() + self._pauses_s[name]
        _raise_failures(exports)
        self._remembered.pop((batch.signal, key), None)

    def _submit(self, batch: Batch, key: bytes) -> tuple[dict[str, PendingExport], list[str]]:
        give_up_at = asyncio.get_running_loop().time() + self._deadline_s
        exports = self._recall(batch, key, give_up_at)
        full = []
        for queue in self._queues:
            name = queue.sender.name
            if name in exports or not queue.sender.takes(batch.signal):
                continue
            pending = queue.put(batch, give_up_at)
            if pending is None:
                full.append(name)
            else:
                exports[name] = pending
        self._remember(batch, key, exports)
        return exports, full

    def _recall(self, batch: Batch, key: bytes, give_up_at: float) -> dict[str, PendingExport]:
        remembered = self._remembered.get((batch.signal, key), {})
        exports = {name: pending for name, pending in remembered.items() if pending.failure is None}
        for pending in exports.values():
            pending.give_up_at = give_up_at
        return exports

    def _remember(self, batch: Batch, key: bytes, exports: dict[str, PendingExport]) -> None:
        if not key or not exports:
            return
        self._remembered[batch.signal, key] = exports


def _raise_failures(exports: Mapping[str, PendingExport]) -> None:
    failures = {name: pending.failure for name, pending in exports.items() if pending.failure is not None}
    reasons = [f"{name}: {failure.reason}" for name, failure in failures.items()]
    reasons += [f"{name}: no reply in time" for name, pending in exports.items() if not pending.outcome.done()]
    if reasons:
        pauses_s = [failure.retry_after_s for failure in failures.values() if failure.retry_after_s]
        raise UnavailableError("; ".join(reasons), retry_after_s=max(pauses_s, default=None))
