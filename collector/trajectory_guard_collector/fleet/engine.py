"""The worker on Quix Streams: the only module that knows the stream engine.

One application, two stages: spans keyed by trace become operations, which are written to a topic keyed by trajectory;
operations become verdicts. The engine owns offsets, state, changelogs, rebalancing and commits. Objects that changed
are evaluated and written when it commits: it flushes its sinks first, then the changelogs, then the offsets.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from traceback import format_exc
from typing import Any, Final

import orjson
from confluent_kafka import KafkaError, KafkaException
from quixstreams import Application, message_context
from quixstreams.exceptions import PartitionAssignmentError
from quixstreams.kafka import ConnectionConfig
from quixstreams.models import TopicManager
from quixstreams.sinks.base import BaseSink
from quixstreams.state.rocksdb import RocksDBOptions

from trajectory_guard_collector.command_line import FAILED
from trajectory_guard_collector.early_stop import asked_early
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.evaluating import EvaluatingStage
from trajectory_guard_collector.fleet.identifying import IdentifyingStage
from trajectory_guard_collector.fleet.live import State
from trajectory_guard_collector.fleet.records import (
    FatalError,
    Output,
    PoisonError,
    RecordPlace,
    SendError,
    dead_letter,
)
from trajectory_guard_collector.fleet.score_records import ScoreRecords
from trajectory_guard_collector.fleet.stall import Positions, StalledError, StallWatch, positions
from trajectory_guard_collector.fleet.statistics import is_member, lag_by_role, not_handed_over
from trajectory_guard_collector.fleet.topics import MAX_MESSAGE_BYTES, Roles
from trajectory_guard_collector.telemetry.metrics import Metrics, ScoringCounts
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1 << 20
_STATISTICS_MS: Final = 2_000
_SILENT_S: Final = 10.0
"""Seconds without statistics, which come while the engine polls, after which they say nothing of the present."""
_POLL_S: Final = 0.1
_FLUSH_S: Final = 0.5
_FETCH_WAIT_MS: Final = 50
"""A rebalance asks for the watermarks of each partition in turn, each behind a fetch that waits for records: with
librdkafka's default of 500 ms, 48 partitions stand still for 24 s."""
_MAX_POLL_S: Final = 300.0
_BYTES: Final = dict.fromkeys(("key_deserializer", "value_deserializer", "key_serializer", "value_serializer"), "bytes")


