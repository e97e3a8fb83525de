"""The dashboard *Fleet*: loops of the agents of all services, their outcomes, and their cost."""

from __future__ import annotations

from typing import Final

from dashboards.generator.panels import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Json,
    by_name,
    coloured,
    dashboard,
    data_source,
    graph,
    instant,
    label_values,
    query,
    ranking,
    row,
    stat,
    table,
    traceql,
)
from dashboards.generator.promql import HOUR, SHOWN, STEP, Window, counted, divided, or_zero, share, summed
from dashboards.generator.trajectory import TRAJECTORY_UID, VERDICT_COLUMNS

FLEET_UID: Final = "trajectory-guard-fleet"

_SERVICE: Final = 'service_name=~"$service"'
_AGENT: Final = f'{_SERVICE}, gen_ai_agent_name=~"$agent"'
_LOOP: Final = f'{_AGENT}, trajectory_guard_loop_type=~"$loop_type"'
_TYPE: Final = f'{_SERVICE}, trajectory_guard_loop_type=~"$loop_type"'
_BY_TYPE: Final = "trajectory_guard_loop_type"
_BUCKETS: Final = {"healthy": GREEN, "watched": YELLOW, "nudge": ORANGE, "stop": RED}


def fleet() -> Json:
    """The dashboard."""
    return dashboard(
        FLEET_UID,
        "Fleet",
        "Loops of all agents: where, which kind, what became of them, what they cost.",
        [
            data_source("prometheus"),
            data_source("tempo"),
            label_values("service", "Service", "trajectory_guard_steps_total", "service_name"),
            label_values("agent", "Agent", "trajectory_guard_episodes_total", "gen_ai_agent_name"),
            label_values("loop_type", "Loop type", "trajectory_guard_detections_total", _BY_TYPE),
        ],
        [
            *_totals(), row("Loops"), *_loops(), row("What became of them"), *_outcomes(),
            row("What they cost"), *_costs(), row("Where"), *_places(), row("Latest"), _latest(),
        ],
    )  # fmt: skip


def _episodes(window: Window, *by: str) -> str:
    return summed(counted("trajectory_guard_episodes_total", window, _LOOP), *by)


def _interventions(level: str, window: Window, *by: str, matchers: str = _LOOP) -> str:
    selected = f'{matchers}, trajectory_guard_intervention="{level}"'
    return summed(counted("trajectory_guard_interventions_total", window, selected), *by)


def _recoveries(window: Window, *by: str) -> str:
    return summed(counted("trajectory_guard_recoveries_total", window, _AGENT), *by)


def _recovery_rate(window: Window, *by: str) -> str:
    nudges = _interventions("NUDGE", window, *by, matchers=_AGENT)
    return share(or_zero(_recoveries(window, *by), nudges), nudges)


def _of_service(metric: str, window: Window, *by: str) -> str:
    return summed(counted(metric, window, _SERVICE), *by)


def _totals() -> list[Json]:
    inside = divided(
        _of_service("trajectory_guard_loop_steps_total", SHOWN), _of_service("trajectory_guard_steps_total", SHOWN)
    )
    return [
        stat("Loops begun", "Loops that began in the time shown. Healthy: rare beside the number of runs.",
             instant(_episodes(SHOWN)), decimals=0, steps=[(1, YELLOW), (20, ORANGE)]),
        stat("Nudges due", "Loops that went on until a nudge was due. Healthy: fewer than loops begun.",
             instant(_interventions("NUDGE", SHOWN)), decimals=0, steps=[(1, YELLOW), (10, ORANGE)]),
        stat("Stops due", "Loops that went on after the nudge. Healthy: 0, and much rarer than nudges.",
             instant(_interventions("STOP", SHOWN)), decimals=0, steps=[(1, RED)]),
        stat("Recovered", "Share of nudged loops the agent left by itself, of any loop type. Healthy: near 100 %; "
             "low: the agent ignores nudges, or has no gate that delivers them.",
             instant(_recovery_rate(SHOWN)), unit="percentunit", decimals=0, no_value="-", base=RED,
             steps=[(0.5, ORANGE), (0.8, GREEN)]),
        stat("Money inside loops", "Spent from the first repeat on, where prices are known, of any agent and loop "
             "type. Healthy: cents.",
             instant(_of_service("trajectory_guard_loop_cost_total", SHOWN)), unit="currencyUSD", decimals=2,
             steps=[(1, YELLOW), (10, RED)]),
        stat("Steps inside loops", "Share of all tool calls that were made inside loops. Healthy: a few per cent.",
             instant(inside), unit="percentunit", decimals=1, steps=[(0.1, YELLOW), (0.3, RED)]),
    ]  # fmt: skip


