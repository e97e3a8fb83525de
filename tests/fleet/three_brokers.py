"""Three brokers that hold every record each: one is killed, another one restarted, while workers read.

Left out of the default run: three Java processes take a minute to start on two cores. ``make test-fleet-nightly`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from confluent_kafka.admin import AdminClient

from tests.fleet.broker import Broker, NoKafkaError, addresses, started_cluster, unavailable
from tests.fleet.test_on_kafka import load
from tests.fleet.workers import FleetRun, wait_until

NewRun = Callable[..., FleetRun]
REPLICATED = {"replication_factor": 3}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Broker]]:
    brokers: list[Broker] = []
    try:
        brokers = started_cluster(tmp_path, 3)
        yield brokers
    except NoKafkaError as error:
        unavailable(str(error))
    finally:
        for one in brokers:
            one.stop()


def coordinator(run: FleetRun, brokers: list[Broker]) -> Broker:
    """The broker that leads the consumer group: the one whose death costs most."""
    client = AdminClient({"bootstrap.servers": run.address, "log_level": 0})
    group = run.config.kafka.group
    found = client.describe_consumer_groups([group])[group].result(30).coordinator
    return next(one for one in brokers if one.address == f"{found.host}:{found.port}")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_broker_killed_and_another_restarted_change_no_verdict(
    cluster: list[Broker], new_run: NewRun, guarantee: str
) -> None:
    records, expected = load()
    quarter = len(records) // 4
    run = new_run({"topics": REPLICATED}, address=addresses(cluster), guarantee=guarantee, transaction_timeout_s=4.0)
    workers = [run.start(name, session_timeout_s=30.0) for name in ("one", "two")]
    for one in workers:
        one.wait_until_ready()
    run.feed(records[:quarter])
    run.wait_for_verdicts(expected, 0.1)
    first = coordinator(run, cluster)
    first.kill()
    run.feed(records[quarter : 2 * quarter])
    run.wait_for_verdicts(expected, 0.3, supervised=True)
    first.start()
    wait_until(lambda: is_in_sync(run), lambda: "the broker that was killed does not catch up")
    second = next(one for one in cluster if one is not first)
    second.restart()
    run.feed(records[2 * quarter : 3 * quarter])
    run.wait_for_verdicts(expected, 0.5, supervised=True)
    run.feed(records[3 * quarter :])
    run.wait_for(expected, supervised=True)
    assert [one.terminate() for one in workers] == [0, 0]


def is_in_sync(run: FleetRun) -> bool:
    """Whether all brokers hold every partition again: another one may be lost only then."""
    topics = AdminClient({"bootstrap.servers": run.address, "log_level": 0}).list_topics(timeout=10).topics
    return all(len(one.isrs) == 3 for topic in topics.values() for one in topic.partitions.values())
