"""``trajectory-guard-fleet scores``: sends the records of scores to Langfuse, and commits what Langfuse has settled."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from trajectory_guard.backoff import Backoff
from trajectory_guard.integrations.langfuse.client import (
    Connection,
    RefusedAccessError,
    RetryableScoreError,
    ScoresClient,
    Settled,
)
from trajectory_guard.integrations.langfuse.scores import Score
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.records import PoisonError, SendError, Source, dead_letter_headers
from trajectory_guard_collector.fleet.score_records import score_of
from trajectory_guard_collector.fleet.statistics import is_member, lag_by_role
from trajectory_guard_collector.scoring.langfuse import connection_of
from trajectory_guard_collector.telemetry.catalogue import SCORE_ATTEMPTS_FAILED, SCORES_FAILED, SCORES_SENT
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
EXPORTER: Final = "langfuse"
_MAX_BATCH: Final = 15
_MAX_READ: Final = 150
_POLL_S: Final = 0.5
_FLUSH_S: Final = 30.0
_STATISTICS_MS: Final = 2_000
_MAX_POLL_S: Final = 300.0


class Rejected(NamedTuple):
    """A score that Langfuse will never take, and the reason."""

    score: Score
    reason: str


class StoppedError(Exception):
    """The program is to end before everything was sent."""


class Delivery:
    """Sends scores until Langfuse has settled each, with pauses: failures are retried without limit.

    Parameters:
        connection: address, keys and timeouts.
        retry: pauses after failures.
        batches_per_minute: requests, evenly spread.
        metrics: counts scores and failed attempts.
        wait: waits for some seconds; raises ``StoppedError`` if the program is to end.
    """

    def __init__(
        self, project: Connection, retry: Retry, batches_per_minute: float, metrics: Metrics,
        wait: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._project, self._metrics, self._wait = project, metrics, wait
        self._interval_s, self._refused_s = 60.0 / batches_per_minute, retry.max_interval_s
        self._backoff = Backoff(
            initial_s=retry.initial_interval_s, multiplier=retry.multiplier, max_s=retry.max_interval_s,
            jitter=retry.randomization_factor,
        )  # fmt: skip
        self._client: ScoresClient | None = None
        self._throttled = ThrottledLog(_log)
        self._not_before = 0.0

    def send(self, scores: Sequence[Score]) -> Iterator[Rejected]:
        """Send scores, of those with one id the newest; yields those that are rejected.

        Raises:
            StoppedError: not all were sent; what is sent again later overwrites itself.
        """
        waiting = {score.id: score for score in scores}
        alone: set[str] = set()  # of a list with rejected scores: the answer does not say which
        while waiting:
            first = next(iter(waiting))
            batch = [waiting[first]] if first in alone else list(islice(waiting.values(), _MAX_BATCH))
            for settled in self._attempt(batch):
                if settled.rejected and len(settled.scores) > 1:
                    alone.update(score.id for score in settled.scores)
                    continue
                for score in settled.scores:
                    del waiting[score.id]
                row = SCORES_FAILED if settled.rejected else SCORES_SENT
                self._metrics.add(row, len(settled.scores), exporter=EXPORTER)
                if settled.rejected:
                    yield Rejected(settled.scores[0], settled.reason)

    def _attempt(self, batch: Sequence[Score]) -> list[Settled]:
        """The part of a batch that is settled now; none, after a pause, if the request failed."""
        self._wait(max(0.0, self._not_before - time.monotonic()))
        self._client = self._client or ScoresClient(self._project)
        settled: list[Settled] = []
        before, refused_s = self._client.requests, 0.0
        try:
            for one in self._client.send(batch):
                settled.append(one)  # noqa: PERF402  those before a failure count
            self._backoff.reset()
        except (RetryableScoreError, RefusedAccessError) as error:
            requested_s = error.retry_after_s if isinstance(error, RetryableScoreError) else None
            refused_s = self._refused_s if isinstance(error, RefusedAccessError) else 0.0
            self._metrics.add(SCORE_ATTEMPTS_FAILED, exporter=EXPORTER, status=error.status)
            pause_s = max(self._backoff.next_pause_s(requested_s), refused_s)
            self._throttled.log(logging.WARNING, error.status, f"scores wait, next attempt in {pause_s:.1f} s: {error}")
            self._not_before = time.monotonic() + pause_s
            return settled
        self._not_before = time.monotonic() + self._interval_s * max(1, self._client.requests - before)
        return settled


class ScoreSender:
    """A member of the group that sends scores.

    Parameters:
        config: the configuration, with the keys of the project.
        metrics: counts and measures; with the rows of ``catalogue``.

    Raises:
        ValueError: a file of the ``tls`` section cannot be read.
    """

    def __init__(self, config: FleetConfig, metrics: Metrics) -> None:
        kafka, langfuse, self._topics = config.kafka, config.langfuse, config.topics
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
        self._producer = Producer({**network, "partitioner": "murmur2"})
        self._delivery = Delivery(
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
        """Send scores until ``stop``. What was not committed is sent again by the next member.

        Raises:
            KafkaException: the brokers refuse the group or the topic for good.
            SendError: a dead letter could not be written.
        """
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
        if self._producer.flush(_FLUSH_S):
            raise SendError(f"topic {self._topics.dead_letters}: no broker takes dead letters")
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
        source = Source(message.topic(), message.partition(), message.offset())
        self._metrics.add(catalogue.DEAD_LETTERS, topic="scores")
        self._throttled.log(logging.WARNING, "poison", f"{source.topic}[{source.partition}]@{source.offset}: {reason}")
        headers: Any = dead_letter_headers(source, reason)
        self._producer.produce(self._topics.dead_letters, message.value() or b"", message.key() or b"", headers=headers)

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
        self._lag = lag_by_role(statistics, {self._topics.scores: "scores"})
