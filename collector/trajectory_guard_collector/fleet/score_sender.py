"""``trajectory-guard-fleet scores``: sends the records of scores to Langfuse, and commits each that got an answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.admin import Topology
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.records import PoisonError, RecordPlace, SendError, dead_letter
from trajectory_guard_collector.fleet.score_delivery import ScoreDelivery, StoppedError
from trajectory_guard_collector.fleet.score_records import score_of
from trajectory_guard_collector.fleet.statistics import is_member, lag_by_role, not_committed
from trajectory_guard_collector.fleet.topics import MAX_MESSAGE_BYTES
from trajectory_guard_collector.scoring.langfuse import connection_of
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
_MAX_READ: Final = 150
_POLL_S: Final = 0.5
_FLUSH_S: Final = 30.0
_STATISTICS_MS: Final = 2_000
_MAX_POLL_S: Final = 300.0


class ScoreForwarder:
    """A member of the group that sends scores.

    Parameters:
        config: the configuration, with the keys of the project.
        metrics: counts and measures; with the rows of ``catalogue``.

    Raises:
        ValueError: a file of the ``tls`` section cannot be read.
    """

    def __init__(self, config: FleetConfig, metrics: Metrics) -> None:
        kafka, langfuse, self._topics = config.kafka, config.langfuse, config.topics
        self._config, self._most_letter_bytes = config, MAX_MESSAGE_BYTES
        self._metrics, self._throttled = metrics, ThrottledLog(_log)
        self._stopping = threading.Event()
        self._joined = False
        self._last_sign = time.monotonic()
        self._lag: dict[str, float] = {}
        self._ahead: list[Message] = []
        network = {**connection(kafka), "reconnect.backoff.max.ms": 1_000, "logger": logging.getLogger("rdkafka")}
        self._consumer = Consumer({
            **network, "group.id": f"{kafka.group}-scores",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "session.timeout.ms": round(kafka.session_timeout_s * 1_000), "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._read_statistics, "max.poll.interval.ms": round(_MAX_POLL_S * 1_000),
            "fetch.wait.max.ms": 50,
        })  # fmt: skip
        self._producer = Producer({**network, "partitioner": "murmur2", "message.max.bytes": MAX_MESSAGE_BYTES})
        self._unwritten: list[KafkaError] = []
        self._delivery = ScoreDelivery(
            connection_of("langfuse", langfuse), langfuse.retry_on_failure, langfuse.batches_per_minute, metrics,
            self._wait,
        )  # fmt: skip
        metrics.watch(catalogue.READY, lambda: float(self.ready))
        metrics.watch_group(catalogue.LAG, lambda: self._lag)

    @property
    def ready(self) -> bool:
        """Whether the program is a member of its group."""
        return self._joined

    @property
    def alive(self) -> bool:
        """Whether the brokers were polled within the time after which they exclude a member."""
        return time.monotonic() - self._last_sign < _MAX_POLL_S

    def stop(self) -> None:
        """End ``run``; callable from any thread and from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Send scores until ``stop``. The next member sends again those that were not committed.

        Raises:
            KafkaException: the brokers refuse the group or the topic for good.
            SendError: a dead letter could not be written.
        """
        self._most_letter_bytes = Topology(self._config).largest_record(self._topics.dead_letters)
        self._consumer.subscribe([self._topics.scores])
        try:
            while not self._stopping.is_set():
                messages = self._ahead or self._consumer.consume(_MAX_READ, _POLL_S)
                self._ahead = []
                self._last_sign = time.monotonic()
                self._process([one for one in messages if self._is_record(one)])
        except StoppedError:
            pass
        finally:
            self._joined = False
            self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.fatal():
            raise KafkaException(error)
        self._throttled.log(logging.WARNING, "kafka", f"scores: {error.str()}")
        return False

    def _process(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        scores, by_id = [], {}
        for message in messages:
            self._metrics.add(catalogue.RECORDS, topic="scores")
            try:
                score = score_of(message.value() or b"")
            except PoisonError as error:
                self._bury(message, str(error))
                continue
            scores.append(score)
            by_id[score.id] = message
        for score, reason in self._delivery.send(scores):
            self._bury(by_id[score.id], f"Langfuse rejects it: {reason}")
        if self._producer.flush(_FLUSH_S) or self._unwritten:
            reasons = "; ".join(one.str() for one in self._unwritten[:1]) or "no broker answers"
            raise SendError(f"topic {self._topics.dead_letters}: no broker takes dead letters: {reasons}")
        self._commit(messages)

    def _commit(self, messages: Sequence[Message]) -> None:
        ends = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False
            )
        except KafkaException as error:  # another member has the partition now, and sends the same scores again
            self._throttled.log(logging.WARNING, "commit", f"scores are sent again: {error}")

    def _bury(self, message: Message, reason: str) -> None:
        source = RecordPlace(message.topic(), message.partition(), message.offset())
        self._metrics.add(catalogue.DEAD_LETTERS, topic="scores")
        self._throttled.log(logging.WARNING, "poison", f"{source.topic}[{source.partition}]@{source.offset}: {reason}")
        letter = dead_letter(source, reason, message.key(), message.value(), self._most_letter_bytes)
        headers: Any = letter.headers
        self._producer.produce(
            self._topics.dead_letters, letter.value, letter.key, headers=headers, on_delivery=self._delivered
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._unwritten.append(error)

    def _wait(self, seconds: float) -> None:
        """Wait, and remain a member of the group: it is polled, with its partitions paused."""
        until = time.monotonic() + seconds
        if self._stopping.is_set():
            raise StoppedError
        while (left := until - time.monotonic()) > 0:
            self._consumer.pause(self._consumer.assignment())
            message = self._consumer.poll(min(left, _POLL_S))
            self._last_sign = time.monotonic()
            if message is not None and self._is_record(message):
                self._ahead.append(message)  # of a partition that was assigned meanwhile
            if self._stopping.is_set():
                raise StoppedError
        self._consumer.resume(self._consumer.assignment())

    def _read_statistics(self, text: str) -> None:
        statistics, self._last_sign = orjson.loads(text), time.monotonic()
        self._joined = is_member(statistics)
        self._lag = lag_by_role(statistics, {self._topics.scores: "scores"}, not_committed)
