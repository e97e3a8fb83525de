"""Records that cannot be processed, on librdkafka's own mock of a cluster: they are put aside, and what follows is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from quixstreams.models import TopicConfig, TopicManager

from tests.collector.kit import loop, request
from tests.fleet.kit import agrees, expected_verdicts, records_of
from tests.fleet.test_engine import PARTITIONS, MockAdmin, cluster, config
from tests.fleet.test_scores import some_scores
from tests.fleet.workers import wait_until
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Langfuse, langfuse
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.engine import Worker
from trajectory_guard_collector.fleet.score_sender import ScoreForwarder
from trajectory_guard_collector.fleet.topics import MAX_MESSAGE_BYTES, wanted
from trajectory_guard_collector.telemetry.metrics import Metrics

__all__ = ["cluster"]
BEYOND = MAX_MESSAGE_BYTES + 1_000_000


class SettingsAdmin(MockAdmin):
    """All topics take records of so many bytes."""

    most_bytes = MAX_MESSAGE_BYTES

    def inspect_topics(self, topic_names: list[str], timeout: float = 30) -> dict[str, TopicConfig]:
        found = super().inspect_topics(topic_names, timeout)
        for one in found.values():
            one.extra_config["max.message.bytes"] = str(self.most_bytes)
        return found


class Topic:
    """All records of a topic, read from its beginning."""

    def __init__(self, address: str, name: str) -> None:
        self._reader = Consumer({
            "bootstrap.servers": address, "group.id": "r", "auto.offset.reset": "earliest", "log_level": 0,
            "fetch.message.max.bytes": 2 * MAX_MESSAGE_BYTES,
        })  # fmt: skip
        self._reader.assign([TopicPartition(name, one, 0) for one in range(PARTITIONS)])
        self._found: list[Message] = []

    def messages(self) -> list[Message]:
        self._found += [one for one in self._reader.consume(100, 0.1) if one.error() is None]
        return self._found

    def close(self) -> None:
        self._reader.close()


def run_until(done: Callable[[], bool], run: Callable[[], None], stop: Callable[[], None]) -> None:
    """Run a program in this thread, as the stream engine asks, until it has ended or a condition is met."""

    ended = threading.Event()

    def watch() -> None:
        try:
            wait_until(lambda: ended.is_set() or done(), lambda: "not done", 60.0)
        finally:
            stop()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        run()
    finally:
        ended.set()
        watching.join()


@pytest.mark.parametrize(
    ("key", "value", "most_bytes"),
    [
        (b"0" * 32, b"\xff" * BEYOND, MAX_MESSAGE_BYTES),
        (b"0" * BEYOND, b"\xff", MAX_MESSAGE_BYTES),
        (b"0" * 32, b"\xff" * (MAX_MESSAGE_BYTES - 50), MAX_MESSAGE_BYTES),
        (None, b"\xff" * 1_200_000, 1_048_588),  # a topic that was made with the default
    ],
)
def test_poison_larger_than_a_dead_letter_is_cut_and_costs_no_other_record(
    cluster: tuple[Producer, str], tmp_path: Path, key: bytes | None, value: bytes, most_bytes: int
) -> None:
    """The worker ended without a commit, and again at each start."""
    producer, address = cluster
    settings, metrics = config(address, tmp_path), Metrics(more=catalogue.METRICS)
    admin = SettingsAdmin(settings.kafka.brokers[0])
    admin.most_bytes = most_bytes
    manager = TopicManager(topic_admin=admin, consumer_group=settings.kafka.group, auto_create_topics=False)
    for topic in wanted(settings):
        producer.list_topics(topic.name, timeout=10)
    requests = [request(one) for one in loop(6)]
    large = Producer({"bootstrap.servers": address, "message.max.bytes": 4 * MAX_MESSAGE_BYTES, "log_level": 0})
    large.produce(settings.topics.spans, value, key)
    assert large.flush(30) == 0
    for data in requests:
        for trace, record in records_of(data):
            producer.produce(settings.topics.spans, record, trace)
    assert producer.flush(10) == 0
    worker = Worker(settings, metrics, topic_manager=manager)
    letters, verdicts = Topic(address, settings.topics.dead_letters), Topic(address, settings.topics.verdicts)
    expected = expected_verdicts(requests)

    def done() -> bool:
        written = [orjson.loads(one.value()) for one in verdicts.messages()]
        return bool(letters.messages()) and agrees(written, expected)

    run_until(done, worker.run, worker.stop)
    (letter,) = letters.messages()
    headers = {name: text.decode() for name, text in letter.headers()}
    assert headers["trajectory_guard.topic"] == settings.topics.spans
    assert headers["trajectory_guard.offset"] == "0"
    assert headers["trajectory_guard.key_bytes"] == str(len(key or b""))
    assert headers["trajectory_guard.value_bytes"] == str(len(value))
    assert (key or b"").startswith(letter.key())
    assert value.startswith(letter.value())
    assert 0.4 * most_bytes < len(letter.key()) + len(letter.value()) < most_bytes
    assert 'trajectory_guard_fleet_dead_letters_total{topic="spans"} 1.0' in metrics.render()[0].decode()
    letters.close()
    verdicts.close()


# --- scores --------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as backend:
        yield backend


def test_a_score_too_large_for_a_dead_letter_is_cut_and_costs_no_other(
    cluster: tuple[Producer, str], tmp_path: Path, server: Langfuse
) -> None:
    producer, address = cluster
    plain = config(address, tmp_path).model_dump()
    plain["langfuse"] |= {
        "enabled": True, "endpoint": server.url, "public_key": PUBLIC_KEY, "secret_key": SECRET_KEY,
        "batches_per_minute": 6_000.0,
    }  # fmt: skip
    settings, metrics = FleetConfig.model_validate(plain), Metrics(more=catalogue.METRICS)
    names = (settings.topics.scores, settings.topics.dead_letters)
    for name in names:
        producer.list_topics(name, timeout=10)
    large: Any = Producer({"bootstrap.servers": address, "message.max.bytes": 4 * MAX_MESSAGE_BYTES, "log_level": 0})
    (good,) = some_scores(1)
    for value in (b"\xff" * 1_500_000, orjson.dumps({"v": 1, **good._asdict()})):
        large.produce(settings.topics.scores, value, b"trajectory")
    assert large.flush(30) == 0
    sender, letters = ScoreForwarder(settings, metrics), Topic(address, settings.topics.dead_letters)
    run_until(lambda: bool(letters.messages()) and bool(server.scores), sender.run, sender.stop)
    (letter,) = letters.messages()
    assert (letter.key(), dict(letter.headers())["trajectory_guard.value_bytes"]) == (b"trajectory", b"1500000")
    assert set(server.scores) == {good.id}
    assert 'trajectory_guard_fleet_dead_letters_total{topic="scores"} 1.0' in metrics.render()[0].decode()
    letters.close()
