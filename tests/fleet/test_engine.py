"""The worker on the stream engine, with librdkafka's own mock of a cluster: wiring, and the internals it reaches into."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from quixstreams import Application
from quixstreams.exceptions import PartitionAssignmentError
from quixstreams.internal_producer import InternalProducer
from quixstreams.models import TopicAdmin, TopicConfig, TopicManager

from dashboards.generator.alerts import alerts
from dashboards.generator.panels import unfolded
from dashboards.generator.recordings import READY
from dashboards.generator.rules import written_out
from dashboards.generator.workers import workers
from tests.collector.kit import loop, request
from tests.fleet.kit import compared, expected_verdicts, records_of
from tests.fleet.workers import wait_until
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.engine import Worker, _not_in_the_future
from trajectory_guard_collector.fleet.statistics import not_handed_over
from trajectory_guard_collector.fleet.topics import wanted
from trajectory_guard_collector.telemetry.metrics import Metrics

PARTITIONS = 4
"""Of every topic of the mock, which makes topics by itself."""


class MockAdmin(TopicAdmin):
    """The mock knows neither ``CreateTopics`` nor ``DescribeConfigs``."""

    def inspect_topics(self, topic_names: list[str], timeout: float = 30) -> dict[str, TopicConfig]:
        settings = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        return {name: TopicConfig(PARTITIONS, 1, settings) for name in topic_names}


@pytest.fixture
def cluster() -> tuple[Producer, str]:
    producer = Producer(
        {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "partitioner": "murmur2", "log_level": 0}
    )
    brokers = producer.list_topics(timeout=10).brokers
    return producer, ",".join(f"127.0.0.1:{one.port}" for one in brokers.values())


def config(address: str, directory: Path) -> FleetConfig:
    return FleetConfig.model_validate({
        "kafka": {"brokers": [address], "group": "g", "session_timeout_s": 6.0},
        "processing": {"commit_interval_s": 0.2},
        "state": {"dir": str(directory)},
    })  # fmt: skip


def worker_on(settings: FleetConfig) -> tuple[Worker, Metrics]:
    metrics = Metrics(more=catalogue.METRICS)
    admin = MockAdmin(settings.kafka.brokers[0])
    manager = TopicManager(topic_admin=admin, consumer_group=settings.kafka.group, auto_create_topics=False)
    return Worker(settings, metrics, topic_manager=manager), metrics


def worker_with_topics(cluster: tuple[Producer, str], directory: Path) -> Worker:
    """A worker whose topics are there: the mock makes each as it is asked for."""
    producer, address = cluster
    settings = config(address, directory)
    for topic in wanted(settings):
        producer.list_topics(topic.name, timeout=10)
    return worker_on(settings)[0]


def test_records_go_through_both_stages_and_poison_beside_them(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    producer, address = cluster
    settings = config(address, tmp_path)
    worker, metrics = worker_on(settings)
    for topic in wanted(settings):
        producer.list_topics(topic.name, timeout=10)
    requests = [request(one) for one in loop(6)]
    expected = expected_verdicts(requests)
    for data in requests:
        for key, value in records_of(data):
            producer.produce(settings.topics.spans, value, key)
    producer.produce(settings.topics.spans, b"\xff", b"no trace")
    assert producer.flush(10) == 0
    found: dict[str, list[Any]] = {"verdicts": [], "guard_spans": [], "dead_letters": []}

    def watch() -> None:
        reader = Consumer(
            {"bootstrap.servers": address, "group.id": "r", "auto.offset.reset": "earliest", "log_level": 0}
        )
        names = {getattr(settings.topics, role): role for role in found}
        reader.assign([TopicPartition(name, one, 0) for name in names for one in range(PARTITIONS)])
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            for message in reader.consume(100, 0.1):
                if message.error() is None:
                    found[names[message.topic()]].append(message)
            records = [orjson.loads(one.value()) for one in found["verdicts"]]
            if (
                found["dead_letters"]
                and found["guard_spans"]
                and compared(records, expected) == (0, 0, 0)
                and worker.ready
            ):
                break
        reader.close()
        worker.stop()

    watching = threading.Thread(target=watch)
    watching.start()
    worker.run()
    watching.join()
    assert compared([orjson.loads(one.value()) for one in found["verdicts"]], expected) == (0, 0, 0)
    (letter,) = found["dead_letters"]
    assert (letter.key(), letter.value()) == (b"no trace", b"\xff")
    assert dict(letter.headers())["trajectory_guard.topic"].decode() == settings.topics.spans
    metrics.refresh()
    text = metrics.render()[0].decode()
    assert 'trajectory_guard_fleet_records_total{topic="spans"} 7.0' in text
    assert 'trajectory_guard_fleet_dead_letters_total{topic="spans"} 1.0' in text
    assert "trajectory_guard_fleet_commits_total 0.0" not in text
    assert "trajectory_guard_fleet_ready 0.0" in text  # it has stopped
    exposed = set(re.findall(r"^(trajectory_guard_\w+)(?:\{.*\})? ", text, re.MULTILINE))
    assert metrics_of_dashboards() - exposed == EVENTS_THAT_DID_NOT_HAPPEN


EVENTS_THAT_DID_NOT_HAPPEN = {"trajectory_guard_late_steps_total", "trajectory_guard_fleet_flag_evictions_total"}


def metrics_of_dashboards() -> set[str]:
    """Metrics in the panels and the rules about stream workers."""
    expressions = [target["expr"] for panel in unfolded([workers()]) for target in panel.get("targets", ())]
    expressions += [text for one in alerts() if READY in (text := written_out(one.expression)) or "Worker" in one.name]
    found = set(re.findall(r"\btrajectory_guard_\w+", "\n".join(expressions)))
    assert {one.exposed for one in catalogue.METRICS} <= found
    labels = {label for one in catalogue.METRICS for label in one.labels}
    return found - labels - {"trajectory_guard_trajectories_by_score"}  # of collectors: their absence is watched


def test_state_topics_are_named_as_the_engine_names_them(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    settings = config(cluster[1], tmp_path)
    worker, _ = worker_on(settings)
    named = {one.name for one in worker.app._topic_manager.changelog_topics_list}
    assert named == {one.name for one in wanted(settings) if one.role == "state"}


def test_the_internals_of_the_engine_are_as_the_worker_needs_them(
    cluster: tuple[Producer, str], tmp_path: Path
) -> None:
    """Parts that are no documented interface: a new version of the engine must keep them, or ``fleet/engine.py`` changes."""
    worker, _ = worker_on(config(cluster[1], tmp_path))
    app: Application = worker.app
    manager = app._processing_context.state_manager
    assert manager is app._state_manager is worker._state_manager
    assert manager.recovery_required is False
    assert callable(manager.do_recovery)
    assert callable(manager.on_partition_assign)
    assert callable(app._producer.produce)
    assert callable(app._run_tracker.set_as_running)
    assert callable(app._run_tracker.stop)
    assert app._stop_event.is_set() is False
    assert [type(one).__name__ for one in app._sink_manager.sinks] == ["_Commit"]


def test_a_commit_that_takes_longer_than_its_transaction_may_ends_the_worker(
    cluster: tuple[Producer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a coordinator that died librdkafka asks for ever, whatever time-out it is given."""
    plain = config(cluster[1], tmp_path)
    processing = plain.processing.model_copy(update={"guarantee": "exactly-once", "transaction_timeout_s": 0.05})
    ended, statuses = threading.Event(), []
    monkeypatch.setattr("os._exit", lambda status: (statuses.append(status), ended.set()))
    monkeypatch.setattr(InternalProducer, "commit_transaction", lambda *_, **__: ended.wait(30))
    worker, _ = worker_on(plain.model_copy(update={"processing": processing}))
    worker.app._producer.commit_transaction([], None, timeout=None)
    assert statuses == [1]
    assert "a commit takes longer than processing.transaction_timeout_s (0.05 s)" in caplog.text
    monkeypatch.setattr(InternalProducer, "commit_transaction", lambda *_, **__: None)
    worker, _ = worker_on(plain)
    before = threading.active_count()
    worker.app._producer.commit_transaction([], None, timeout=None)
    wait_until(lambda: threading.active_count() <= before, lambda: "a watchdog is left")
    assert statuses == [1]


