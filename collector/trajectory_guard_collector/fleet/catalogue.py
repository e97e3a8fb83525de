"""The metrics of the stream worker that the collector does not have."""

from __future__ import annotations

from typing import Final

from trajectory_guard_collector.telemetry.catalogue import EVICTION_REASON, Metric

RECORDS: Final = Metric(
    "trajectory_guard_fleet_records", "counter", ("topic",), "{record}", "records read, by role of the topic",
    "rises with the load",
)  # fmt: skip
WRITTEN: Final = Metric(
    "trajectory_guard_fleet_written", "counter", ("topic",), "{record}", "records written, by role of the topic",
    "rises with the load",
)  # fmt: skip
DEAD_LETTERS: Final = Metric(
    "trajectory_guard_fleet_dead_letters", "counter", ("topic",), "{record}",
    "records that cannot be processed, by role of the topic they were read from", "0",
)  # fmt: skip
LAG: Final = Metric(
    "trajectory_guard_fleet_lag", "gauge", ("topic",), "{record}",
    "records of this worker's partitions that are not processed yet, by role of the topic", "a few seconds of load",
)  # fmt: skip
RESTORE: Final = Metric(
    "trajectory_guard_fleet_restore_seconds", "counter", (), "s", "time spent restoring state from the changelogs",
    "0, after a start or a rebalance a few seconds",
)  # fmt: skip
READY: Final = Metric(
    "trajectory_guard_fleet_ready", "gauge", (), "1", "1 while the worker processes records, else 0", "1"
)
LIVE: Final = Metric(
    "trajectory_guard_fleet_live", "gauge", ("kind",), "{object}", "traces and trajectories in memory", "-"
)
COMMITS: Final = Metric("trajectory_guard_fleet_commits", "counter", (), "{commit}", "commits begun", "rises")
COMMIT_SECONDS: Final = Metric(
    "trajectory_guard_fleet_commit_seconds", "counter", (), "s",
    "time spent evaluating and writing what changed, at commits", "below half of the time that passes",
)  # fmt: skip
FLAGS: Final = Metric(
    "trajectory_guard_fleet_flags", "gauge", (), "{trajectory}", "trajectories in the table that answers for flags",
    "below `flags.max_trajectories`",
)  # fmt: skip
FLAG_EVICTIONS: Final = Metric(
    "trajectory_guard_fleet_flag_evictions", "counter", (EVICTION_REASON,), "{trajectory}",
    "flags and names evicted: `idle`, `full` (trajectories), `names` (of a trajectory)",
    "reason `idle` only; `full`: raise `flags.max_trajectories`",
)  # fmt: skip

METRICS: Final = (
    RECORDS, WRITTEN, DEAD_LETTERS, LAG, RESTORE, READY, LIVE, COMMITS, COMMIT_SECONDS, FLAGS, FLAG_EVICTIONS,
)  # fmt: skip
