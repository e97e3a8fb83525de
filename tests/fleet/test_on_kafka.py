"""Workers on a real Kafka: whatever happens, the verdicts are those of one process."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.bench.recorded_load import recorded_load
from tests.fleet.kit import Record, compared, expected_verdicts, records_of
from tests.fleet.workers import FleetRun, wait_until

pytestmark = pytest.mark.slow
NewRun = Callable[..., FleetRun]


@cache
def load() -> tuple[list[Record], dict[str, dict[str, Any]]]:
    """Recorded runs, half of them named by roots that end last, 5 s out of order, some spans twice."""
    requests = recorded_load(copies=1).requests
    return [record for data in requests for record in records_of(data)], expected_verdicts(requests)


def some_verdicts(run: FleetRun, share: float) -> Callable[[], bool]:
    expected = load()[1]
    return lambda: compared(run.verdicts(), expected)[0] < (1.0 - share) * len(expected)


@pytest.mark.smoke
def test_one_worker_gives_the_verdicts_of_one_process(new_run: NewRun) -> None:
    records, expected = load()
    run = new_run()
    worker = run.start("one")
    worker.wait_until_ready()
    run.feed(records)
    run.wait_for(expected)
    assert worker.metric("trajectory_guard_fleet_dead_letters_total") == 0
    assert worker.metric("trajectory_guard_errors_total") == 0
    assert worker.metric("trajectory_guard_late_steps_total") >= 0
    wait_until(lambda: worker.metric("trajectory_guard_fleet_lag") == 0, lambda: "there is a lag left")
    assert worker.terminate() == 0


def test_a_backlog_is_read_partition_by_partition_without_a_difference(new_run: NewRun) -> None:
    records, expected = load()
    run = new_run()
    run.feed(records)
    run.start("one")
    run.wait_for(expected)


@pytest.mark.parametrize("disk", ["kept", "empty"])
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_changes_no_verdict(new_run: NewRun, disk: str, seed: int) -> None:
    records, expected = load()
    chance = random.Random(seed)
    run = new_run()
    first = run.start("one")
    place = chance.randrange(len(records) // 3, 2 * len(records) // 3)
    run.feed(records[:place])
    wait_until(some_verdicts(run, chance.uniform(0.05, 0.3)), lambda: f"no verdicts: {first.log[-2_000:]}")
    first.kill()
    run.feed(records[place:])
    if disk == "empty":
        shutil.rmtree(run.state_of("one"))
    second = run.start("one")
    run.wait_for(expected)
    assert second.terminate() == 0


def test_a_worker_joins_and_another_leaves(new_run: NewRun) -> None:
    records, expected = load()
    third = len(records) // 3
    run = new_run()
    first = run.start("one")
    first.wait_until_ready()
    run.feed(records[:third])
    wait_until(some_verdicts(run, 0.05), lambda: f"no verdicts: {first.log[-2_000:]}")
    second = run.start("two")
    second.wait_until_ready()
    run.feed(records[third : 2 * third])
    wait_until(
        lambda: second.metric("trajectory_guard_steps_total") > 0, lambda: f"the second is idle: {second.log[-2_000:]}"
    )
    assert first.terminate() == 0
    run.feed(records[2 * third :])
    run.wait_for(expected)
    assert second.terminate() == 0
