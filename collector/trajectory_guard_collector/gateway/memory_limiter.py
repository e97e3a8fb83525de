"""Refuse data before memory runs out."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import psutil

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config import models as configuration
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_MIB: Final = 1 << 20
_SPIKE_SHARE: Final = 0.2
_LOOK_INTERVAL_S: Final = 0.05
_USEFUL_SHARE: Final = 0.02
_COPIES: Final = 2
"""Copies of a request in memory while it is read: one in the transport, one in the collector."""
_MAX_PAUSE_S: Final = 60.0

logger = logging.getLogger(__name__)


def process_rss() -> int:
    """Resident memory of this process in bytes."""
    return int(_this_process().memory_info().rss)


def available_memory() -> int:
    """Memory this process may use in bytes: the machine's, or its cgroup's if that is less."""
    return min(int(psutil.virtual_memory().total), cgroup_limit() or math.inf)  # type: ignore[return-value]


def cgroup_limit(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int | None:
    """Memory limit of the process's cgroup or one above it, version 1 or 2, in bytes; None if there is none."""
    limits = [int(text) for file in _limit_files(root, membership) if (text := _read(file)).isdigit()]
    return min(limits, default=None)


class MemoryLimiter:
    """Watches the resident memory, and refuses data from the soft limit on, which is the hard limit less the spike
    limit, and below it if the requests being read would reach it. Above the soft limit it also sheds memory and
    returns free memory to the system; attempts without effect become rarer.

    Parameters:
        config: the ``memory_limiter`` section.
        metrics: counts contained errors.
        rss: resident memory in bytes.
        total: memory that ``limit_percentage`` is a share of, in bytes.
        clock: seconds, monotonic.
        shed: frees memory that can be spared; returns whether there was any.

    Raises:
        ConfigError: the spike limit leaves nothing of the hard limit.
    """

    def __init__(
        self,
        config: configuration.MemoryLimiter,
        metrics: Metrics,
        *,
        rss: Callable[[], int] = process_rss,
        total: Callable[[], int] = available_memory,
        clock: Callable[[], float] = time.monotonic,
        shed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._rss = rss
        self._clock = clock
        self._shed = shed
        self._log = ThrottledLog(logger)
        self.hard_limit, self.soft_limit = _limits(config, total)
        self._used = 0
        self._reading = 0
        self._unseen = 0
        self._looked_at = -math.inf
        self._short = False
        self._was_short = False
        self._pause_s = config.check_interval_s
        self._reclaimed_at = -math.inf
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to watch."""
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching. Callable at any time."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    def refuse(self, size: int = 0) -> str | None:
        """Reason to refuse ``size`` more bytes now, None if they can be accepted. Cheap enough for every request.

        Below the soft limit a request that would be read alone is accepted regardless of its size, since it would fit
        at no other time. Without a size only the resident memory counts, which decides whether to continue reading.
        """
        stale = self._clock() - self._looked_at >= min(_LOOK_INTERVAL_S, self._config.check_interval_s)
        if stale or (size and not self._fits(size)):
            self._look()
        if self._short:
            return f"memory: {self._used // _MIB} MiB in use, soft limit {self.soft_limit // _MIB} MiB"
        if size and self._reading and not self._fits(size):
            used, reading = self._used // _MIB, self._reading // _MIB
            return f"memory: {used} MiB in use, {reading} MiB being read, soft limit {self.soft_limit // _MIB} MiB"
        return None

    @contextmanager
    def reading(self, size: int) -> Iterator[None]:
        """Context for reading a request of about ``size`` bytes, which are not resident yet."""
        size *= _COPIES
        self._reading += size
        try:
            yield
        finally:
            self._reading -= size
            self._unseen += size

    def check(self) -> None:
        """Read the memory, and shed some if it is short; repeat as long as that has an effect."""
        self._look()
        if self._short:
            self._was_short = True
        else:
            self._pause_s = self._config.check_interval_s
        if self._was_short and self._clock() - self._reclaimed_at >= self._pause_s:
            self._reclaim()

    def _fits(self, size: int) -> bool:
        return self._used + self._unseen + self._reading + size * _COPIES <= self.soft_limit

    async def _watch(self) -> None:
        while True:
            try:
                self.check()
            except Exception as error:  # noqa: BLE001  the service continues without the limiter
                self._log.log(logging.ERROR, "look", f"memory limiter: the resident memory cannot be read: {error}")
                self._metrics.error("memory_limiter")
            await asyncio.sleep(self._config.check_interval_s)

    def _look(self) -> None:
        self._used = self._rss()
        self._unseen = 0
        self._looked_at = self._clock()
        short = self._used >= self.soft_limit
        if short != self._short:
            self._short = short
            level, text = (logging.WARNING, "refusing data") if short else (logging.INFO, "taking data again")
            logger.log(level, "memory: %d MiB, limit %d MiB: %s", self._used // _MIB, self.soft_limit // _MIB, text)

    def _reclaim(self) -> None:
        before, shed = self._used, False
        if self._short:
            shed = self._shed()
            gc.collect()
        _give_back()
        self._look()
        self._reclaimed_at = self._clock()
        useful = shed or before - self._used >= _USEFUL_SHARE * before
        self._was_short = self._short or useful
        self._pause_s = self._config.check_interval_s if useful else min(2.0 * self._pause_s, _MAX_PAUSE_S)


def unusable_limit(
    config: configuration.MemoryLimiter,
    *,
    rss: Callable[[], int] = process_rss,
    total: Callable[[], int] = available_memory,
) -> str | None:
    """The reason why a collector would refuse everything from the start, None if it would not.

    Call it after the modules of the collector were imported, before it holds any data.
    """
    hard, soft = _limits(config, total)
    used = rss()
    if used < soft:
        return None
    key = f"limit_mib: {config.limit_mib:g}" if config.limit_mib else f"limit_percentage: {config.limit_percentage:g}"
    return (
        f"memory_limiter.{key}: data is refused from {soft // _MIB} of {hard // _MIB} MiB on, and the collector needs "
        f"{math.ceil(used / _MIB)} MiB before it holds any"
    )


@cache
def _this_process() -> psutil.Process:
    """Created once: psutil reads the start time of the process, which takes longer than reading its memory."""
    return psutil.Process()


def _limits(config: configuration.MemoryLimiter, total: Callable[[], int]) -> tuple[int, int]:
    hard = int(config.limit_mib * _MIB) or int(total() * config.limit_percentage / 100.0)
    spike = int(config.spike_limit_mib * _MIB) or int(hard * _SPIKE_SHARE)
    if spike >= hard:
        raise ConfigError(
            f"memory_limiter.spike_limit_mib: {config.spike_limit_mib} leaves nothing of {hard // _MIB} MiB"
        )
    return hard, hard - spike


def _give_back() -> None:
    """Make glibc return free memory to the system, since it counts as resident until then."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _limit_files(root: Path, membership: Path) -> Iterator[Path]:
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        yield from (folder / name for folder in (group, *group.parents) if folder.is_relative_to(base))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
