"""The row *Stream workers* of the dashboard *Collector*: their lag, their commits, and their state on Kafka."""

from __future__ import annotations

from typing import Final

from dashboards.generator.panels import ORANGE, RED, Json, folded, graph, instant, label_values, query, stat
from dashboards.generator.promql import SHOWN, STEP, Window, counted, divided, summed
from dashboards.generator.recordings import EVICTION_REASON, READY, busy, lag_seconds

_AT: Final = 'instance=~"$worker"'
_READY: Final = f"{READY}{{{_AT}}}"
_NOW: Final = "$__rate_interval"


def worker_variable() -> Json:
    """Chooses stream workers."""
    return label_values("worker", "Stream worker", READY, "instance")


def workers() -> Json:
    """The row. It is folded, so that a collector without stream workers shows no empty panels."""
    return folded("Stream workers", [*_totals(), *_progress(), *_commits(), *_order(), *_flags()])


def _counted(metric: str, window: Window, *by: str) -> str:
    return summed(counted(metric, window, _AT), *by)


def _of_workers(metric: str, *by: str) -> str:
    """Events of a bar. Collectors count these metrics as well, and are left out."""
    return summed(f"(\n{counted(metric, STEP, _AT)}\n) and on (instance) {_READY}", *by)


def _totals() -> list[Json]:
    return [
        stat("Workers ready", "Stream workers that process records. Healthy: as many as you run.",
             instant(f"sum({_READY})"), decimals=0, width=6),
        stat("Time to catch up", "Lag of the topic that is further behind, at the rate at which it is read. Healthy: "
             "below a minute.",
             instant(f"max(\n{lag_seconds(_NOW, _AT)}\n)"), unit="s", decimals=0, steps=[(60, ORANGE), (600, RED)],
             width=6),
        stat("Busiest worker", "Share of its time that a worker spends in commits. Healthy: below half.",
             instant(f"max({busy(_NOW, _AT)})"), unit="percentunit", decimals=0, steps=[(0.5, ORANGE), (0.8, RED)],
             width=6),
        stat("Dead letters", "Records that could not be processed, in the time shown. Healthy: 0.",
             instant(_counted("trajectory_guard_fleet_dead_letters_total", SHOWN)), decimals=0, steps=[(1, RED)],
             width=6),
    ]  # fmt: skip


def _progress() -> list[Json]:
    read, written = (
        f"sum by (topic) (rate(trajectory_guard_fleet_{what}_total{{{_AT}}}[{_NOW}]))"
        for what in ("records", "written")
    )
    return [
        graph("Lag", "Records that are not processed yet, by role of the topic. operations lag behind where spans do "
              "not: look at both. Healthy: a few seconds of load.",
              query(f"sum by (topic) (trajectory_guard_fleet_lag{{{_AT}}})", "{{topic}}")),
        graph("Time to catch up by topic", "Lag, at the rate at which the topic is read. Healthy: below a minute.",
              query(lag_seconds(_NOW, _AT), "{{topic}}"), unit="s", steps=[(60, RED)]),
        graph("Records read and written", "By role of the topic. Healthy: follows the load.",
              query(read, "{{topic}} read"), query(written, "{{topic}} written"), unit="cps"),
    ]  # fmt: skip


def _commits() -> list[Json]:
    commits = f"sum by (instance) (rate(trajectory_guard_fleet_commits_total{{{_AT}}}[{_NOW}]))"
    return [
        graph("Share of time in commits", "Steps are evaluated at commits. Healthy: below half.",
              query(busy(_NOW, _AT), "{{instance}}"), unit="percentunit", maximum=1, steps=[(0.5, RED)]),
        graph("Time of a commit", "Healthy: well below the interval between commits (1 s by default).",
              query(divided(busy(_NOW, _AT), commits), "{{instance}}"), unit="s"),
        graph("Time restoring state", "Seconds spent reading changelogs. Healthy: 0, after a start or a rebalance a "
              "few.",
              query(_counted("trajectory_guard_fleet_restore_seconds_total", STEP, "instance"), "{{instance}}"),
              unit="s", bars=True),
    ]  # fmt: skip


def _order() -> list[Json]:
    return [
        graph("Order and repeats at the workers", "reordered: arrived late and were put in order. too_late: evaluated "
              "in order of arrival, a verdict may differ. evaluated again: what late steps cost. duplicate: records "
              "that were read again. Healthy: too_late 0; evaluated again at most half of all steps, more while a "
              "backlog is read.",
              query(_of_workers("trajectory_guard_late_steps_total", "how"), "{{how}}"),
              query(_of_workers("trajectory_guard_reevaluated_steps_total"), "evaluated again"),
              query(_of_workers("trajectory_guard_duplicates_total"), "duplicate"), bars=True),
        graph("Dead letters by topic", "By role of the topic they were read from. Healthy: empty.",
              query(_counted("trajectory_guard_fleet_dead_letters_total", STEP, "topic"), "{{topic}}"), bars=True),
        graph("Live objects", "Traces and trajectories in memory. Healthy: flat at a flat load.",
              query(f"sum by (kind) (trajectory_guard_fleet_live{{{_AT}}})", "{{kind}}")),
    ]  # fmt: skip


def _flags() -> list[Json]:
    return [
        graph("Flags in memory", "Trajectories whose flags a worker, or a program that serves flags, can answer for. "
              "Healthy: below flags.max_trajectories.",
              query(f"sum by (instance) (trajectory_guard_fleet_flags{{{_AT}}})", "{{instance}}"), width=12),
        graph("Flags forgotten", "idle: nobody needs them any more. full: flags.max_trajectories is too low, and gates "
              "let such runs go on. names: names of one trajectory. Healthy: idle only.",
              query(_counted("trajectory_guard_fleet_flag_evictions_total", STEP, EVICTION_REASON),
                    f"{{{{{EVICTION_REASON}}}}}"), bars=True, width=12),
    ]  # fmt: skip
