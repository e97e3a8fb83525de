"""A worker that no longer fetches a partition ends, to be started again; one that waits, or works, does not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from confluent_kafka import Producer

from tests.collector.kit import loop, request
from tests.fleet.kit import records_of
from tests.fleet.test_engine import cluster, config, worker_on  # noqa: F401  a fixture
from tests.fleet.workers import wait_until
from trajectory_guard_collector.fleet.stall import Positions, StalledError, Stalls, positions
from trajectory_guard_collector.fleet.topics import wanted

KEY = ("spans", 0)


def stalled_at(looks: list[tuple[float, int | None, int]], after_s: float = 60.0) -> float | None:
    """When a partition counts as stalled; looks: time, next offset (None if it is not known), end."""
    stalls = Stalls(after_s)
    for at_s, next_offset, end in looks:
        if stalls.look(Positions(at_s, {} if next_offset is None else {KEY: next_offset}), {KEY: end}) == KEY:
            return at_s
    return None


def test_a_partition_that_stands_still_while_records_wait_is_stalled() -> None:
    assert stalled_at([(at, 7, 9) for at in range(0, 100, 10)]) == 60


@pytest.mark.parametrize(
    "looks",
    [
        [(at, 9, 9) for at in range(0, 600, 10)],
        [(at, at, at + 5) for at in range(0, 600, 10)],
        [(at, 7, 9 if at % 50 else 7) for at in range(0, 600, 10)],
        [(at, 7 if at % 50 else None, 9) for at in range(0, 600, 10)],
        [(at, -1001, 0) for at in range(0, 600, 10)],
    ],
    ids=["read to the end", "read slowly", "read to the end in between", "rebalance or outage in between", "empty"],
)
def test_a_partition_that_is_read_or_has_nothing_to_read_is_not_stalled(
    looks: list[tuple[float, int | None, int]],
) -> None:
    assert stalled_at(looks) is None


def test_a_partition_is_not_stalled_while_what_was_fetched_waits_to_be_processed() -> None:
    def statistics(**other: Any) -> dict[str, Any]:
        idle = {"desired": True, "fetchq_size": 0, "fetchq_cnt": 0, "next_offset": 7}
        partitions = {"0": {**idle, "partition": 0}, "1": {**idle, "partition": 1, **other}}
        return {"topics": {"spans": {"partitions": partitions}, "changelog": {"partitions": partitions}}}

    def held(**other: Any) -> set[tuple[str, int]]:
        return set(positions(statistics(**other), frozenset({"spans"}), 0.0).next_offsets)

    assert held() == {("spans", 0), ("spans", 1)}
    assert held(desired=False) == {("spans", 0)}
    assert held(fetchq_cnt=3, fetchq_size=900) == {("spans", 0)}
    assert held(fetchq_cnt=3, fetchq_size=60 << 20) == set()


def test_a_worker_whose_client_stops_fetching_ends_and_says_where(
    cluster: tuple[Producer, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Paused partitions are as those that librdkafka forgets: no error, nothing fetched."""
    producer, address = cluster
    plain = config(address, tmp_path)
    settings = plain.model_copy(update={"kafka": plain.kafka.model_copy(update={"stalled_s": 3.0})})
    worker, _ = worker_on(settings)
    for topic in wanted(settings):
        producer.list_topics(topic.name, timeout=10)

    def pause_and_feed() -> None:
        wait_until(lambda: worker.ready, lambda: "not ready")
        client = worker.app._consumer._consumer
        client.pause([one for one in client.assignment() if one.topic == settings.topics.spans])
        for data in [request(one) for one in loop(6)]:
            for key, value in records_of(data):
                producer.produce(settings.topics.spans, value, key)
        producer.flush(10)

    feeding = threading.Thread(target=pause_and_feed)
    rescue = threading.Timer(60, worker.stop)
    feeding.start()
    rescue.start()
    with pytest.raises(StalledError, match=rf"kafka\.stalled_s \(3 s\): partition \d of topic {settings.topics.spans}"):
        worker.run()
    rescue.cancel()
    feeding.join()
