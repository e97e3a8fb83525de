"""The collector's own metrics, for Prometheus; ``catalogue`` defines their names, labels and meanings.

Label values are bounded, and series are looked up in a dict to be cheap. ``ScoringCounts`` adds to those of scoring.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Exposed
from prometheus_client.registry import Collector

from trajectory_guard import telemetry as guard
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import AGENT, OTHER, TOOL, Metric
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
MAX_EXEMPLAR: Final = 100
"""Characters of a trace id in an exemplar; OpenMetrics allows 128 with the label's name."""
_OF_THE_PROCESS: Final = (catalogue.UPTIME, catalogue.MEMORY_RSS, catalogue.CPU_SECONDS)

Reader = Callable[[], float]
MAX_LENGTH: Final = 128
"""Characters of a label value."""
SERIES_PER_VALUE: Final = 10
"""Series of a metric per admitted label value; beyond this, new agents and tools become ``other``."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNITS: Final = {"s": "seconds", "By": "bytes"}
_BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {  # seconds
    "trajectory_guard_observe_duration_seconds": guard.LATENCY_BOUNDS_S,
    "otelcol_processor_internal_duration_seconds": (5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "trajectory_guard_exporter_send_duration_seconds": (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
}
Series = TypeVar("Series", Counter, Gauge, Histogram)


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
        self._throttled = ThrottledLog(_log)
        self._watched: dict[Gauge, Reader] = {}
        self._watched_groups: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._before_scrape: list[Callable[[], None]] = []

    def add(self, row: Metric, n: float = 1, /, *, trace_id: str = "", **labels: str) -> None:
        """Add ``n`` to a counter; the trace, if one is given, becomes the exemplar."""
        series = self._counters[row.name].child(*_values(row, labels))
        if 0 < len(trace_id) <= MAX_EXEMPLAR:
            series.inc(n, {"trace_id": trace_id})
        else:
            series.inc(n)

    def error(self, where: str, n: float = 1) -> None:
        """Count ``n`` errors of the collector itself that were contained at a place in the code."""
        self.series(catalogue.ERRORS, where).inc(n)

    def series(self, row: Metric, /, *values: str) -> Counter:
        """The series of a counter with these label values, in the order of the row's labels: for what is counted with
        each span or record, since it takes half of the time of ``add``."""
        return self._counters[row.name].child(*values)

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
            except Exception as error:  # noqa: BLE001, PERF203  the others must be called too
                self._contain(update, error)

    def _set(self, series: Gauge, read: Reader) -> None:
        try:
            series.set(read())
        except Exception as error:  # noqa: BLE001  the other gauges must be read too
            self._contain(read, error)

    def _set_group(self, family: Family[Gauge], read: Callable[[], Mapping[str, float]]) -> None:
        try:
            for label_value, value in read().items():
                family.child(label_value).set(value)
        except Exception as error:  # noqa: BLE001  the other gauges must be read too
            self._contain(read, error)

    def _contain(self, reader: Callable[..., Any], error: Exception) -> None:
        self.error("metrics")
        name = getattr(reader, "__qualname__", repr(reader))
        self._throttled.log(logging.ERROR, name, f"a metric cannot be read by {name}: {error!r}")

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


def _values(row: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Label values in the order of the row."""
    if len(labels) != len(row.labels):
        raise TypeError(f"{row.name} has the labels {row.labels}, got {tuple(labels)}")
    return tuple(map(labels.__getitem__, row.labels))


class LabelBounds:
    """Admits the first ``limit`` values of each label; further ones become ``other``.

    Parameters:
        limit: number of distinct values for each label name.
        overflowed: called with the label's name for each value that became ``other``.
    """

    def __init__(self, limit: int, overflowed: Callable[[str], None]) -> None:
        self.limit = limit
        self.overflowed = overflowed
        self._admitted: dict[str, set[str]] = {}

    def admit(self, label: str, value: str) -> str:
        """``value``, or ``other`` if the label has enough values."""
        values = self._admitted.setdefault(label, set())
        if value in values:
            return value
        if len(values) < self.limit:
            values.add(value)
            return value
        self.overflowed(label)
        return OTHER

    def as_other(self, label: str, value: str) -> str:
        """``other`` for agents and tools; values of all other labels unchanged."""
        if label not in (AGENT, TOOL) or value == OTHER:
            return value
        self.overflowed(label)
        return OTHER


