"""Reads the records of flags of the whole group into a table, and writes flags by hand: the Kafka side of the flags."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard_collector.api.flag_replies import FlagState
from trajectory_guard_collector.errors import StartError, UnavailableError
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.flag_table import FlagTable
from trajectory_guard_collector.fleet.records import PoisonError, operation_records
from trajectory_guard_collector.scoring.items import Key
from trajectory_guard_collector.scoring.operations import Operation, OperationKind
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
_BATCH: Final = 1_000
_POLL_S: Final = 0.1
_LOOKUP_S: Final = 15.0
_EXPIRE_EVERY_S: Final = 30.0
_PAUSE_S: Final = 1.0
_DELIVERY_S: Final = 5.0
_NETWORK: Final = {"reconnect.backoff.max.ms": 1_000, "logger": logging.getLogger("rdkafka")}


class FlagReader:
    """Reads all partitions of the flags, from the beginning, in a thread of its own, without a consumer group.

    Parameters:
        config: the configuration.
        metrics: counts records and evictions; with the rows of ``catalogue``.

    Attributes:
        table: what was read.
    """

    def __init__(self, config: FleetConfig, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        self._throttled = ThrottledLog(_log)
        self.table = FlagTable(
            config.flags.max_trajectories,
            config.guard.idle_ttl_s,
            lambda reason: metrics.add(catalogue.FLAG_EVICTIONS, trajectory_guard_eviction_reason=reason),
        )
        self._unread: set[int] | None = None  # partitions whose end was not reached yet
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flags", daemon=True)
        metrics.watch(catalogue.FLAGS, lambda: float(len(self.table)))

    @property
    def ready(self) -> bool:
        """Whether every record that was there at the start has been read."""
        return self._unread is not None and not self._unread

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_LOOKUP_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except Exception as error:  # noqa: BLE001, PERF203  gates must not be without flags for ever
                self._metrics.error("flags.reader")
                self._throttled.log(logging.ERROR, "reader", f"flags are read again from the beginning: {error}")
                self._stopping.wait(_PAUSE_S)

    def _read(self) -> None:
        topic, kafka = self._config.topics.flags, self._config.kafka
        consumer = Consumer({
            **connection(kafka), **_NETWORK, "group.id": f"{kafka.group}-flags", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        })  # fmt: skip
        try:
            partitions = set(consumer.list_topics(topic, timeout=_LOOKUP_S).topics[topic].partitions)
            if not partitions:
                raise StartError(f"topic {topic!r} (flags) is missing")
            if self._unread is None:
                self._unread = partitions
            consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
            expired = time.monotonic()
            while not self._stopping.is_set():
                for message in consumer.consume(_BATCH, _POLL_S):
                    self._take(message)
                if time.monotonic() - expired > _EXPIRE_EVERY_S:
                    self.table.expire()
                    expired = time.monotonic()
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._put(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if self._unread:
                self._unread = self._unread - {message.partition()}
        elif error.fatal():
            raise KafkaException(error)
        else:  # the client connects again by itself
            self._throttled.log(logging.WARNING, "kafka", f"flags: {error.str()}")

    def _put(self, message: Message) -> None:
        self._metrics.add(catalogue.RECORDS, topic="flags")
        try:
            self.table.put(message.value() or b"", message.timestamp()[1] / 1_000)
        except Exception as error:  # noqa: BLE001  of a newer version, or damaged: the next attempt would end here, too
            self._metrics.error("flags.record")
            place = f"{message.topic()}[{message.partition()}]@{message.offset()}"
            reason = str(error) if isinstance(error, PoisonError) else f"{type(error).__name__}: {error}"
            self._throttled.log(logging.WARNING, "poison", f"{place}: {reason}")


class KafkaFlags:
    """The flags of the whole group: see ``FlagSource``. Flags by hand become operations, in the order of the steps.

    Parameters:
        config: the configuration.
        reader: the flags.
    """

    def __init__(self, config: FleetConfig, reader: FlagReader) -> None:
        self._topic, self._reader = config.topics.operations, reader
        self._producer = Producer({
            **connection(config.kafka), **_NETWORK, "partitioner": "murmur2", "enable.idempotence": True,
            "delivery.timeout.ms": round(_DELIVERY_S * 1_000), "linger.ms": 0,
        })  # fmt: skip

    def find(self, name: str, tenant: str | None = None) -> FlagState | None:
        """See ``FlagSource``."""
        if not self._reader.ready:
            raise UnavailableError("the flags are being read")
        return self._reader.table.find(name, tenant)

    def sharing(self, name: str) -> int | None:
        """See ``FlagSource``."""
        return self._reader.table.sharing(name)

    async def raise_flag(self, key: Key, flag: HandFlag) -> dict[str, Any]:
        """See ``FlagSource``."""
        request = {"level": flag.level.value, "reason": flag.reason, "actor": flag.actor}
        return await self._write(key, OperationKind.RAISE, request)

    async def clear_flag(self, key: Key, reason: str, actor: str) -> dict[str, Any]:
        """See ``FlagSource``."""
        return await self._write(key, OperationKind.CLEAR, {"reason": reason, "actor": actor})

    async def _write(self, key: Key, kind: OperationKind, request: dict[str, Any]) -> dict[str, Any]:
        content = {"id": uuid4().hex, **request}
        (record,) = operation_records([Operation(kind, key, content)])
        await asyncio.to_thread(self._send, *record)
        return {"trajectory_id": key[1], "accepted": kind.value, **content}

    def _send(self, key: bytes, value: bytes) -> None:
        failed: list[str] = []
        confirmed = threading.Event()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error.str())
            confirmed.set()

        try:
            self._producer.produce(self._topic, value, key, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise UnavailableError(f"the flag cannot be written: {error}") from None
        until = time.monotonic() + 2 * _DELIVERY_S
        while not confirmed.is_set() and time.monotonic() < until:
            self._producer.poll(_POLL_S)
        if failed or not confirmed.is_set():
            raise UnavailableError(f"the flag is not confirmed: {failed[0] if failed else 'no broker answers'}")
