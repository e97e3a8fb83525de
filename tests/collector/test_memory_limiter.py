from __future__ import annotations

import asyncio
import itertools
import logging
import re
from pathlib import Path

import psutil
import pytest

from tests.collector.receiver_helpers import eventually
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.models import MemoryLimiter as Config
from trajectory_guard_collector.gateway.memory_limiter import (
    MemoryLimiter,
    available_memory,
    cgroup_limit,
    process_rss,
    unusable_limit,
)
from trajectory_guard_collector.telemetry.metrics import Metrics

MIB = 1 << 20


class Memory:
    """Resident memory and a clock, in hand."""

    def __init__(self) -> None:
        self.used = 10 * MIB
        self.now = 100.0
        self.looks = 0

    def rss(self) -> int:
        self.looks += 1
        return self.used

    def limiter(self, **settings: float) -> MemoryLimiter:
        config = Config(**{"limit_mib": 100.0, **settings})
        return MemoryLimiter(config, Metrics(), rss=self.rss, total=lambda: 1000 * MIB, clock=lambda: self.now)


def test_refuses_from_the_soft_limit_on_and_takes_data_again_below() -> None:
    memory = Memory()
    limiter = memory.limiter()
    assert limiter.refuse() is None
    memory.used, memory.now = 80 * MIB, memory.now + 1.0
    assert limiter.refuse() == "memory: 80 MiB in use, soft limit 80 MiB"
    memory.used, memory.now = 79 * MIB, memory.now + 1.0
    assert limiter.refuse() is None


def test_a_burst_is_seen_between_two_checks() -> None:
    memory = Memory()
    limiter = memory.limiter(check_interval_s=60.0)
    assert limiter.refuse() is None
    memory.used, memory.now = 90 * MIB, memory.now + 0.1
    assert limiter.refuse() is not None


def test_asking_often_does_not_look_often() -> None:
    memory = Memory()
    limiter = memory.limiter()
    for _ in range(1000):
        limiter.refuse()
    assert memory.looks == 1


def test_what_is_being_read_counts() -> None:
    """A burst of requests that were all let in, because none of them was there yet, went far beyond the hard limit."""
    memory = Memory()
    limiter = memory.limiter()
    with limiter.reading(20 * MIB):
        assert limiter.refuse(10 * MIB) is None
        with limiter.reading(10 * MIB):
            assert limiter.refuse(10 * MIB) == "memory: 10 MiB in use, 60 MiB being read, soft limit 80 MiB"
        memory.used = 20 * MIB
        assert limiter.refuse(10 * MIB) is None, "looked again: it is there now"
    memory.used = 30 * MIB
    assert limiter.refuse(30 * MIB) is None
    assert limiter.refuse(500 * MIB) is None, "alone, or never"
    with limiter.reading(500 * MIB):
        assert limiter.refuse() is None, "what is let in is read to its end"


def test_what_was_just_read_counts_before_it_is_seen() -> None:
    memory = Memory()
    limiter = memory.limiter()
    limiter.refuse()
    with limiter.reading(30 * MIB):
        memory.used = 85 * MIB
    assert limiter.refuse(10 * MIB) == "memory: 85 MiB in use, soft limit 80 MiB"


