"""Recording rules: what alerts are about, precomputed, and handy for dashboards of your own."""

from __future__ import annotations

import re
from typing import NamedTuple

from dashboards.generator.promql import Window, counted, divided, minutes, or_zero, summed

_BY_AGENT = ("service_name", "gen_ai_agent_name")
_SIGNALS = ("spans", "metric_points", "log_records")


class Windows(NamedTuple):
    """How far rules look back."""

    short: Window = minutes(15)
    long: Window = minutes(60)


class Recording(NamedTuple):
    """A recording rule: name (labels left, metric, operation) and expression."""

    name: str
    expression: str


def recordings(windows: Windows = Windows()) -> list[Recording]:  # noqa: B008  immutable
    """All recording rules, of agents first, then of the collector itself."""
    return [*_of_agents(windows), *_of_collectors(windows)]


def _of_agents(windows: Windows) -> list[Recording]:
    short, long = windows

    def interventions(level: str) -> str:
        matchers = f'trajectory_guard_intervention="{level}"'
        return summed(counted("trajectory_guard_interventions_total", long, matchers), *_BY_AGENT)

    def of_service(metric: str, window: Window) -> str:
        return summed(counted(metric, window), "service_name")

    episodes = counted("trajectory_guard_episodes_total", short)
    steps = of_service("trajectory_guard_steps_total", short)
    nudges, recoveries = interventions("NUDGE"), summed(counted("trajectory_guard_recoveries_total", long), *_BY_AGENT)
    return [
        Recording("service_agent_type:trajectory_guard_episodes:count_short",
                  summed(episodes, *_BY_AGENT, "trajectory_guard_loop_type")),
        Recording("service:trajectory_guard_steps:count_short", steps),
        Recording("service:trajectory_guard_loop_steps:ratio_short",
                  divided(of_service("trajectory_guard_loop_steps_total", short), steps)),
        Recording("service_agent:trajectory_guard_nudges:count_long", nudges),
        Recording("service_agent:trajectory_guard_stops:count_long", interventions("STOP")),
        Recording("service_agent:trajectory_guard_recoveries:ratio_long", divided(or_zero(recoveries, nudges), nudges)),
        Recording("service:trajectory_guard_loop_cost_usd:sum_long", of_service("trajectory_guard_loop_cost_total", long)),
        Recording("service:trajectory_guard_loop_tokens:sum_long", of_service("trajectory_guard_loop_tokens_total", long)),
    ]  # fmt: skip
