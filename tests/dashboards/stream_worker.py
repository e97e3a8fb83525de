"""The endpoint of a stream worker as Prometheus sees it, with values that a test sets, since no Kafka runs beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.dashboards.programs import free_port
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.endpoints import application, serving
from trajectory_guard_collector.telemetry import catalogue as common
from trajectory_guard_collector.telemetry.metrics import Metrics

RECORDS_PER_S: Final = 1_000.0
LAG: Final = {"spans": 2_000.0, "operations": 500_000.0}
"""Records; how far the worker in trouble is behind."""


class StreamWorker:
    """A worker that reads ``RECORDS_PER_S`` records a second of each topic, at first without any trouble."""

    def __init__(self) -> None:
        self.metrics = Metrics(more=catalogue.METRICS)
        self.address = f"127.0.0.1:{free_port()}"
        self._ready, self._share, self._lag = True, 0.1, dict.fromkeys(LAG, 500.0)
        self._seen = time.monotonic()
        self.metrics.watch(catalogue.READY, lambda: float(self._ready))
        self.metrics.watch_group(catalogue.LAG, lambda: self._lag)
        self.metrics.watch_group(catalogue.LIVE, lambda: {"trace": 30.0, "trajectory": 20.0})
        self.metrics.watch(catalogue.FLAGS, lambda: 20.0)
        self.metrics.before_scrape(self._work)
        self.metrics.add(common.LATE_STEPS, 5, how="reordered")
        self.metrics.add(common.REEVALUATED_STEPS, 8)

    def _work(self) -> None:
        now = time.monotonic()
        passed, self._seen = now - self._seen, now
        self.metrics.add(catalogue.COMMITS, passed)
        self.metrics.add(catalogue.COMMIT_SECONDS, self._share * passed)
        for topic in LAG:
            self.metrics.add(catalogue.RECORDS, RECORDS_PER_S * passed, topic=topic)
        self.metrics.add(catalogue.WRITTEN, RECORDS_PER_S * passed, topic="verdicts")

    def get_into_trouble(self) -> None:
        """It is full, far behind, excluded from its group, and reads rubbish and steps that are too late."""
        self._ready, self._share, self._lag = False, 0.9, LAG
        self.metrics.add(catalogue.DEAD_LETTERS, 2, topic="spans")
        self.metrics.add(common.LATE_STEPS, 3, how="too_late")
        self.metrics.add(common.DUPLICATES, 4)
        self.metrics.add(catalogue.RESTORE, 1.5)
        self.metrics.add(catalogue.FLAG_EVICTIONS, 2, trajectory_guard_eviction_reason="full")


@contextmanager
def stream_worker() -> Iterator[StreamWorker]:
    """A worker whose endpoint answers."""
    one = StreamWorker()
    with serving(one.address, application(one.metrics, alive=lambda: True, ready=lambda: one._ready)):
        yield one
