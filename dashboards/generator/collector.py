"""The dashboard *Collector*: shows whether the collector works and all telemetry arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dashboards.generator.panels import (
    ORANGE,
    RED,
    YELLOW,
    Json,
    dashboard,
    data_source,
    graph,
    instant,
    label_values,
    query,
    row,
    stat,
)
from dashboards.generator.promql import SHOWN, STEP, any_signal, counted, divided, summed
from dashboards.generator.recordings import ERROR_WHERE, EVICTION_REASON
from dashboards.generator.workers import worker_variable, workers

COLLECTOR_UID: Final = "trajectory-guard-collector"

_AT: Final = 'instance=~"$instance"'
OWN: Final = "trajectory_guard_trajectories_by_score"
"""A series that every collector has, but neither the span processor nor an OpenTelemetry Collector."""
_OUT: Final = f'{_AT}, exporter=~"$exporter"'
_ITEMS: Final = {"spans": "spans", "metric_points": "metric points", "log_records": "log records"}


def collector() -> Json:
    """The dashboard."""
    return dashboard(
        COLLECTOR_UID,
        "Collector",
        "The collector itself: what it takes, keeps, sends and loses, and how it is.",
        [
            data_source("prometheus"),
            label_values("instance", "Instance", OWN, "instance"),
            label_values("exporter", "Exporter", "otelcol_exporter_queue_capacity", "exporter"),
            worker_variable(),
        ],
        [
            *_totals(), row("In"), *_receiving(), row("Scoring"), *_evaluating(), row("Out"), *_sending(), *_scores(),
            row("Process"), *_process(), workers(),
        ],
    )  # fmt: skip


def _rates(metric: str, matchers: str, by: str) -> list[Json]:
    """One query per signal, for a metric that has one name per signal."""
    return [
        query(f"sum by ({by}) (rate({metric}_{items}_total{{{matchers}}}[$__rate_interval]))", f"{what} {{{{{by}}}}}")
        for items, what in _ITEMS.items()
    ]


def _any_signal(metric: str, matchers: str) -> str:
    """Items of all signals in the time shown."""
    return summed(any_signal({items: counted(f"{metric}_{items}_total", SHOWN, matchers) for items in _ITEMS}))


def _rate(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric}{{{_AT}}}[$__rate_interval]))"


def _totals() -> list[Json]:
    errors = summed(counted("trajectory_guard_errors_total", SHOWN, _AT))
    return [
        stat("Collectors up", "Instances that answer. Healthy: as many as you run.",
             instant(f"count(count by (instance) ({OWN}{{{_AT}}}))"), decimals=0),
        stat("Spans a second", "Taken over from senders right now. Healthy: your load.",
             instant(f"sum(rate(otelcol_receiver_accepted_spans_total{{{_AT}}}[$__rate_interval]))"), unit="cps",
             decimals=1),
        stat("Refused", "Items refused in the time shown; the senders still have them and try again. Healthy: 0, "
             "bursts while a backend is down.",
             instant(_any_signal("otelcol_receiver_refused", _AT)), unit="short", steps=[(1, ORANGE)]),
        stat("Given up", "Items a backend rejected for good in the time shown: lost for that backend. Healthy: 0.",
             instant(_any_signal("otelcol_exporter_send_failed", _OUT)), unit="short", steps=[(1, RED)]),
        stat("Fullest queue", "Share of a sending queue in use. Healthy: near 0.",
             instant(f"max(otelcol_exporter_queue_size{{{_OUT}}} / otelcol_exporter_queue_capacity{{{_OUT}}})"),
             unit="percentunit", decimals=0, steps=[(0.5, YELLOW), (0.7, RED)]),
        stat("Own errors", "Errors of the collector itself in the time shown, contained. Healthy: 0.",
             instant(errors), decimals=0, steps=[(1, RED)]),
    ]  # fmt: skip


def _receiving() -> list[Json]:
    requests = _rate("otelcol_receiver_requests_total", "transport", "status")
    return [
        graph("Accepted", "Items taken over from senders, by transport. Healthy: follows the load.",
              *_rates("otelcol_receiver_accepted", _AT, "transport"), unit="cps"),
        graph("Refused and failed", "Refused: no room, the sender tries again. Failed: an error of the collector. "
      "Healthy: empty.",
              *_rates("otelcol_receiver_refused", _AT, "transport"),
              *_failed(), *_short_of_memory(), unit="cps"),
        graph("Requests by answer", "gRPC code or HTTP status. Healthy: OK and 200 only.",
              query(requests, "{{transport}} {{status}}"), unit="reqps"),
    ]  # fmt: skip


def _failed() -> list[Json]:
    return [
        query(f"sum(rate(otelcol_receiver_failed_{items}_total{{{_AT}}}[$__rate_interval]))", f"failed {what}")
        for items, what in _ITEMS.items()
    ]


def _short_of_memory() -> list[Json]:
    metric = "otelcol_processor_memory_limiter_refused"
    return [
        query(f"sum(rate({metric}_{items}_total{{{_AT}}}[$__rate_interval])) > 0", f"memory short: {what}")
        for items, what in _ITEMS.items()
    ]


def _quantiles(metric: str, matchers: str, *by: str) -> list[Json]:
    """Median and 99th percentile of a histogram."""
    labels = ", ".join(("le", *by))
    shown = " ".join(f"{{{{{label}}}}}" for label in by)
    buckets = f"sum by ({labels}) (rate({metric}_bucket{{{matchers}}}[$__rate_interval]))"
    return [
        query(f"histogram_quantile({share}, {buckets})", f"p{share * 100:.0f} {shown}".strip()) for share in (0.5, 0.99)
    ]


def _events(metric: str, *by: str) -> str:
    return summed(counted(metric, STEP, _AT), *by)


def _evaluating() -> list[Json]:
    items = f"sum(rate(otelcol_processor_{{}}_items_total{{{{{_AT}}}}}[$__rate_interval]))"
    late = _events("trajectory_guard_late_steps_total", "how")
    again = _events("trajectory_guard_reevaluated_steps_total")
    postponed = _events("trajectory_guard_postponed_evaluations_total")
    duplicates = _events("trajectory_guard_duplicates_total")
    long, runs = _events("trajectory_guard_steps_fingerprinted_total"), _events("trajectory_guard_evicted_runs_total")
    return [
        graph("Steps evaluated", "Tool calls evaluated, by service. Healthy: follows the load.",
              query(_rate("trajectory_guard_steps_total", "service_name"), "{{service_name}}"),
              unit="cps"),
        graph("Time to score a step", "Healthy: below 1 ms, flat.",
              *_quantiles("trajectory_guard_observe_duration_seconds", _AT), unit="s"),
        graph("Time to score and tag a request", "Healthy: milliseconds.",
              *_quantiles("otelcol_processor_internal_duration_seconds", _AT), unit="s"),
        graph("Items through the scorer", "Healthy: out is a little above in, by the guard's own spans.",
              query(items.format("incoming"), "in"), query(items.format("outgoing"), "out"), unit="cps"),
        graph("Late and duplicate steps", "reordered: arrived late and were put in order. too_late: evaluated in "
              "order of arrival, a verdict may differ. evaluated again: what late steps cost. Healthy: too_late 0; "
              "duplicates only after redelivery; evaluated again at most half of all steps. postponed: a request held "
              "more steps than can be evaluated while it waits.",
              query(late, "{{how}}"), query(again, "evaluated again"), query(duplicates, "duplicate"),
              query(postponed, "postponed"), bars=True),
        graph("Long steps and forgotten runs", "Steps too long to be understood in full, and runs forgotten "
              "because their trajectory has more than eight. Healthy: few; for long steps, raise "
              "guard.max_understood_chars.",
              query(long, "long step"), query(runs, "forgotten run"), bars=True),
        graph("Trajectories in memory", "Healthy: below guard.max_trajectories (10,000 by default).",
              query(f"sum by (instance) (trajectory_guard_trajectories_active{{{_AT}}})", "{{instance}}")),
        graph("Evictions", "Trajectories forgotten. idle: nothing came for guard.idle_ttl_s. full: too many at a "
              "time, running ones lose their score. Healthy: idle only.",
              query(_events("trajectory_guard_evictions_total", EVICTION_REASON), f"{{{{{EVICTION_REASON}}}}}"),
              bars=True),
        graph("Own errors by place", "Healthy: empty. The log has the first of each kind. Lines not written: nobody "
              "reads standard error or standard output.",
              query(_events("trajectory_guard_errors_total", ERROR_WHERE), f"{{{{{ERROR_WHERE}}}}}"),
              query(_events("trajectory_guard_dropped_lines_total", "stream"), "lines not written: {{stream}}"),
              bars=True),
        graph("Label values beyond the bound", "Services, agents and tools counted as other from then on. Healthy: "
              "empty; else raise telemetry.max_label_values.",
              query(_events("trajectory_guard_label_overflow_total", "label"), "{{label}}"), bars=True),
    ]  # fmt: skip


def _by_exporter(function: str, metric: str, legend: str) -> Json:
    return query(f"sum by (exporter) ({function.format(f'{metric}{{{_OUT}}}')})", f"{{{{exporter}}}} {legend}".strip())


def _sending() -> list[Json]:
    rate = "rate({}[$__rate_interval])"
    fill = f"otelcol_exporter_queue_size{{{_OUT}}} / otelcol_exporter_queue_capacity{{{_OUT}}}"
    return [
        graph("Sent", "Items each backend has. Healthy: as accepted, for each exporter.",
              *_rates("otelcol_exporter_sent", _OUT, "exporter"), unit="cps"),
        graph("Queue in use", "Share of the sending queue. Healthy: near 0; rising: the backend is down or too slow.",
              query(f"max by (exporter, instance) ({fill})", "{{exporter}} {{instance}}"), unit="percentunit",
              maximum=1, steps=[(0.7, RED)]),
        graph("Given up, and no room", "Given up: rejected by the backend for good. No room: queue full, the sender "
              "tries again. Healthy: empty.",
              *_rates("otelcol_exporter_send_failed", _OUT, "exporter"), *_no_room(), unit="cps"),
        graph("Retries", "Further attempts after a failure. Healthy: 0; steady: look at the backend.",
              _by_exporter(rate, "trajectory_guard_exporter_retries_total", ""), unit="cps"),
        graph("Time of an attempt", "Healthy: well below timeout_s (5 s by default).",
              *_quantiles("trajectory_guard_exporter_send_duration_seconds", _OUT, "exporter"), unit="s"),
        graph("Requests in flight", "Healthy: below num_consumers (4 by default); there for long: the backend is slow.",
              _by_exporter("{}", "otelcol_exporter_in_flight_requests", "")),
    ]  # fmt: skip


def _no_room() -> list[Json]:
    return [
        query(f"sum by (exporter) (rate(otelcol_exporter_enqueue_failed_{items}_total{{{_OUT}}}[$__rate_interval]))",
              f"no room: {what} {{{{exporter}}}}")
        for items, what in _ITEMS.items()
    ]  # fmt: skip


def _scores() -> Sequence[Json]:
    rate = "rate({}[$__rate_interval])"
    return [
        graph("Langfuse scores", "Written on change, not for each step. Healthy: failed 0, attempts failed 0, waiting "
              "near 0.",
              _by_exporter(rate, "trajectory_guard_scores_sent_total", "sent/s"),
              _by_exporter(rate, "trajectory_guard_scores_failed_total", "failed/s"),
              _by_exporter("{}", "trajectory_guard_scores_waiting", "waiting"),
              query(f"sum by (exporter, error_type) (rate(trajectory_guard_scores_attempts_failed_total{{{_OUT}}}"
                    "[$__rate_interval]))", "{{exporter}} attempts failed/s: {{error_type}}"), width=12),
        graph("Requests for flags", "Agents in other processes that ask for their flag, by HTTP status, and flags that "
              "people raise and clear. Healthy: 200 only.",
              query(_rate("trajectory_guard_flag_requests_total", "status"), "{{status}}"),
              query(_rate("trajectory_guard_flags_by_hand_total", "trajectory_guard_flag_action"),
                    "by hand: {{trajectory_guard_flag_action}}"),
              unit="reqps", width=12),
    ]  # fmt: skip


def _process() -> list[Json]:
    restarts = f"sum by (instance) (resets(otelcol_process_uptime_seconds_total{{{_AT}}}[$__rate_interval]))"
    for_a_span = divided(
        f"sum by (instance) (rate(otelcol_process_cpu_seconds_total{{{_AT}}}[$__rate_interval]))",
        f"sum by (instance) (rate(otelcol_receiver_accepted_spans_total{{{_AT}}}[$__rate_interval]))",
    )
    return [
        graph("Memory", "Resident. Healthy: below the soft limit of the memory limiter, flat at a flat load.",
              query(f"otelcol_process_memory_rss_bytes{{{_AT}}}", "{{instance}}"), unit="bytes", width=6),
        graph("Processor", "Cores in use. Healthy: below 1, since scoring uses one thread.",
              query(f"rate(otelcol_process_cpu_seconds_total{{{_AT}}}[$__rate_interval])", "{{instance}}"), width=6),
        graph("Processor time for a span", "Healthy: flat; tens of microseconds.",
              query(for_a_span, "{{instance}}"), unit="s", width=6),
        graph("Restarts", "Healthy: none but yours.", query(restarts, "{{instance}}"), width=6),
    ]  # fmt: skip