def _loops() -> list[Json]:
    return [
        graph("Loops begun by type", "One bar counts the loops that began since the bar before. The dots are traces: "
              "click one to see the loop. Healthy: empty, or a few.",
              query(_episodes(STEP, _BY_TYPE), "{{trajectory_guard_loop_type}}", exemplars=True),
              bars=True, stacked=True, width=12),
        graph("Loops begun by service", "The same by service. Healthy: no service stands out; a step up after a "
              "deployment is that deployment.",
              query(_episodes(STEP, "service_name"), "{{service_name}}", exemplars=True),
              bars=True, stacked=True, width=12),
    ]  # fmt: skip


def _outcomes() -> list[Json]:
    return [
        graph("Nudges, stops and recoveries", "Healthy: recoveries follow nudges, stops are rare.",
              query(_interventions("NUDGE", STEP), "nudges", exemplars=True),
              query(_interventions("STOP", STEP), "stops", exemplars=True),
              query(_recoveries(STEP), "recoveries"),
              bars=True, stacked=True, overrides=coloured({"nudges": ORANGE, "stops": RED, "recoveries": GREEN})),
        graph("Recovery rate by service", "Share of nudged loops left again, over the hour before. Healthy: near 100 "
      "%.",
              query(_recovery_rate(HOUR, "service_name"), "{{service_name}}"), unit="percentunit"),
        graph("Trajectories by score", "Conversations in memory, of all services: without any finding, with some, "
              "with a nudge due, with a stop due. Healthy: nearly all without.",
              *(query(f'sum(trajectory_guard_trajectories_by_score{{bucket="{one}"}})', one) for one in _BUCKETS),
              stacked=True,
              overrides=coloured(_BUCKETS)),
    ]  # fmt: skip


def _costs() -> list[Json]:
    def by_service(title: str, metric: str, unit: str, what: str) -> Json:
        description = f"{what}, of any agent and loop type. Healthy: small beside what the service does anyway."
        shown = query(_of_service(metric, STEP, "service_name"), "{{service_name}}")
        return graph(title, description, shown, unit=unit, bars=True, stacked=True)

    return [
        by_service("Steps inside loops by service", "trajectory_guard_loop_steps_total", "short",
                   "Tool calls made inside loops, from the first repeat on"),
        by_service("Tokens inside loops by service", "trajectory_guard_loop_tokens_total", "short",
                   "Tokens of model calls inside loops"),
        by_service("Money inside loops by service", "trajectory_guard_loop_cost_total", "currencyUSD",
                   "US dollars for model calls inside loops, where prices are known"),
    ]  # fmt: skip


def _places() -> list[Json]:
    agents = _episodes(SHOWN, "service_name", "gen_ai_agent_name")
    return [
        ranking("Top tools", "Tools in whose calls loops began. Healthy: none leads by far; one that does says too "
                "little when it finds nothing.",
                instant(f"topk(10, {_episodes(SHOWN, 'gen_ai_tool_name')})", "{{gen_ai_tool_name}}")),
        ranking("Top agents", "Agents in which loops began, with their service. Healthy: none leads by far.",
                instant(f"topk(10, {agents})", "{{service_name}} {{gen_ai_agent_name}}")),
        ranking("Findings by type", "All findings of the detectors, those that led to nothing included. Healthy: more "
                "findings than nudges, since hints count too.",
                instant(summed(counted("trajectory_guard_detections_total", SHOWN, _TYPE), _BY_TYPE),
                        "{{trajectory_guard_loop_type}}")),
    ]  # fmt: skip


def _latest() -> Json:
    found = '{ name = "trajectory_guard.intervention" && resource.service.name =~ `${service:regex}` }'
    link = {
        "title": "Open the trajectory",
        "url": f"/d/{TRAJECTORY_UID}?var-trajectory=${{__value.raw:percentencode}}"
        "&var-trace=${__data.fields.traceIdHidden}&${__url_time_range}",
    }
    return table(
        "Latest nudges and stops",
        "From Tempo. Click a trajectory to see its steps, or a span to see the trace. Healthy: empty, or a few.",
        traceql(f"{found} | select({', '.join(VERDICT_COLUMNS)})"),
        overrides=[by_name("trajectory_guard.trajectory.id", links=[link])],
    )
