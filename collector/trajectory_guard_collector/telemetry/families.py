"""Prometheus series with bounded label values, and children looked up in a dict to be cheap."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trajectory_guard_collector.telemetry.catalogue import AGENT, OTHER, TOOL, Metric

MAX_LENGTH: Final = 128
"""Characters of a label value."""
SERIES_PER_VALUE: Final = 10
"""Series of a metric per admitted label value; beyond this, new agents and tools become ``other``."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNITS: Final = {"s": "seconds", "By": "bytes"}
_BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {  # seconds
    "trajectory_guard_observe_duration_seconds": (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1),
    "otelcol_processor_internal_duration_seconds": (5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "trajectory_guard_exporter_send_duration_seconds": (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
}
Series = TypeVar("Series", Counter, Gauge, Histogram)


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
