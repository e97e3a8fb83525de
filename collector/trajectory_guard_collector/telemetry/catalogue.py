"""The collector's metrics: names, labels, units, meanings and healthy values, defined once.

Generic ones carry the names of the OpenTelemetry Collector as its Prometheus reader spells them, so that dashboards and
alerts for it work. Ours are the Prometheus form of ``trajectory_guard.telemetry``: dots become underscores, seconds
become a suffix, and a metric that a process has, too, has the same attributes as labels beside those that only the
collector knows. The table in ``collector/README.md`` is checked against this module by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from trajectory_guard import telemetry as guard
from trajectory_guard_collector.otlp.signals import Signal

RECEIVER: Final = "otlp"
"""The label ``receiver`` of every receiver metric."""
PROCESSOR: Final = "trajectory_guard"
"""The label ``processor`` of every processor metric."""


def _label(key: str) -> str:
    """An attribute key in Prometheus's form."""
    return key.replace(".", "_")


SERVICE: Final = "service_name"
LOOP_TYPE: Final = _label(guard.LOOP_TYPE)
CERTAINTY: Final = _label(guard.LOOP_CERTAINTY)
LEVEL: Final = _label(guard.INTERVENTION)
AGENT: Final = "gen_ai_agent_name"
TOOL: Final = _label(guard.TOOL)
MODEL: Final = _label(guard.MODEL)
EVICTION_REASON: Final = _label(guard.EVICTION_REASON)
ERROR_WHERE: Final = _label(guard.ERROR_WHERE)
FLAG_ACTION: Final = _label(guard.FLAG_ACTION)
ERROR_TYPE: Final = _label(guard.ERROR_TYPE)
SPENDING_EVENT: Final = _label(guard.SPENDING_EVENT)
OTHER: Final = "other"
"""Label value that counts all values beyond the bound."""


class Metric(NamedTuple):
    """A metric: name without the ``_total`` of counters, kind, labels, unit (UCUM), meaning, healthy value."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    unit: str
    meaning: str
    healthy: str

    @property
    def exposed(self) -> str:
        """The name to query."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


PerSignal = Mapping[Signal, Metric]
_WHAT: Final = {Signal.TRACES: "spans", Signal.METRICS: "metric points", Signal.LOGS: "log records"}


def _per_signal(prefix: str, labels: tuple[str, ...], meaning: str, healthy: str) -> PerSignal:
    return {
        signal: Metric(
            f"{prefix}_{signal.items}", "counter", labels, f"{{{signal.items}}}", f"{what} {meaning}", healthy
        )
        for signal, what in _WHAT.items()
    }


def _ours(metric: guard.Metric, labels: tuple[str, ...], healthy: str, meaning: str | None = None) -> Metric:
    kinds: Mapping[str, Literal["counter", "gauge", "histogram"]]
    kinds = {"counter": "counter", "gauge": "gauge", "up-down-counter": "gauge", "histogram": "histogram"}
    name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
    return Metric(name, kinds[metric.instrument], labels, metric.unit, meaning or metric.meaning, healthy)


_BUDGET_SCOPE, _BUDGET_NAME, _BUDGET_LIMIT, _BUDGET_PERCENT = (
    _label(key) for key in (guard.BUDGET_SCOPE, guard.BUDGET_NAME, guard.BUDGET_LIMIT, guard.BUDGET_PERCENT)
)
_IN: Final = ("receiver", "transport")
_OUT: Final = ("exporter",)
_THROUGH: Final = ("processor", "otel_signal")

ACCEPTED: Final = _per_signal("otelcol_receiver_accepted", _IN, "taken over from senders", "rises with the load")
REFUSED: Final = _per_signal(
    "otelcol_receiver_refused",
    _IN,
    "refused; the sender still has them, or knows that they are dropped",
    "0; bursts while a backend is down",
)
FAILED: Final = _per_signal("otelcol_receiver_failed", _IN, "not taken over because of an error here", "0")
REQUESTS: Final = Metric(
    "otelcol_receiver_requests", "counter", (*_IN, "status"), "{requests}",
    "requests, by gRPC code or HTTP status, or why they were cut off", "`OK` and `200`",
)  # fmt: skip