def test_memory_is_given_back_after_it_was_short(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, given = Memory(), []

    def give_back() -> None:
        given.append(memory.now)
        memory.used = max(20 * MIB, memory.used - 20 * MIB)

    monkeypatch.setattr("trajectory_guard_collector.gateway.memory_limiter._give_back", give_back)
    limiter = memory.limiter()
    for used in (90, None, None, None, None, None, None):
        memory.used, memory.now = used * MIB if used else memory.used, memory.now + 1.0
        limiter.check()
    assert memory.used == 20 * MIB
    assert len(given) == 5, "until it does not help any more"


def test_limits() -> None:
    memory = Memory()
    assert memory.limiter(spike_limit_mib=30.0).soft_limit == 70 * MIB
    share = memory.limiter(limit_mib=0.0, limit_percentage=50.0)
    assert (share.hard_limit, share.soft_limit) == (500 * MIB, 400 * MIB)
    with pytest.raises(ConfigError, match=r"memory_limiter\.spike_limit_mib: 600\.0"):
        memory.limiter(limit_mib=0.0, limit_percentage=50.0, spike_limit_mib=600.0)


def test_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    limiter = memory.limiter()
    with caplog.at_level(logging.INFO):
        for used in (10, 90, 95, 90, 10, 10):
            memory.used, memory.now = used * MIB, memory.now + 1.0
            limiter.check()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_useless_collections_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, collected = Memory(), []
    monkeypatch.setattr("gc.collect", lambda: collected.append(memory.now))
    limiter = memory.limiter()
    memory.used = 110 * MIB
    for _ in range(200):
        memory.now += 1.0
        limiter.check()
    pauses = [later - earlier for earlier, later in itertools.pairwise(collected)]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_useful_collections_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, collected = Memory(), []

    def collect() -> None:
        collected.append(memory.now)
        memory.used = 85 * MIB

    monkeypatch.setattr("gc.collect", collect)
    limiter = memory.limiter()
    for _ in range(10):
        memory.used, memory.now = 110 * MIB, memory.now + 1.0
        limiter.check()
    assert len(collected) == 10


async def test_watches_by_itself_and_survives_errors() -> None:
    memory, metrics = Memory(), Metrics()
    failures = [OSError("no /proc")]

    def rss() -> int:
        if failures:
            raise failures.pop()
        return memory.rss()

    config = Config(check_interval_s=0.01, limit_mib=100.0)
    limiter = MemoryLimiter(config, metrics, rss=rss)
    await limiter.start()
    await eventually(lambda: memory.looks >= 3)
    await limiter.stop()
    await limiter.stop()
    assert (
        metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "memory_limiter"}
        )
        == 1.0
    )
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_real_memory_goes_up_and_comes_down() -> None:
    base = process_rss()
    config = Config(limit_mib=(base / MIB) + 100.0, spike_limit_mib=40.0, check_interval_s=0.02)
    limiter = MemoryLimiter(config, Metrics())
    await limiter.start()
    assert limiter.refuse() is None
    held = [b"x" * 50_000 for _ in range(2_000)]
    await eventually(lambda: limiter.refuse() is not None)
    kept = held[::50]  # the free memory lies between what is still in use
    held.clear()
    await eventually(lambda: limiter.refuse() is None)
    assert len(kept) == 40
    await limiter.stop()


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a/b", {"a/b/memory.max": "max\n", "a/memory.max": "500\n"}, 500),
        ("0::/a/b", {"a/b/memory.max": "300\n", "a/memory.max": "500\n"}, 300),
        ("0::/", {"memory.max": "700\n"}, 700),
        ("0::/", {}, None),
        ("0::/a", {"a/memory.max": "max\n"}, None),
        ("5:cpu:/x\n4:hugetlb,memory:/x", {"memory/x/memory.limit_in_bytes": "900\n"}, 900),
        ("4:memory:/docker/abc", {"memory/memory.limit_in_bytes": "800\n"}, 800),
        ("", {}, None),
    ],
)
def test_limit_of_the_cgroup(tmp_path: Path, membership: str, files: dict[str, str], limit: int | None) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cgroup_limit(tmp_path / "root", tmp_path / "membership") == limit


def test_available_memory_is_at_most_the_machine() -> None:
    assert 0 < available_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    "settings, key",
    [
        ({"limit_mib": 10.0}, r"limit_mib: 10: data is refused from 8 of 10 MiB on, .* 78 MiB"),
        ({"limit_mib": 90.0}, r"limit_mib: 90: data is refused from 72 of 90"),
        ({"limit_mib": 100.0, "spike_limit_mib": 22.0}, r"limit_mib: 100: "),
        ({"limit_percentage": 1.0}, r"limit_percentage: 1: "),
    ],
)
def test_a_limit_that_refuses_everything_from_the_start_is_an_error(settings: dict[str, float], key: str) -> None:
    found = unusable_limit(Config(**settings), rss=lambda: 78 * MIB, total=lambda: 1_000 * MIB)
    assert found is not None
    assert re.search(rf"memory_limiter\.{key}", found)


@pytest.mark.parametrize("settings", [{"limit_mib": 98.0}, {"limit_mib": 500.0}, {"limit_percentage": 50.0}, {}])
def test_a_limit_with_room_is_none(settings: dict[str, float]) -> None:
    assert unusable_limit(Config(**settings), rss=lambda: 78 * MIB, total=lambda: 1_000 * MIB) is None
