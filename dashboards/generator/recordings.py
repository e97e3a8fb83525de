"""Recording rules: what the alerts are about, computed once, and handy for dashboards of your own."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashboards.generator.promql import any_signal, counted, divided, or_zero, summed

_BY_AGENT: Final = ("service_name", "gen_ai_agent_name")
_BY_OUTPUT: Final = ("instance", "exporter")
_SIGNALS: Final = ("spans", "metric_points", "log_records")
_REFUSALS: Final = "RESOURCE_EXHAUSTED|UNAVAILABLE|429|503"


class Windows(NamedTuple):
    """How far rules look back; their names tell of these."""

    short: str = "15m"
    long: str = "1h"


USUAL: Final = Windows()


class Recording(NamedTuple):
    """A recording rule: name (labels left, metric, operation) and expression."""

    name: str
    expression: str


def recordings(windows: Windows = USUAL) -> list[Recording]:
    """All recording rules, those of agents first, then those of the collector itself."""
    return [*_of_services(windows), *_of_agents(windows), *_of_collectors(windows)]


def _of_services(windows: Windows) -> list[Recording]:
    def total(metric: str, window: str) -> str:
        return summed(counted(metric, window), "service_name")

    steps = total("trajectory_guard_steps_total", windows.short)
    in_loops = total("trajectory_guard_loop_steps_total", windows.short)
    return [
        Recording("service:trajectory_guard_steps:count15m", steps),
        Recording("service:trajectory_guard_loop_steps:ratio15m", divided(in_loops, steps)),
        Recording(
            "service:trajectory_guard_loop_cost_usd:sum1h", total("trajectory_guard_loop_cost_total", windows.long)
        ),
        Recording(
            "service:trajectory_guard_loop_tokens:sum1h", total("trajectory_guard_loop_tokens_total", windows.long)
        ),
    ]


def _of_agents(windows: Windows) -> list[Recording]:
    def interventions(level: str) -> str:
        matchers = f'trajectory_guard_intervention="{level}"'
        return summed(counted("trajectory_guard_interventions_total", windows.long, matchers), *_BY_AGENT)

    episodes = counted("trajectory_guard_episodes_total", windows.short)
    recoveries = summed(counted("trajectory_guard_recoveries_total", windows.long), *_BY_AGENT)
    nudges, stops = interventions("NUDGE"), interventions("STOP")
    return [
        Recording(
            "service_agent_type:trajectory_guard_episodes:count15m",
            summed(episodes, *_BY_AGENT, "trajectory_guard_loop_type"),
        ),
        Recording("service_agent:trajectory_guard_stops:count1h", stops),
        Recording("service_agent:trajectory_guard_stops:ratio1h", divided(stops, nudges)),
        Recording("service_agent:trajectory_guard_recoveries:ratio1h", divided(or_zero(recoveries, nudges), nudges)),
    ]


def _of_collectors(windows: Windows) -> list[Recording]:
    def total(metric: str, *by: str, matchers: str = "") -> str:
        return summed(counted(metric, windows.short, matchers), *by)

    requests = total("otelcol_receiver_requests_total", "instance")
    refused = total("otelcol_receiver_requests_total", "instance", matchers=f'status=~"{_REFUSALS}"')
    late = total("trajectory_guard_late_steps_total", "instance", matchers='how="too_late"')
    steps = total("trajectory_guard_steps_total", "instance")
    return [
        Recording("instance_where:trajectory_guard_errors:count15m",
                  total("trajectory_guard_errors_total", "instance", "where")),
        Recording("instance:trajectory_guard_evictions_full:count15m",
                  total("trajectory_guard_evictions_total", "instance", matchers='reason="full"')),
        Recording("instance:trajectory_guard_late_steps:ratio15m", divided(late, steps)),
        Recording("instance:otelcol_receiver_refused_requests:ratio15m", divided(refused, requests)),
        Recording("instance_exporter:otelcol_exporter_queue:ratio",
                  "sum by (instance, exporter) (otelcol_exporter_queue_size)\n/\n"
                  "sum by (instance, exporter) (otelcol_exporter_queue_capacity)"),
        Recording("instance_exporter_signal:otelcol_exporter_send_failed:count15m", _given_up(windows.short)),
        Recording("instance_exporter:trajectory_guard_exporter_retries:count15m",
                  total("trajectory_guard_exporter_retries_total", *_BY_OUTPUT)),
        Recording("instance_exporter:trajectory_guard_scores_failed:count15m",
                  total("trajectory_guard_scores_failed_total", *_BY_OUTPUT)),
    ]  # fmt: skip


def _given_up(window: str) -> str:
    counts = {signal: counted(f"otelcol_exporter_send_failed_{signal}_total", window) for signal in _SIGNALS}
    return summed(any_signal(counts), *_BY_OUTPUT, "signal")