SENT: Final = _per_signal("otelcol_exporter_sent", _OUT, "accepted by the backend", "as accepted, for each exporter")
SEND_FAILED: Final = _per_signal("otelcol_exporter_send_failed", _OUT, "given up: the backend rejects them", "0")
ENQUEUE_FAILED: Final = _per_signal(
    "otelcol_exporter_enqueue_failed", _OUT, "refused because the queue is full; the sender still has them", "0"
)
QUEUE_SIZE: Final = Metric(
    "otelcol_exporter_queue_size",
    "gauge",
    _OUT,
    "{batches}",
    "requests that wait for the backend; with storage bytes",
    "near 0",
)
QUEUE_CAPACITY: Final = Metric(
    "otelcol_exporter_queue_capacity",
    "gauge",
    _OUT,
    "{batches}",
    "requests that may wait; with storage bytes",
    "constant",
)
IN_FLIGHT: Final = Metric(
    "otelcol_exporter_in_flight_requests", "gauge", _OUT, "{requests}", "requests to the backend that are in progress",
    "below `num_consumers`",
)  # fmt: skip
RETRIES: Final = Metric(
    "trajectory_guard_exporter_retries", "counter", _OUT, "{attempt}", "further attempts after a failure", "0"
)
SEND_DURATION: Final = Metric(
    "trajectory_guard_exporter_send_duration_seconds", "histogram", _OUT, "s", "time of one attempt",
    "well below `timeout_s`",
)  # fmt: skip

INCOMING: Final = Metric(
    "otelcol_processor_incoming_items", "counter", _THROUGH, "{items}", "items that enter the scorer", "as accepted"
)
OUTGOING: Final = Metric(
    "otelcol_processor_outgoing_items", "counter", _THROUGH, "{items}",
    "items that leave the scorer, its guard spans included", "a few more than incoming",
)  # fmt: skip
SCORING_DURATION: Final = Metric(
    "otelcol_processor_internal_duration_seconds", "histogram", ("processor",), "s", "time to score and tag a request",
    "milliseconds",
)  # fmt: skip
LIMITER_REFUSED: Final = _per_signal(
    "otelcol_processor_memory_limiter_refused",
    (),
    "refused because memory is short; a request refused unread is in `otelcol_receiver_requests` alone",
    "0",
)

UPTIME: Final = Metric("otelcol_process_uptime_seconds", "counter", (), "s", "time since the start", "rises")
MEMORY_RSS: Final = Metric(
    "otelcol_process_memory_rss_bytes", "gauge", (), "By", "resident memory", "below the soft limit of the limiter"
)
CPU_SECONDS: Final = Metric(
    "otelcol_process_cpu_seconds", "counter", (), "s", "processor time, user and system", "below one core"
)