def test_a_stop_that_comes_while_the_worker_joins_the_group_holds(
    cluster: tuple[Producer, str], tmp_path: Path
) -> None:
    """The engine begins its loop whatever was asked before, and would run on for ever."""
    worker = worker_with_topics(cluster, tmp_path)
    joins = worker.app._processing_context.init_checkpoint

    def joins_and_is_asked_to_stop() -> None:
        worker.app._processing_context.init_checkpoint = joins
        joins()
        worker.stop()

    worker.app._processing_context.init_checkpoint = joins_and_is_asked_to_stop
    ran_on: list[bool] = []
    rescue = threading.Timer(20, lambda: (ran_on.append(True), worker.stop()))
    rescue.start()
    worker.run()
    rescue.cancel()
    assert not ran_on


@pytest.mark.parametrize("code", [KafkaError._DESTROY, KafkaError._TIMED_OUT])
def test_partitions_that_come_while_the_consumer_closes_are_no_failure(
    cluster: tuple[Producer, str], tmp_path: Path, code: int
) -> None:
    """Another worker gets them. Any other error in an assignment is one."""
    worker = worker_with_topics(cluster, tmp_path)

    def closed(*_: Any, **__: Any) -> None:
        worker.stop()
        raise KafkaException(KafkaError(code))

    worker.app._consumer.committed = closed
    if code == KafkaError._DESTROY:
        worker.run()
    else:
        with pytest.raises(PartitionAssignmentError):
            worker.run()


@pytest.mark.parametrize(
    ("known", "lag"),
    [
        ({}, 0),
        ({"hi_offset": 500, "ls_offset": 500}, 500),  # nothing is read yet
        ({"hi_offset": 500, "ls_offset": 500, "lo_offset": 450}, 50),  # older records are deleted
        ({"hi_offset": 500, "ls_offset": 500, "committed_offset": 300}, 200),  # as at a start
        ({"hi_offset": 500, "ls_offset": 500, "app_offset": 450, "next_offset": 500, "fetchq_cnt": 50}, 50),
        ({"hi_offset": 500, "ls_offset": 500, "app_offset": 499, "next_offset": 500}, 0),  # the last one is a marker
        ({"hi_offset": 500, "ls_offset": 480, "app_offset": 480, "next_offset": 480}, 0),  # a transaction is open
        ({"hi_offset": 500, "ls_offset": -1001, "app_offset": 400, "next_offset": 400}, 100),
    ],
)
def test_lag_is_what_was_not_handed_to_the_stages(known: dict[str, int], lag: float) -> None:
    names = ("hi_offset", "ls_offset", "lo_offset", "app_offset", "committed_offset", "next_offset")
    assert not_handed_over({**dict.fromkeys(names, -1001), "fetchq_cnt": 0, **known}) == lag


def test_a_record_without_a_time_or_of_the_future_counts_as_of_now() -> None:
    """State expires by the newest time that its partition has seen: one clock that is ahead would empty it."""
    before = round(time.time() * 1_000)
    for at_ms in (-1, 0, before + 86_400_000):
        assert before <= _not_in_the_future(None, None, at_ms, None) <= round(time.time() * 1_000)
    assert _not_in_the_future(None, None, before - 5, None) == before - 5
