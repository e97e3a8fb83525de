"""Delivery: at least once, to every exporter that takes the signal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.gateway.delivery.memory import DirectDelivery
from trajectory_guard_collector.gateway.delivery.persistent import StoredDelivery
from trajectory_guard_collector.gateway.exporters import build_exporters
from trajectory_guard_collector.gateway.exporters.sender import Sender
from trajectory_guard_collector.gateway.storage.store import Store
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)


class DeliveryStrategy(Protocol):
    """Delivery with or without storage: ``StoredDelivery`` or ``DirectDelivery``."""

    async def start(self) -> None:
        """Start to send."""

    async def stop(self, timeout_s: float) -> None:
        """Send waiting batches, within ``timeout_s`` seconds."""

    def ready(self) -> str | None:
        """None if batches are accepted, else the reason why not."""

    async def deliver(self, batch: Batch, key: bytes, journal: bytes | None) -> None:
        """Return when the batch is safe to acknowledge; errors as of ``Delivery.deliver``."""


class Delivery:
    """Accepts batches and delivers them to the backends.

    Without a store ``deliver`` returns once every backend has the batch; with one, once it is on disk. Items
    that a backend refuses permanently are dropped, counted and logged; the sender gets no error, since it must not send
    them again.

    Parameters:
        config: ``exporters`` and ``queue``.
        metrics: counters and gauges.
        via: names the collectors that a request has gone through.
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
        via: Callable[[], str] = lambda: "",
    ) -> None:
        log = ThrottledLog(_log)
        self._exporters = build_exporters(config.exporters, log, via)
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
            self._strategy = DirectDelivery(queues, config.queue.deadline_s, metrics)
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

    async def deliver(self, batch: Batch, *, key: bytes = b"", journal: bytes | None = None) -> None:
        """Return when the batch is safe to acknowledge.

        Parameters:
            batch: the batch to send.
            key: digest of the request as it came, the same when the sender sends it again. Backends that have
                the batch already do not get it twice; without a key they may.
            journal: row to write in the same transaction as the batch; ignored without a store.

        Raises:
            OverloadedError: a queue or the disk is full; the sender should try again.
            UnavailableError: a backend did not take the batch in time, or delivery is stopping.
        """
        if not self._running:
            raise UnavailableError("shutting down")
        if not any(batch.signal in exporter.signals for exporter in self._exporters):
            self._warn_unrouted(batch.signal)
        await self._strategy.deliver(batch, key, journal)

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
            _log.warning("no exporter takes %s: they are accepted and dropped", signal)