STEPS: Final = _ours(guard.STEPS, (SERVICE,), "rises with the load", "tool calls evaluated")
DETECTIONS: Final = _ours(guard.DETECTIONS, (SERVICE, LOOP_TYPE), "a few: hints are findings too")
INTERVENTIONS: Final = _ours(
    guard.INTERVENTIONS, (SERVICE, LEVEL, AGENT, TOOL, LOOP_TYPE, CERTAINTY), "rare; stops rarer than nudges"
)
EPISODES: Final = _ours(guard.EPISODES, (SERVICE, AGENT, TOOL, LOOP_TYPE, CERTAINTY), "rare")
RECOVERIES: Final = _ours(guard.RECOVERIES, (SERVICE, AGENT), "near the number of nudges")
ACTIVE: Final = _ours(guard.ACTIVE, (), "below `max_trajectories`")
EVICTIONS: Final = _ours(
    guard.EVICTIONS, (EVICTION_REASON,), "`full` 0; else raise `max_trajectories`",
    "trajectories evicted: idle; over the limit and idle for `reorder_s` (full_idle); over it and in use (full); "
    "idle for `reorder_s` while memory is short (memory)",
)  # fmt: skip
ERRORS: Final = _ours(
    guard.ERRORS,
    (ERROR_WHERE,),
    "0; see the log for the first of each kind",
    "errors of the collector itself, contained",
)
DUPLICATES: Final = _ours(guard.DUPLICATES, (), "0; some after redelivery")
FINGERPRINTED: Final = _ours(guard.FINGERPRINTED, (SERVICE,), "small beside steps; raise `guard.max_understood_chars`")
EVICTED_RUNS: Final = Metric(
    "trajectory_guard_evicted_runs", "counter", (), "{run}", "runs evicted because their trajectory has too many",
    "0; some where an agent starts more than eight others, or more than 32 at a time",
)  # fmt: skip
LATENCY: Final = _ours(guard.LATENCY, (), "below 1 ms", "time to score an agent span, mean over those of a request")
LOOP_STEPS: Final = _ours(guard.LOOP_STEPS, (SERVICE, CERTAINTY), "small beside steps")
LOOP_TOKENS: Final = _ours(guard.LOOP_TOKENS, (SERVICE, CERTAINTY), "-")
LOOP_COST: Final = _ours(guard.LOOP_COST, (SERVICE, CERTAINTY), "-")
BY_SCORE: Final = Metric(
    "trajectory_guard_trajectories_by_score", "gauge", ("bucket",), "{trajectory}",
    "trajectories in memory, by score: healthy, watched, nudge, stop", "`healthy` nearly all",
)  # fmt: skip
LATE_STEPS: Final = Metric(
    "trajectory_guard_late_steps", "counter", ("how",), "{step}",
    "steps that arrived out of order: reordered, or too_late and evaluated in order of arrival", "`too_late` 0",
)  # fmt: skip
POSTPONED: Final = Metric(
    "trajectory_guard_postponed_evaluations", "counter", (), "{evaluation}",
    "evaluations of a trajectory that were continued after `trajectories.evaluate_s`, without the request", "0",
)  # fmt: skip
REEVALUATED_STEPS: Final = Metric(
    "trajectory_guard_reevaluated_steps", "counter", (), "{step}",
    "repeated evaluations of steps: an earlier step arrived late, or their conversation became known",
    "at most half of the steps",
)  # fmt: skip
FLAG_REQUESTS: Final = Metric(
    "trajectory_guard_flag_requests", "counter", ("status",), "{request}", "requests for flags, by HTTP status",
    "`200`; gates that get `401`, for want of a token, go on unguarded",
)  # fmt: skip
HAND_FLAGS: Final = _ours(
    guard.HAND_FLAGS, (FLAG_ACTION,), "some: each is a person's decision", "flags that people raised or cleared"
)
SCORES_SENT: Final = Metric(
    "trajectory_guard_scores_sent",
    "counter",
    _OUT,
    "{score}",
    "scores that Langfuse has accepted",
    "rises with changes of state",
)
SCORES_FAILED: Final = Metric("trajectory_guard_scores_failed", "counter", _OUT, "{score}", "scores given up", "0")
SCORES_WAITING: Final = Metric(
    "trajectory_guard_scores_waiting", "gauge", _OUT, "{score}", "scores that wait for Langfuse", "near 0"
)
SCORE_ATTEMPTS_FAILED: Final = _ours(guard.SCORE_ATTEMPTS_FAILED, (*_OUT, ERROR_TYPE), "0; they are tried again")
SPENDING_TOKENS: Final = _ours(guard.SPENDING_TOKENS, (MODEL,), "as planned; none without a ledger")
SPENDING_COST: Final = _ours(guard.SPENDING_COST, (MODEL,), "as planned")
SPENDING_UNPRICED: Final = _ours(guard.SPENDING_UNPRICED, (MODEL,), "0; else give a price under `guard.model_prices`")
SPENDING_EVENTS: Final = _ours(guard.SPENDING_EVENTS, (SPENDING_EVENT,), "`lost` and `forgotten` stay empty")
BUDGET_RATIO: Final = _ours(guard.BUDGET_RATIO, (_BUDGET_SCOPE, _BUDGET_NAME, _BUDGET_LIMIT), "below 0.8")
BUDGET_ALERTS: Final = _ours(guard.BUDGET_ALERTS, (_BUDGET_PERCENT,), "rare")
DROPPED_LINES: Final = Metric(
    "trajectory_guard_dropped_lines", "counter", ("stream",), "{line}",
    "lines not written: nobody reads standard error (`stderr`) or standard output (`stdout`), or writing fails", "0",
)  # fmt: skip
LABEL_OVERFLOW: Final = Metric(
    "trajectory_guard_label_overflow", "counter", ("label",), "{value}",
    "label values counted as `other`", "0; raise `telemetry.max_label_values`",
)  # fmt: skip

METRICS: Final[tuple[Metric, ...]] = (
    *ACCEPTED.values(), *REFUSED.values(), *FAILED.values(), REQUESTS,
    *SENT.values(), *SEND_FAILED.values(), *ENQUEUE_FAILED.values(), QUEUE_SIZE, QUEUE_CAPACITY, IN_FLIGHT,
    INCOMING, OUTGOING, SCORING_DURATION, *LIMITER_REFUSED.values(), UPTIME, MEMORY_RSS, CPU_SECONDS,
    STEPS, DETECTIONS, INTERVENTIONS, EPISODES, RECOVERIES, ACTIVE, BY_SCORE, EVICTIONS, EVICTED_RUNS, DUPLICATES,
    FINGERPRINTED, LATE_STEPS, POSTPONED, REEVALUATED_STEPS, LATENCY, LOOP_STEPS, LOOP_TOKENS, LOOP_COST, FLAG_REQUESTS,
    HAND_FLAGS,
    SPENDING_TOKENS, SPENDING_COST, SPENDING_UNPRICED, SPENDING_EVENTS, BUDGET_RATIO, BUDGET_ALERTS,
    SCORES_SENT, SCORES_FAILED,
    SCORES_WAITING, SCORE_ATTEMPTS_FAILED, RETRIES, SEND_DURATION, ERRORS, DROPPED_LINES,
    LABEL_OVERFLOW,
)  # fmt: skip