class Worker:
    """One worker of the group.

    Parameters:
        config: the configuration.
        metrics: counts and measures; with the rows of ``catalogue``.
        topic_manager: how topics are looked up; for tests.

    Raises:
        Exception: of the engine, if the brokers cannot be reached or a topic is missing.
    """

    def __init__(self, config: FleetConfig, metrics: Metrics, *, topic_manager: TopicManager | None = None) -> None:
        self._config, self._metrics = config, metrics
        self._joined = False
        self._last_sign = time.monotonic()
        self._lag: dict[str, float] = {}
        self._seen: Positions | None = None
        self._stalled = ""
        self._throttled = ThrottledLog(_log)
        self._most_behind_ms = round(min(config.state.ttl_s, config.guard.idle_ttl_s) * 500)
        roles = Roles.of(config.topics)
        self._role_of = {name: role for role, name in roles.by_role().items()}
        self._read_roles = {roles.spans: "spans", roles.operations: "operations"}
        self.app = _application(config, self._read_statistics, topic_manager)
        spans = self.app.topic(roles.spans, timestamp_extractor=_not_in_the_future, **_BYTES)
        operations = self.app.topic(roles.operations, timestamp_extractor=_not_in_the_future, **_BYTES)
        for name in (roles.verdicts, roles.guard_spans, roles.flags, roles.scores, roles.dead_letters):
            self.app.topic(name, **_BYTES)
        self._most_letter_bytes = self._largest_record(roles.dead_letters)
        self._output = _TopicOutput(self.app, roles, metrics)
        counts, limits = ScoringCounts(metrics), config.trajectories.limits(config.state.live_traces_mib)
        store, guard = config.state, config.guard
        self._identifying = IdentifyingStage(
            guard, limits, counts, self._output, store.ttl_s, store.live_traces_mib * _MIB,
            with_sessions=config.langfuse.enabled,
        )  # fmt: skip
        scores = ScoreRecords(self._output, config.langfuse.max_episodes, redact=guard.redact)
        self._evaluating = EvaluatingStage(
            guard, limits, counts, self._output, store.ttl_s, store.live_trajectories_mib * _MIB,
            max_names=config.flags.max_names, scores=scores if config.langfuse.enabled else None,
            on_evicted=lambda: metrics.add(catalogue.FLAG_EVICTIONS, trajectory_guard_eviction_reason="names"),
        )  # fmt: skip
        first = self.app.dataframe(spans)
        first.apply(self._contained(self._identifying.take), stateful=True, metadata=True)
        second = self.app.dataframe(operations)
        second.apply(self._contained(self._evaluate), stateful=True, metadata=True).filter(_nothing).sink(
            _Commit(self._flush)
        )
        self._state_manager = first.processing_context.state_manager
        self._watch_state()
        self._keep_early_stop()
        self._bound_transactions(config.processing.transaction_timeout_s)
        self._bound_flushes(config.kafka.unavailable_s, config.processing.shutdown_timeout_s)
        metrics.watch(catalogue.READY, lambda: float(self.ready))
        metrics.watch_group(catalogue.LAG, lambda: self._lag)
        metrics.watch_group(
            catalogue.LIVE,
            lambda: {"trace": len(self._identifying.live), "trajectory": len(self._evaluating.live)},
        )

    def run(self) -> None:
        """Process records until SIGTERM or SIGINT; then commit, and leave the group.

        Raises:
            StalledError: records wait that the engine no longer fetches. What was processed is committed.
            Exception: of the engine, or of a stage if its state can no longer be relied on. Nothing is committed then.
        """
        kafka = self._config.kafka
        watch = StallWatch(kafka, self._positions, self._end_stalled) if kafka.stalled_s else nullcontext()
        try:
            with watch:
                self.app.run()
        except PartitionAssignmentError as error:
            if not (self.app._stop_event.is_set() and _is_closed(error.__cause__)):
                raise
            _log.debug("partitions came while the consumer closed: %s", error.__cause__)  # another worker gets them
        finally:
            self._joined = False
        if self._stalled:
            raise StalledError(f"no record is fetched for kafka.stalled_s ({kafka.stalled_s:g} s): {self._stalled}")

    def stop(self) -> None:
        """End ``run`` gracefully; callable from any thread."""
        self.app.stop()

    @property
    def ready(self) -> bool:
        """Whether the worker is a member of the group, and its state is restored."""
        return self._joined and not self._state_manager.recovery_required

    @property
    def alive(self) -> bool:
        """Whether the engine has polled the brokers within the time after which they exclude the worker."""
        return time.monotonic() - self._last_sign < _MAX_POLL_S

    # --- records ---------------------------------------------------------------------------------------------

    def _evaluate(self, key: bytes | None, value: bytes, state: State, at_ms: int) -> None:
        if key is None:
            raise PoisonError("a record of operations has no key")
        self._evaluating.take(key, value, state, at_ms, message_context().offset)

    def _contained(self, take: Callable[[bytes | None, bytes, State, int], None]) -> Callable[..., None]:
        """A stage in which a record that cannot be processed costs no other record, and is not lost."""

        def contained(value: bytes | None, key: bytes | None, at_ms: int, headers: Any, state: State) -> None:
            context = message_context()
            role = self._role_of[context.topic]
            self._metrics.series(catalogue.RECORDS, role).inc()
            try:
                if value is None:
                    raise PoisonError("the record has no value")
                take(key, value, state, _not_long_past(state, at_ms, self._most_behind_ms))
            except PoisonError as error:
                reason = str(error)
            except FatalError:
                raise
            except Exception as error:  # noqa: BLE001  an unforeseen record must not stop the partition
                reason = f"{type(error).__name__}: {error}"
                place = f"{context.topic}[{context.partition}]@{context.offset}"
                self._throttled.log(
                    logging.ERROR, "unforeseen", f"a record cannot be processed: {place}: {format_exc()}"
                )
            else:
                return
            source = RecordPlace(context.topic, context.partition, context.offset)
            self._metrics.add(catalogue.DEAD_LETTERS, topic=role)
            self._throttled.log(
                logging.WARNING, "poison", f"{source.topic}[{source.partition}]@{source.offset}: {reason}"
            )
            letter = dead_letter(source, reason, key, value, self._most_letter_bytes)
            self._output.send("dead_letters", letter.key, letter.value, at_ms, letter.headers)

        return contained

    def _flush(self) -> None:
        started = time.perf_counter()
        self._identifying.live.flush()
        self._evaluating.live.flush()
        self._metrics.add(catalogue.COMMITS)
        self._metrics.add(catalogue.COMMIT_SECONDS, time.perf_counter() - started)

    # --- telemetry -------------------------------------------------------------------------------------------

    def _read_statistics(self, text: str) -> None:
        """Membership and lag, from librdkafka's statistics."""
        statistics, self._last_sign = orjson.loads(text), time.monotonic()
        self._joined = is_member(statistics)
        self._lag = lag_by_role(statistics, self._read_roles, not_handed_over)
        self._seen = positions(statistics, self._read_roles, self._last_sign)

    def _positions(self) -> Positions | None:
        """How far the consumer has fetched, as long as it polls and is expected to fetch."""
        is_polling = time.monotonic() - self._last_sign < _SILENT_S
        return self._seen if is_polling and self.ready else None

    def _end_stalled(self, what: str) -> None:
        self._stalled = what
        bound_s = self._config.processing.shutdown_timeout_s
        _end_after(bound_s, f"records wait that are not fetched ({what}), and the engine does not end in {bound_s:g} s")
        self.stop()

    def _watch_state(self) -> None:
        """Measure restores, and let the second stage know of assignments."""
        restore = self._state_manager.do_recovery

        def measured() -> None:
            started = time.monotonic()
            try:
                restore()
            finally:
                self._metrics.add(catalogue.RESTORE, time.monotonic() - started)

        self._state_manager.do_recovery = measured
        assign = self._state_manager.on_partition_assign

        def assigned(*arguments: Any, **named: Any) -> Any:
            self._evaluating.assigned()
            return assign(*arguments, **named)

        self._state_manager.on_partition_assign = assigned

    def _largest_record(self, topic: str) -> int:
        """Bytes of the largest record that a topic takes: one that is made in another way may take less than asked."""
        settings = self.app._topic_manager._admin.inspect_topics([topic])[topic].extra_config
        return min(MAX_MESSAGE_BYTES, int(settings.get("max.message.bytes") or MAX_MESSAGE_BYTES))

    def _keep_early_stop(self) -> None:
        """Let a request to stop hold that comes while the engine joins the group: it would run on for ever."""
        tracker, asked = self.app._run_tracker, self.app._stop_event
        begin = tracker.set_as_running

        def begin_unless_asked() -> None:
            begin()
            if asked.is_set() or asked_early():
                tracker.stop()

        tracker.set_as_running = begin_unless_asked

    def _bound_transactions(self, seconds: float) -> None:
        """End the process if a commit takes longer than its transaction may: the brokers have aborted it by then.

        Where the coordinator of the group dies, librdkafka asks the dead broker until it comes back, whatever time-out
        it is given. Meanwhile the worker would stay a member, so that no worker reads its partitions.
        """
        producer = self.app._producer
        commit = producer.commit_transaction

        def bounded(*arguments: Any, **named: Any) -> None:
            late = f"a commit takes longer than processing.transaction_timeout_s ({seconds:g} s)"
            watchdog = _end_after(seconds, late)
            try:
                commit(*arguments, **named)
            finally:
                watchdog.cancel()

        producer.commit_transaction = bounded

    def _bound_flushes(self, stalled_s: float, stopping_s: float) -> None:
        """Let a commit give up brokers that take nothing for so long, sooner if the worker was asked to stop.

        Python handles no signal while librdkafka waits, which it would do for as long as records live: five minutes.
        """
        producer, asked = self.app._producer, self.app._stop_event
        flush = producer.flush

        def bounded(timeout: float | None = None) -> int:
            if timeout is not None:  # a rebalance has a limit of its own
                return int(flush(timeout))
            before, waited_s = 0, 0.0
            while left := int(flush(_FLUSH_S)):
                waited_s = 0.0 if left < before else waited_s + _FLUSH_S
                before = left
                if waited_s >= (min(stalled_s, stopping_s) if asked.is_set() else stalled_s):
                    break
            return left

        producer.flush = bounded


