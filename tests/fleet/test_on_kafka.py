"""Workers on a real Kafka: the verdicts are those of one process, whatever happens in between."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.recorded_load import recorded_load
from tests.fleet.broker import Broker
from tests.fleet.kit import Record, compared, expected_verdicts, records_of
from tests.fleet.workers import PARTITIONS, FleetRun, wait_until
from trajectory_guard_collector.fleet.cli import main
from trajectory_guard_collector.fleet.topics import Roles

pytestmark = pytest.mark.slow  # those that wait longest come first: they run side by side
NewRun = Callable[..., FleetRun]


@cache
def load() -> tuple[list[Record], dict[str, dict[str, Any]]]:
    """Recorded runs, half of them named by roots that end last, 5 s out of order, some spans twice."""
    requests = recorded_load(copies=1).requests
    return [record for data in requests for record in records_of(data)], expected_verdicts(requests)


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_workers_that_die_again_and_again_change_no_verdict(new_run: NewRun, seed: int) -> None:
    """Two workers; one of them is killed after each sixth of the records, and comes back with or without its disk."""
    records, expected = load()
    chance = random.Random(seed)
    run = new_run()
    workers = {name: run.start(name) for name in ("one", "two")}
    parts = 6
    for part in range(parts):
        run.feed(records[len(records) * part // parts : len(records) * (part + 1) // parts])
        known = len(run.verdicts())
        wait_until(
            lambda known=known: len(run.verdicts()) > known + chance.randrange(100) or run.is_drained(),
            lambda: "\n".join(one.log[-1_000:] for one in workers.values()),
        )
        name = chance.choice(["one", "two"])
        workers[name].kill()
        if chance.random() < 0.5 and run.state_of(name).exists():
            shutil.rmtree(run.state_of(name))
        workers[name] = run.start(name)
    run.wait_for(expected, supervised=True)
    statuses = [one.terminate() for one in workers.values()]
    assert statuses == [0, 0], [one.log[-2_000:] for one in workers.values()]


def test_a_broker_that_dies_and_comes_back_costs_nothing(own_broker: Broker, new_run: NewRun) -> None:
    """The worker lives on, or ends with status 1 and is started again: the commit itself failed, or librdkafka no longer
    fetches."""
    records, expected = load()
    half = len(records) // 2
    run = new_run(address=own_broker.address)
    worker = run.start("one", session_timeout_s=30.0, stalled_s=20.0)
    worker.wait_until_ready()
    run.feed(records[:half])
    run.wait_for_verdicts(expected, 0.1)
    own_broker.kill()
    own_broker.start()
    run.feed(records[half:])
    run.wait_for(expected, supervised=True)
    assert worker.restarts <= 2
    assert worker.terminate() == 0


def test_a_worker_that_is_stopped_while_no_broker_answers_ends_and_loses_nothing(
    own_broker: Broker, new_run: NewRun
) -> None:
    """Its last commit cannot be made: the next worker reads the records again. The log does not repeat itself."""
    records, expected = load()
    run = new_run(address=own_broker.address, commit_interval_s=20.0, shutdown_timeout_s=2.0)
    worker = run.start("one")
    worker.wait_until_ready()
    run.feed(records)
    wait_until(lambda: worker.metric("trajectory_guard_fleet_records_total") > 100, lambda: worker.log[-2_000:])
    own_broker.kill()
    assert worker.terminate() == 1
    lines = worker.log.count("brokers are down")
    assert lines <= 4, worker.log[-2_000:]
    own_broker.start()
    run.start("two")
    run.wait_for(expected, supervised=True)


def test_exactly_once_writes_each_revision_once_even_after_kill_9(new_run: NewRun) -> None:
    records, expected = load()
    half = len(records) // 2
    run = new_run(guarantee="exactly-once")
    first = run.start("one")
    run.feed(records[:half])
    run.wait_for_verdicts(expected, 0.1)
    first.kill()
    run.feed(records[half:])
    second = run.start("two")
    run.wait_for(expected, supervised=True)
    written = [(one["span_id"], one["trajectory_id"], one["revision"]) for one in run.verdicts()]
    assert len(written) == len(set(written))
    wait_until(lambda: second.metric("trajectory_guard_fleet_lag") == 0, lambda: "there is a lag left")
    assert second.terminate() == 0


@pytest.mark.parametrize("guarantee", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.nightly)])
def test_a_worker_joins_and_another_leaves(new_run: NewRun, guarantee: str) -> None:
    records, expected = load()
    third = len(records) // 3
    run = new_run(guarantee=guarantee)
    first = run.start("one")
    first.wait_until_ready()
    run.feed(records[:third])
    run.wait_for_verdicts(expected, 0.05)
    second = run.start("two")
    second.wait_until_ready()
    run.feed(records[third : 2 * third])
    wait_until(
        lambda: second.metric("trajectory_guard_steps_total") > 0, lambda: f"the second is idle: {second.log[-2_000:]}"
    )
    assert first.terminate() == 0
    run.feed(records[2 * third :])
    run.wait_for(expected, supervised=True)
    assert second.terminate() == 0


def test_readiness_waits_until_state_is_restored(new_run: NewRun) -> None:
    records, expected = load()
    half = len(records) // 2
    run = new_run()
    first = run.start("one")
    run.feed(records[:half])
    run.wait_for_verdicts(expected, 0.1)
    wait_until(run.is_drained, lambda: "not drained")
    assert first.terminate() == 0
    second = run.start("two")  # with an empty state directory
    wait_until(lambda: second.get("/healthz")[0] == 200, lambda: f"not alive: {second.log[-2_000:]}")
    statuses = {second.get("/readyz")[0]}
    wait_until(lambda: statuses.add(second.get("/readyz")[0]) or 200 in statuses, lambda: "never ready")
    assert statuses == {503, 200}
    assert second.metric("trajectory_guard_fleet_restore_seconds_total") > 0
    run.feed(records[half:])
    run.wait_for(expected)


@pytest.mark.parametrize(
    ("disk", "seed"),
    [
        ("kept", 1),
        pytest.param("kept", 2, marks=pytest.mark.nightly),
        pytest.param("empty", 1, marks=pytest.mark.nightly),
        ("empty", 2),
    ],
)
def test_kill_9_changes_no_verdict(new_run: NewRun, disk: str, seed: int) -> None:
    records, expected = load()
    chance = random.Random(seed)
    run = new_run()
    first = run.start("one")
    place = chance.randrange(len(records) // 3, 2 * len(records) // 3)
    run.feed(records[:place])
    run.wait_for_verdicts(expected, chance.uniform(0.05, 0.3))
    first.kill()
    run.feed(records[place:])
    if disk == "empty":
        shutil.rmtree(run.state_of("one"))
    second = run.start("one")
    run.wait_for(expected)
    assert second.terminate() == 0


def test_a_full_disk_loses_nothing(new_run: NewRun) -> None:
    """Files cannot grow beyond 64 kB: the worker ends with status 1, and one with more disk goes on."""
    records, expected = load()
    run = new_run()
    run.feed(records)
    worker = run.start("one", file_bytes=65_536)
    wait_until(lambda: worker.process.poll() is not None, lambda: f"the worker lives on: {worker.log[-2_000:]}")
    assert worker.process.returncode == 1
    assert compared(run.verdicts(), expected) != (0, 0, 0)
    run.start("one")
    run.wait_for(expected)


def test_a_worker_without_topics_or_brokers_ends_with_one_line(new_run: NewRun) -> None:
    run = new_run()
    topics = run.config.topics.model_copy(update={"verdicts": "there-is-none"})
    run.config = run.config.model_copy(update={"topics": topics})
    worker = run.start("no-topic")
    assert worker.process.wait(60) == 1
    assert worker.log.count("\n") == 1
    assert "'there-is-none' (verdicts) is missing: create it with `topics --create`" in worker.log
    worker = run.start("no-broker", brokers=("localhost:9",))
    assert worker.process.wait(60) == 1
    assert "kafka.brokers: localhost:9: no broker answers" in worker.log


def test_one_worker_gives_the_verdicts_of_one_process(new_run: NewRun) -> None:
    records, expected = load()
    run = new_run()
    worker = run.start("one")
    worker.wait_until_ready()
    run.feed(records)
    run.wait_for(expected)
    assert worker.metric("trajectory_guard_fleet_dead_letters_total") == 0
    assert worker.metric("trajectory_guard_errors_total") == 0
    wait_until(lambda: worker.metric("trajectory_guard_fleet_lag") == 0, lambda: "there is a lag left")
    assert worker.terminate() == 0


def test_a_backlog_is_read_partition_by_partition_without_a_difference(new_run: NewRun) -> None:
    records, expected = load()
    run = new_run()
    run.feed(records)
    run.start("one")
    run.wait_for(expected)
    assert compared(run.verdicts(), expected) == (0, 0, 0), "missing, extra, different"


def test_records_of_clocks_that_are_days_behind_or_ahead_change_no_verdict(new_run: NewRun) -> None:
    """Every second record has the right time, and the first ones of each partition: its time is that of now.

    Of a partition whose very first record is days behind, that is the time, until the next one.
    """
    records, expected = load()
    now_ms = round(time.time() * 1_000)
    days_ms = 2 * 86_400_000
    run = new_run()
    worker = run.start("one")
    worker.wait_until_ready()
    first = len(records) // 4
    run.feed(records[:first])
    run.wait_for_verdicts(expected, 0.1)
    wrong = (now_ms, now_ms - days_ms, now_ms, now_ms + 1_800_000, now_ms, 1)
    run.feed(records[first:], lambda nth: wrong[nth % len(wrong)])
    run.wait_for(expected)
    assert worker.terminate() == 0


def test_poison_is_dead_lettered_and_costs_no_other_record(new_run: NewRun) -> None:
    records, expected = load()
    third = len(records) // 3
    several = b"".join(value for _, value in records[:2])
    poison = {
        "no ExportTraceServiceRequest": (records[0][0], b"\xff\xff\xff"),
        "the record has no value": (records[0][0], None),
        "the record's key is none": (None, records[0][1]),
        "the record's key is b'an order'": (b"an order", records[0][1]),
        "spans of several traces": (records[0][0], several),
    }
    run = new_run()
    run.feed(records[:third])
    for key, value in poison.values():
        run.produce(run.config.topics.spans, key, value)
    operations = {
        "no JSON": (b"k", b"\xff"),
        "version 9": (b"k", b'[9,["",""],[]]'),
        "'burn' is not a valid OperationKind": (b"k", b'[1,["",""],[["burn",1]]]'),
        "1 of 2 operations": (b"k", b'[1,["","t"],[["add",{"v":1}],["name",["t"]]]]'),
    }
    for key, value in operations.values():
        run.produce(run.config.topics.operations, key, value)
    worker = run.start("one")
    run.feed(records[third:])
    run.wait_for(expected)
    wait_until(lambda: len(run.dead_letters()) >= 9, lambda: f"{len(run.dead_letters())} dead letters")
    found = {}
    for letter in run.dead_letters():
        headers = {name: value.decode() for name, value in letter.headers()}
        found[headers["trajectory_guard.reason"]] = (letter.key(), letter.value())
        assert headers["trajectory_guard.topic"] in (run.config.topics.spans, run.config.topics.operations)
        assert int(headers["trajectory_guard.partition"]) < PARTITIONS
        assert int(headers["trajectory_guard.offset"]) >= 0
    for reason, (key, value) in {**poison, **operations}.items():
        (letter,) = [one for full, one in found.items() if reason in full]
        assert letter == (key or b"", value or b"")
    assert worker.metric("trajectory_guard_fleet_dead_letters_total") == 9
    assert worker.terminate() == 0


def test_the_topics_command_creates_what_is_missing_and_names_what_does_not_fit(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = Roles._fields
    names = [f"--set=topics.{role}=command-{role}" for role in roles]
    common = [*names, f"--set=kafka.brokers=[{broker}]", "--set=kafka.group=command"]
    assert main(["topics", *common]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("missing") == 9
    assert captured.err.count("is missing: create it with `topics --create`") == 9
    assert main(["topics", "--create", *common, "--set=topics.partitions=3"]) == 0
    assert capsys.readouterr().out.count("3 partitions, created") == 9
    assert main(["topics", "--create", *common, "--set=topics.partitions=5"]) == 0
    assert capsys.readouterr().out.count("3 partitions\n") == 9
    other = [*common, "--set=topics.operations=command-others"]
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([NewTopic("command-others", 2)])["command-others"].result(30)
    assert main(["topics", "--create", *other]) == 1
    assert (
        "topic 'command-others' has 2 partitions, and 'command-spans' has 3: they need the same number"
        in capsys.readouterr().err
    )
