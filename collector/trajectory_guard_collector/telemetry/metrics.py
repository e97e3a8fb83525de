"""The collector's own metrics, for Prometheus. What there is and what it means is in ``telemetry``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Exposed
from prometheus_client.registry import Collector

from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry import catalogue as telemetry
from trajectory_guard_collector.telemetry.families import Family, LabelBounds, counter, gauge, histogram

RECEIVER: Final = "otlp"
PROCESSOR: Final = "trajectory_guard"
MAX_EXEMPLAR: Final = 100
"""Characters of a trace id in an exemplar; OpenMetrics allows 128 with the label's name."""

Reader = Callable[[], float]
Families = Mapping[Signal, Family[Counter]]


class Metrics:
    """Counts what happens; every method is cheap and may be called from any thread.

    Parameters:
        max_label_values: services, agents, tools and other values told apart for each label; further ones count as
            ``other``.
    """

    def __init__(self, *, max_label_values: int = 200) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one further series for each counter, of no use to dashboards
        self.registry = CollectorRegistry()
        self._overflow = counter(telemetry.LABEL_OVERFLOW, self.registry, None)
        self._bounds = LabelBounds(max_label_values, lambda label: self._overflow.child(label).inc())
        self._watched: dict[Gauge, Reader] = {}
        self._by_score: Callable[[], Mapping[str, int]] = dict
        self.registry.register(_Process())
        self._make_transport()
        self._make_guard()

    def _make_transport(self) -> None:
        self._accepted = self._per_signal(telemetry.ACCEPTED)
        self._refused = self._per_signal(telemetry.REFUSED)
        self._failed = self._per_signal(telemetry.FAILED)
        self._requests = self._counter(telemetry.REQUESTS)
        self._sent = self._per_signal(telemetry.SENT)
        self._send_failed = self._per_signal(telemetry.SEND_FAILED)
        self._enqueue_failed = self._per_signal(telemetry.ENQUEUE_FAILED)
        self._retries = self._counter(telemetry.RETRIES)
        self._send_duration = self._histogram(telemetry.SEND_DURATION)
        self._queue_size = self._gauge(telemetry.QUEUE_SIZE)
        self._queue_capacity = self._gauge(telemetry.QUEUE_CAPACITY)
        self._in_flight = self._gauge(telemetry.IN_FLIGHT)
        self._incoming = self._counter(telemetry.INCOMING)
        self._outgoing = self._counter(telemetry.OUTGOING)
        self._judge_duration = self._histogram(telemetry.JUDGE_DURATION)
        self._limiter_refused = self._per_signal(telemetry.LIMITER_REFUSED)
        self._errors = self._counter(telemetry.ERRORS)

    def _make_guard(self) -> None:
        self._steps = self._counter(telemetry.STEPS)
        self._detections = self._counter(telemetry.DETECTIONS)
        self._interventions = self._counter(telemetry.INTERVENTIONS)
        self._episodes = self._counter(telemetry.EPISODES)
        self._recoveries = self._counter(telemetry.RECOVERIES)
        self._active = self._gauge(telemetry.ACTIVE)
        self._scores = self._gauge(telemetry.BY_SCORE)
        self._evictions = self._counter(telemetry.EVICTIONS)
        self._duplicates = self._counter(telemetry.DUPLICATES)
        self._fingerprinted = self._counter(telemetry.FINGERPRINTED)
        self._evicted_runs = self._counter(telemetry.EVICTED_RUNS)
        self._late = self._counter(telemetry.LATE_STEPS)
        self._rejudged = self._counter(telemetry.REJUDGED_STEPS)
        self._latency = self._histogram(telemetry.LATENCY)
        self._loop_steps = self._counter(telemetry.LOOP_STEPS)
        self._loop_tokens = self._counter(telemetry.LOOP_TOKENS)
        self._loop_cost = self._counter(telemetry.LOOP_COST)
        self._flag_requests = self._counter(telemetry.FLAG_REQUESTS)
        self._scores_sent = self._counter(telemetry.SCORES_SENT)
        self._scores_failed = self._counter(telemetry.SCORES_FAILED)
        self._scores_waiting = self._gauge(telemetry.SCORES_WAITING)
        self._score_attempts_failed = self._counter(telemetry.SCORE_ATTEMPTS_FAILED)

    def _counter(self, metric: telemetry.Metric) -> Family[Counter]:
        return counter(metric, self.registry, self._bounds)

    def _gauge(self, metric: telemetry.Metric) -> Family[Gauge]:
        return gauge(metric, self.registry, self._bounds)

    def _histogram(self, metric: telemetry.Metric) -> Family[Histogram]:
        return histogram(metric, self.registry, self._bounds)

    def _per_signal(self, metrics: telemetry.PerSignal) -> Families:
        return {signal: self._counter(metric) for signal, metric in metrics.items()}

    # --- receivers ---------------------------------------------------------------------------------------------------

    def accepted(self, signal: Signal, transport: str, items: int) -> None:
        """Items taken over; ``transport`` is ``grpc`` or ``http``."""
        self._accepted[signal].child(RECEIVER, transport).inc(items)

    def refused(self, signal: Signal, transport: str, items: int) -> None:
        """Items the pipeline said no to; the sender still has them."""
        self._refused[signal].child(RECEIVER, transport).inc(items)

    def failed(self, signal: Signal, transport: str, items: int) -> None:
        """Items not taken over because of an own error."""
        self._failed[signal].child(RECEIVER, transport).inc(items)

    def request(self, transport: str, status: str) -> None:
        """A request was answered with a gRPC code name or an HTTP status."""
        self._requests.child(RECEIVER, transport, status).inc()

    # --- exporters ---------------------------------------------------------------------------------------------------

    def sent(self, exporter: str, signal: Signal, items: int) -> None:
        """Items the backend has."""
        self._sent[signal].child(exporter).inc(items)

    def send_failed(self, exporter: str, signal: Signal, items: int) -> None:
        """Items given up for this backend."""
        self._send_failed[signal].child(exporter).inc(items)

    def enqueue_failed(self, exporter: str, signal: Signal, items: int) -> None:
        """Items refused because the exporter's queue is full."""
        self._enqueue_failed[signal].child(exporter).inc(items)

    def retried(self, exporter: str) -> None:
        """One more attempt after a failure."""
        self._retries.child(exporter).inc()

    def send_duration(self, exporter: str, seconds: float) -> None:
        """Duration of one attempt."""
        self._send_duration.child(exporter).observe(seconds)

    def watch_exporter(self, name: str, *, size: Reader, capacity: Reader, in_flight: Reader) -> None:
        """Read an exporter's queue at every scrape, in the event loop."""
        self._watched[self._queue_size.child(name)] = size
        self._watched[self._queue_capacity.child(name)] = capacity
        self._watched[self._in_flight.child(name)] = in_flight

    def scores_sent(self, exporter: str, scores: int) -> None:
        """Scores Langfuse has."""
        self._scores_sent.child(exporter).inc(scores)

    def scores_failed(self, exporter: str, scores: int) -> None:
        """Scores given up."""
        self._scores_failed.child(exporter).inc(scores)

    def score_attempt_failed(self, exporter: str, status: str) -> None:
        """Langfuse did not take scores, or not yet: an HTTP status or another word for what happened."""
        self._score_attempts_failed.child(exporter, status).inc()

    def watch_scores(self, exporter: str, waiting: Reader) -> None:
        """Read the number of waiting scores at every scrape, in the event loop."""
        self._watched[self._scores_waiting.child(exporter)] = waiting

    # --- pipeline ----------------------------------------------------------------------------------------------------

    def incoming(self, signal: Signal, items: int) -> None:
        """Items given to the judge."""
        self._incoming.child(PROCESSOR, signal.value).inc(items)

    def outgoing(self, signal: Signal, items: int) -> None:
        """Items that left it."""
        self._outgoing.child(PROCESSOR, signal.value).inc(items)

    def judge_duration(self, seconds: float, spans: int) -> None:
        """A request was judged and tagged in ``seconds``; ``spans`` of it were of agents."""
        self._judge_duration.child(PROCESSOR).observe(seconds)
        if spans:
            self._latency.child().observe(seconds / spans)

    def limiter_refused(self, signal: Signal, items: int) -> None:
        """Items refused because memory is short."""
        self._limiter_refused[signal].child().inc(items)

    def error(self, where: str) -> None:
        """An own error was contained."""
        self._errors.child(where).inc()

    # --- judging -----------------------------------------------------------------------------------------------------

    def step(self, service: str) -> None:
        """A tool call was judged."""
        self._steps.child(service).inc()

    def fingerprinted(self, service: str) -> None:
        """A tool call was too long to be understood in full."""
        self._fingerprinted.child(service).inc()

    def detection(self, service: str, loop_type: str) -> None:
        """A detector found something."""
        self._detections.child(service, loop_type).inc()

    def intervention(self, level: str, service: str, agent: str, tool: str, loop_type: str, trace_id: str) -> None:
        """A nudge or a stop became due; the trace becomes the exemplar."""
        self._interventions.child(service, level, agent, tool, loop_type).inc(exemplar=_exemplar(trace_id))

    def episode(self, service: str, agent: str, tool: str, loop_type: str, trace_id: str) -> None:
        """A loop began; the trace becomes the exemplar."""
        self._episodes.child(service, agent, tool, loop_type).inc(exemplar=_exemplar(trace_id))

    def recovery(self, service: str, agent: str) -> None:
        """An agent left a loop after a nudge."""
        self._recoveries.child(service, agent).inc()

    def loop_spent(self, service: str, steps: int, tokens: int, cost_usd: float) -> None:
        """Spent inside loops since the last call."""
        self._loop_steps.child(service).inc(steps)
        self._loop_tokens.child(service).inc(tokens)
        self._loop_cost.child(service).inc(cost_usd)

    def duplicate(self) -> None:
        """A second record of a call was ignored."""
        self._duplicates.child().inc()

    def late(self, how: str) -> None:
        """A step arrived out of order: ``reordered`` or ``too_late``."""
        self._late.child(how).inc()

    def rejudged(self) -> None:
        """A step was evaluated again."""
        self._rejudged.child().inc()

    def eviction(self, reason: str) -> None:
        """A trajectory was forgotten: ``idle`` or ``full``."""
        self._evictions.child(reason).inc()

    def evicted_runs(self, runs: int) -> None:
        """Runs of a trajectory were forgotten because it has too many."""
        if runs:
            self._evicted_runs.child().inc(runs)

    def flag_request(self, status: str) -> None:
        """A read of a flag was answered with an HTTP status."""
        self._flag_requests.child(status).inc()

    def watch_trajectories(self, active: Callable[[], int], by_score: Callable[[], Mapping[str, int]]) -> None:
        """Read the number of trajectories, and by bucket of the score, at every scrape, in the event loop."""
        self._watched[self._active.child()] = active
        self._by_score = by_score

    # --- exposition --------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read everything that is watched. A reader that fails leaves its gauge as it was and counts as an error."""
        for series, read in list(self._watched.items()):
            self._set(series, read)
        try:
            buckets = self._by_score()
        except Exception:  # noqa: BLE001  a scrape must tell of the rest
            self.error("metrics")
        else:
            for bucket, count in buckets.items():
                self._scores.child(bucket).set(count)

    def _set(self, series: Gauge, read: Reader) -> None:
        try:
            series.set(read())
        except Exception:  # noqa: BLE001
            self.error("metrics")

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, in the format an ``Accept`` header asks for: text or OpenMetrics."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Process(Collector):
    """What the operating system says of this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._started = time.monotonic()

    def collect(self) -> Iterator[Exposed]:
        cpu = self._process.cpu_times()
        yield _counted(telemetry.UPTIME, time.monotonic() - self._started)
        yield _counted(telemetry.CPU_SECONDS, cpu.user + cpu.system)
        memory = telemetry.MEMORY_RSS
        yield GaugeMetricFamily(memory.name, memory.meaning, value=self._process.memory_info().rss, unit="bytes")


def _counted(metric: telemetry.Metric, value: float) -> Exposed:
    return CounterMetricFamily(metric.name, metric.meaning, value=value, unit="seconds")


def _exemplar(trace_id: str) -> dict[str, str] | None:
    return {"trace_id": trace_id} if 0 < len(trace_id) <= MAX_EXEMPLAR else None
