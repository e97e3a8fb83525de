"""Recording rules: expressions that the alerts share, computed once, also for custom dashboards."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashboards.generator.promql import Window, any_signal, counted, divided, or_zero, share, summed

_BY_AGENT: Final = ("service_name", "gen_ai_agent_name")
_BY_OUTPUT: Final = ("instance", "exporter")
_SIGNALS: Final = ("spans", "metric_points", "log_records")
_REFUSALS: Final = "RESOURCE_EXHAUSTED|UNAVAILABLE|429|503"
"""Answers after which a sender tries again."""
_REJECTIONS: Final = "INVALID_ARGUMENT|UNAUTHENTICATED|too_large_or_cut_off|400|401|404|405|413|415"
"""Answers after which a sender drops its data."""
NOT_WAITING: Final = 'trajectory_guard_loop_certainty!="waiting"'
"""Polling and retries after passing failures get advice, and are no fault: no alert counts them."""
ERROR_WHERE: Final = "trajectory_guard_error_where"
"""The label that says where an error of a guard was contained, in an application and in a collector."""
EVICTION_REASON: Final = "trajectory_guard_eviction_reason"
"""The label that says why a trajectory was evicted, in an application and in a collector."""
READY: Final = "trajectory_guard_fleet_ready"
"""A series that every stream worker has, and no collector."""


class Windows(NamedTuple):
    """Windows of the rules; the rule names contain them.

    Fields:
        short, long: windows to count in; each costs 60 steps.
        wait: a duration, for which something waits all the time.
        rate: a duration, over which rates of stream workers are taken.
    """

    short: Window = Window("15m", "15s")
    long: Window = Window("1h", "1m")
    wait: str = "15m"
    rate: str = "5m"


USUAL: Final = Windows()


class Recording(NamedTuple):
    """A recording rule: name (labels left, metric, operation) and expression, which may name those before."""

    name: str
    expression: str


def recordings(windows: Windows = USUAL) -> list[Recording]:
    """All recording rules, those of agents first, then those of the collector itself."""
    return [*_of_services(windows), *_of_agents(windows), *_of_collectors(windows), *_of_workers(windows)]


def _of_services(windows: Windows) -> list[Recording]:
    def total(metric: str, window: Window, matchers: str = NOT_WAITING) -> str:
        return summed(counted(metric, window, matchers), "service_name")

    counts = total("trajectory_guard_steps_total", windows.short, "")
    steps = Recording("service:trajectory_guard_steps:count15m", counts)
    in_loops = total("trajectory_guard_loop_steps_total", windows.short)
    return [
        steps,
        Recording("service:trajectory_guard_loop_steps:ratio15m", divided(in_loops, steps.name)),
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

    episodes = counted("trajectory_guard_episodes_total", windows.short, NOT_WAITING)
    recoveries = summed(counted("trajectory_guard_recoveries_total", windows.long), *_BY_AGENT)
    nudges = Recording("service_agent:trajectory_guard_nudges:count1h", interventions("NUDGE"))
    stops = Recording("service_agent:trajectory_guard_stops:count1h", interventions("STOP"))
    return [
        Recording(
            "service_agent_type:trajectory_guard_episodes:count15m",
            summed(episodes, *_BY_AGENT, "trajectory_guard_loop_type"),
        ),
        nudges,
        stops,
        Recording("service_agent:trajectory_guard_stops:ratio1h", share(stops.name, nudges.name)),
        Recording(
            "service_agent:trajectory_guard_recoveries:ratio1h", share(or_zero(recoveries, nudges.name), nudges.name)
        ),
    ]


def _of_collectors(windows: Windows) -> list[Recording]:
    def total(metric: str, *by: str, matchers: str = "") -> str:
        return summed(counted(metric, windows.short, matchers), *by)

    def requests(what: str, matchers: str = "") -> Recording:
        counts = total("otelcol_receiver_requests_total", "instance", matchers=matchers)
        return Recording(f"instance:otelcol_receiver_{what}:count15m", counts)

    late = total("trajectory_guard_late_steps_total", "instance", matchers='how="too_late"')
    steps = total("trajectory_guard_steps_total", "instance")
    all_requests = requests("requests")
    refused = requests("refused_requests", f'status=~"{_REFUSALS}"')
    rejected = requests("rejected_requests", f'status=~"{_REJECTIONS}"')
    return [
        Recording("instance_where:trajectory_guard_errors:count15m",
                  total("trajectory_guard_errors_total", "instance", ERROR_WHERE)),
        Recording("instance:trajectory_guard_evictions_full:count15m",
                  total("trajectory_guard_evictions_total", "instance", matchers=f'{EVICTION_REASON}="full"')),
        Recording("instance:trajectory_guard_late_steps:count15m", late),
        Recording("instance:trajectory_guard_late_steps:ratio15m",
                  divided("instance:trajectory_guard_late_steps:count15m", steps)),
        all_requests,
        refused,
        rejected,
        Recording("instance:otelcol_receiver_refused_requests:ratio15m", divided(refused.name, all_requests.name)),
        Recording("instance:otelcol_receiver_rejected_requests:ratio15m", divided(rejected.name, all_requests.name)),
        Recording("instance_exporter:otelcol_exporter_queue:ratio",
                  "sum by (instance, exporter) (otelcol_exporter_queue_size)\n/\n"
                  "sum by (instance, exporter) (otelcol_exporter_queue_capacity)"),
        Recording("instance_exporter_signal:otelcol_exporter_send_failed:count15m", _given_up(windows.short)),
        Recording("instance_exporter:trajectory_guard_exporter_retries:count15m",
                  total("trajectory_guard_exporter_retries_total", *_BY_OUTPUT)),
        Recording("instance_exporter:trajectory_guard_scores_failed:count15m",
                  total("trajectory_guard_scores_failed_total", *_BY_OUTPUT)),
        Recording("instance_exporter:trajectory_guard_scores_sent:count15m",
                  total("trajectory_guard_scores_sent_total", *_BY_OUTPUT)),
        Recording("instance_exporter:trajectory_guard_scores_waiting:min15m",
                  "min by (instance, exporter) (\n"
                  f"  min_over_time(trajectory_guard_scores_waiting[{windows.wait}])\n)"),
    ]  # fmt: skip


def _given_up(window: Window) -> str:
    counts = {signal: counted(f"otelcol_exporter_send_failed_{signal}_total", window) for signal in _SIGNALS}
    return summed(any_signal(counts), *_BY_OUTPUT, "signal")


def _of_workers(windows: Windows) -> list[Recording]:
    letters = counted("trajectory_guard_fleet_dead_letters_total", windows.short)
    return [
        # scores are held up by Langfuse's limits, never by workers
        Recording("topic:trajectory_guard_fleet_lag_seconds:ratio", lag_seconds(windows.rate, 'topic!="scores"')),
        Recording("instance:trajectory_guard_fleet_commit_seconds:rate", busy(windows.rate)),
        Recording("instance_topic:trajectory_guard_fleet_dead_letters:count15m", summed(letters, "instance", "topic")),
    ]


def lag_seconds(rate: str, matchers: str = "") -> str:
    """Seconds in which the workers would have read what lies before them, by topic; infinite while they read nothing.

    Parameters:
        rate: a duration, over which the rate of reading is taken.
        matchers: label matchers, without braces.
    """
    chosen = f"{{{matchers}}}" if matchers else ""
    return (
        f"sum by (topic) (trajectory_guard_fleet_lag{chosen})\n/\n"
        f"sum by (topic) (rate(trajectory_guard_fleet_records_total{chosen}[{rate}]))"
    )


def busy(rate: str, matchers: str = "") -> str:
    """Share of its time that each worker spends in commits."""
    chosen = f"{{{matchers}}}" if matchers else ""
    return f"sum by (instance) (rate(trajectory_guard_fleet_commit_seconds_total{chosen}[{rate}]))"
