"""The collector's own metrics, for Prometheus; ``catalogue`` defines their names, labels and meanings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Exposed
from prometheus_client.registry import Collector

from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import Metric
from trajectory_guard_collector.telemetry.families import Family, LabelBounds, counter, gauge, histogram

MAX_EXEMPLAR: Final = 100
"""Characters of a trace id in an exemplar; OpenMetrics allows 128 with the label's name."""
_OF_THE_PROCESS: Final = (catalogue.UPTIME, catalogue.MEMORY_RSS, catalogue.CPU_SECONDS)

Reader = Callable[[], float]


class Metrics:
    """Counts and measures by the rows of ``catalogue``. Every method is cheap and may be called from any thread.

    ``labels`` are always all labels of the row; a ``KeyError`` or ``TypeError`` says that they are not.

    Parameters:
        max_label_values: services, agents, tools and other values distinguished for each label; further ones count as
            ``other``.
        more: rows beside those of the catalogue.
    """

    def __init__(self, *, max_label_values: int = 200, more: Iterable[Metric] = ()) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one further series for each counter, of no use to dashboards
        self.registry = CollectorRegistry()
        self.registry.register(_Process())
        overflow = counter(catalogue.LABEL_OVERFLOW, self.registry, None)
        bounds = LabelBounds(max_label_values, lambda label: overflow.child(label).inc())
        self._counters: dict[str, Family[Counter]] = {}
        self._gauges: dict[str, Family[Gauge]] = {}
        self._histograms: dict[str, Family[Histogram]] = {}
        for row in (*catalogue.METRICS, *more):
            if row in _OF_THE_PROCESS or row is catalogue.LABEL_OVERFLOW:
                continue
            if row.kind == "counter":
                self._counters[row.name] = counter(row, self.registry, bounds)
            elif row.kind == "gauge":
                self._gauges[row.name] = gauge(row, self.registry, bounds)
            else:
                self._histograms[row.name] = histogram(row, self.registry, bounds)
        self._watched: dict[Gauge, Reader] = {}
        self._watched_groups: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._before_scrape: list[Callable[[], None]] = []

    def add(self, row: Metric, n: float = 1, /, *, trace_id: str = "", **labels: str) -> None:
        """Add ``n`` to a counter; the trace, if one is given, becomes the exemplar."""
        self._counters[row.name].child(*_values(row, labels)).inc(n, _exemplar(trace_id))

    def observe(self, row: Metric, value: float, /, **labels: str) -> None:
        """Add a value, in the unit of the row, to a histogram."""
        self._histograms[row.name].child(*_values(row, labels)).observe(value)

    def watch(self, row: Metric, read: Reader, /, **labels: str) -> None:
        """Read a gauge at every scrape, in the event loop."""
        self._watched[self._gauges[row.name].child(*_values(row, labels))] = read

    def watch_group(self, row: Metric, read: Callable[[], Mapping[str, float]], /) -> None:
        """Read a gauge with one label at every scrape, for all values of the label at once, in the event loop."""
        self._watched_groups[row.name] = read

    def set(self, row: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._gauges[row.name].child(*_values(row, labels)).set(value)

    def before_scrape(self, update: Callable[[], None], /) -> None:
        """Call ``update`` before every scrape, in the event loop: it adds to counters and sets gauges."""
        self._before_scrape.append(update)

    # --- exposition --------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all series up to date. If a reader fails, its gauge keeps its value and an error is counted."""
        for series, read in list(self._watched.items()):
            self._set(series, read)
        for name, read_group in self._watched_groups.items():
            self._set_group(self._gauges[name], read_group)
        for update in self._before_scrape:
            try:
                update()
            except Exception:  # noqa: BLE001, PERF203  the others must be called too
                self.add(catalogue.ERRORS, where="metrics")

    def _set(self, series: Gauge, read: Reader) -> None:
        try:
            series.set(read())
        except Exception:  # noqa: BLE001  the other gauges must be read too
            self.add(catalogue.ERRORS, where="metrics")

    def _set_group(self, family: Family[Gauge], read: Callable[[], Mapping[str, float]]) -> None:
        try:
            for label_value, value in read().items():
                family.child(label_value).set(value)
        except Exception:  # noqa: BLE001  the other gauges must be read too
            self.add(catalogue.ERRORS, where="metrics")

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, in the format an ``Accept`` header asks for: text or OpenMetrics."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Process(Collector):
    """Values that the operating system reports of this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._started = time.monotonic()

    def collect(self) -> Iterator[Exposed]:
        cpu = self._process.cpu_times()
        yield _counted(catalogue.UPTIME, time.monotonic() - self._started)
        yield _counted(catalogue.CPU_SECONDS, cpu.user + cpu.system)
        memory = catalogue.MEMORY_RSS
        yield GaugeMetricFamily(memory.name, memory.meaning, value=self._process.memory_info().rss, unit="bytes")


def _counted(metric: Metric, value: float) -> Exposed:
    return CounterMetricFamily(metric.name, metric.meaning, value=value, unit="seconds")


def _exemplar(trace_id: str) -> dict[str, str] | None:
    return {"trace_id": trace_id} if 0 < len(trace_id) <= MAX_EXEMPLAR else None


def _values(row: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Label values in the order of the row."""
    if len(labels) != len(row.labels):
        raise TypeError(f"{row.name} has the labels {row.labels}, got {tuple(labels)}")
    return tuple([labels[name] for name in row.labels])