def _is_closed(error: BaseException | None) -> bool:
    """Whether librdkafka was asked something while the consumer closes."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._DESTROY


def _end_after(seconds: float, why: str) -> threading.Timer:
    """A timer that ends the process without a commit, unless it is cancelled before."""

    def end() -> None:
        _log.error("the worker stops: %s", why)
        logging.shutdown()
        os._exit(FAILED)

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()
    return watchdog


class _TopicOutput(Output):
    def __init__(self, app: Application, roles: Roles, metrics: Metrics) -> None:
        self._app, self._names, self._metrics = app, roles.by_role(), metrics

    def send(
        self, topic: str, key: bytes, value: bytes, at_ms: int, headers: Mapping[str, str | bytes] | None = None
    ) -> None:
        """See ``Output``. The commit waits until the broker has the record."""
        producer = self._app._producer
        try:
            producer.produce(
                topic=self._names[topic], key=key, value=value, timestamp=at_ms, headers=dict(headers or {})
            )
        except Exception as error:
            raise SendError(f"topic {self._names[topic]}: {error}") from error
        self._metrics.series(catalogue.WRITTEN, topic).inc()


class _Commit(BaseSink):  # type: ignore[misc]
    """Calls a function before each commit."""

    def __init__(self, flush: Callable[[], None]) -> None:
        super().__init__(on_client_connect_success=lambda: None)
        self._flush = flush

    def add(self, *_: Any, **__: Any) -> None:
        """Records are processed by the stages."""

    def flush(self) -> None:
        """See ``BaseSink``."""
        self._flush()


def _nothing(_: Any) -> bool:
    return False


def _not_in_the_future(_: Any, __: Any, at_ms: int, ___: Any) -> int:
    """The time of a record. One with a clock that is ahead would let the state of all others expire."""
    now = round(time.time() * 1_000)
    return at_ms if 0 < at_ms <= now else now


def _not_long_past(state: Any, at_ms: int, most_ms: int) -> int:
    """The time of a record, at most so much behind the newest of its partition.

    What is stored expires by the newest time that the partition has seen. With a clock that is behind by the time to
    live, it would be expired as soon as it is written, and the steps of the conversation with it; with one that is
    behind by less, the conversation would seem idle when the next record has the right time.
    """
    newest_ms = state._transaction._partition.high_water_ms
    if newest_ms is not None and at_ms < newest_ms - most_ms:
        at_ms = state._timestamp = newest_ms - most_ms
    return at_ms


def _application(
    config: FleetConfig, read_statistics: Callable[[str], None], topic_manager: TopicManager | None
) -> Application:
    kafka, processing, store = config.kafka, config.processing, config.state
    network = {"reconnect.backoff.max.ms": 1_000}
    consumer = {
        **network,
        "session.timeout.ms": round(kafka.session_timeout_s * 1_000),
        "heartbeat.interval.ms": round(kafka.session_timeout_s * 1_000 / 6),
        "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": read_statistics,
        "max.poll.interval.ms": round(_MAX_POLL_S * 1_000),
    }
    producer: dict[str, Any] = {
        **network, "compression.type": "lz4", "linger.ms": 20, "message.max.bytes": MAX_MESSAGE_BYTES,
    }  # fmt: skip
    if processing.guarantee == "exactly-once":
        producer["transaction.timeout.ms"] = round(processing.transaction_timeout_s * 1_000)
    return Application(
        broker_address=ConnectionConfig.from_librdkafka_dict(connection(kafka)),
        consumer_group=kafka.group,
        auto_offset_reset="earliest",
        commit_interval=processing.commit_interval_s,
        consumer_extra_config=consumer,
        producer_extra_config=producer,
        state_dir=store.dir,
        # The defaults, 3 x 64 MiB of buffers and 128 MiB of log for each partition of each stage, fit no container.
        rocksdb_options=RocksDBOptions(
            block_cache_size=round(store.cache_mib * _MIB),
            write_buffer_size=(buffer := round(store.write_buffer_mib * _MIB)),
            max_write_buffer_number=2,
            max_total_wal_size=4 * buffer,
        ),
        consumer_poll_timeout=_POLL_S,
        loglevel=None,
        auto_create_topics=False,
        topic_manager=topic_manager,
        processing_guarantee=processing.guarantee,
        broker_availability_timeout=kafka.unavailable_s,
    )