class Family(Generic[Series]):
    """One metric with all its series.

    Parameters:
        metric: the row of ``catalogue``.
        parent: the metric object of ``prometheus_client``.
        bounds: bound of its label values; None for a metric whose label values the collector alone sets.
    """

    def __init__(self, metric: Metric, parent: Series, bounds: LabelBounds | None) -> None:
        self._labels = metric.labels
        self._parent: Series = parent
        self._bounds = bounds
        self._lock = threading.Lock()
        self._children: dict[tuple[str, ...], Series] = {} if metric.labels else {(): parent}

    def child(self, *values: str) -> Series:
        """The series with these label values, in the order of the metric's labels. Cheap for values seen before."""
        try:
            return self._children[values]
        except KeyError:
            return self._find(values)

    def _find(self, values: tuple[str, ...]) -> Series:
        with self._lock:
            admitted = self._admitted(tuple(map(clean, values)))
            if admitted not in self._children:
                self._children[admitted] = self._parent.labels(*admitted)
            return self._children[admitted]

    def _admitted(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        bounds = self._bounds
        if bounds is None:
            return wanted
        admitted = tuple(map(bounds.admit, self._labels, wanted))
        if admitted in self._children or len(self._children) < SERIES_PER_VALUE * bounds.limit:
            return admitted
        return tuple(map(bounds.as_other, self._labels, admitted))


def counter(metric: Metric, registry: CollectorRegistry, bounds: LabelBounds | None) -> Family[Counter]:
    """A family of counters, exposed by ``registry``."""
    return Family(
        metric, Counter(metric.name, metric.meaning, metric.labels, unit=_unit(metric), registry=registry), bounds
    )


def gauge(metric: Metric, registry: CollectorRegistry, bounds: LabelBounds | None) -> Family[Gauge]:
    """A family of gauges, exposed by ``registry``."""
    return Family(
        metric, Gauge(metric.name, metric.meaning, metric.labels, unit=_unit(metric), registry=registry), bounds
    )


def histogram(metric: Metric, registry: CollectorRegistry, bounds: LabelBounds | None) -> Family[Histogram]:
    """A family of histograms, exposed by ``registry``."""
    buckets = _BUCKETS[metric.name]
    parent = Histogram(
        metric.name, metric.meaning, metric.labels, unit=_unit(metric), registry=registry, buckets=buckets
    )
    return Family(metric, parent, bounds)


def _unit(metric: Metric) -> str:
    return _UNITS.get(metric.unit, "")


def clean(value: str) -> str:
    """The label value with bounded length, valid encoding and no control characters."""
    return _CONTROL.sub("\ufffd", value[:MAX_LENGTH]).encode("utf-8", "replace").decode("utf-8")


class ScoringCounts:
    """Adds to the metrics of a collector.

    Parameters:
        metrics: where the counts go.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing: requests replayed after a restart were counted before it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _add(self, row: Metric, n: float = 1, /, **labels: Any) -> None:
        if not self._paused:
            self._metrics.add(row, n, **labels)

    def _add_one(self, row: Metric, /, *values: str) -> None:
        if not self._paused:
            self._metrics.series(row, *values).inc()

    def error(self, where: str) -> None:
        """Count an error of the collector itself that was contained, also in a request that is replayed."""
        self._metrics.error(where)

    def step(self, service: str) -> None:
        """Count an evaluated tool call."""
        self._add_one(catalogue.STEPS, service)

    def fingerprinted(self, service: str) -> None:
        """Count a tool call that was too long to be understood in full."""
        self._add_one(catalogue.FINGERPRINTED, service)

    def detection(self, service: str, loop_type: str) -> None:
        """Count a finding of a detector."""
        self._add_one(catalogue.DETECTIONS, service, loop_type)

    def intervention(
        self, level: str, service: str, agent: str, tool: str, loop_type: str, trace_id: str, certainty: str
    ) -> None:
        """Count a nudge or a stop that became due."""
        self._add(
            catalogue.INTERVENTIONS, trace_id=trace_id, service_name=service, trajectory_guard_intervention=level,
            gen_ai_agent_name=agent, gen_ai_tool_name=tool, trajectory_guard_loop_type=loop_type,
            trajectory_guard_loop_certainty=certainty,
        )  # fmt: skip

    def episode(self, service: str, agent: str, tool: str, loop_type: str, trace_id: str, certainty: str) -> None:
        """Count a loop that began."""
        self._add(
            catalogue.EPISODES, trace_id=trace_id, service_name=service, gen_ai_agent_name=agent,
            gen_ai_tool_name=tool, trajectory_guard_loop_type=loop_type, trajectory_guard_loop_certainty=certainty,
        )  # fmt: skip

    def recovery(self, service: str, agent: str) -> None:
        """Count an agent that left a loop after a nudge."""
        self._add(catalogue.RECOVERIES, service_name=service, gen_ai_agent_name=agent)

    def loop_spent(self, service: str, certainty: str, steps: int, tokens: int, cost_usd: float) -> None:
        """Count steps, tokens and US dollars spent inside loops since the last call."""
        labels = {"service_name": service, "trajectory_guard_loop_certainty": certainty}
        self._add(catalogue.LOOP_STEPS, steps, **labels)
        self._add(catalogue.LOOP_TOKENS, tokens, **labels)
        self._add(catalogue.LOOP_COST, cost_usd, **labels)

    def duplicate(self) -> None:
        """Count a second record of a call, which was ignored."""
        self._add_one(catalogue.DUPLICATES)

    def postponed(self) -> None:
        """Count a trajectory whose evaluation a request could not wait for."""
        self._add(catalogue.POSTPONED)

    def late(self, how: str) -> None:
        """Count a step that arrived out of order: ``reordered`` or ``too_late``."""
        self._add_one(catalogue.LATE_STEPS, how)

    def evaluated_again(self) -> None:
        """Count a step that was evaluated again."""
        self._add_one(catalogue.REEVALUATED_STEPS)

    def eviction(self, reason: str) -> None:
        """Count an evicted trajectory; the catalogue has the reasons."""
        self._add_one(catalogue.EVICTIONS, reason)

    def evicted_runs(self, runs: int) -> None:
        """Count runs that were evicted because their trajectory has too many."""
        if runs:
            self._add(catalogue.EVICTED_RUNS, runs)
