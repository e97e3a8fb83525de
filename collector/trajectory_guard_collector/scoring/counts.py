"""Counts of scoring: each method adds to the metrics of one event in the life of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import Metric
from trajectory_guard_collector.telemetry.metrics import Metrics


class ScoringCounts:
    """Adds to the metrics of a collector.

    Parameters:
        metrics: where the counts go.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing: requests replayed after a restart were counted before it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _add(self, row: Metric, n: float = 1, /, **labels: Any) -> None:
        if not self._paused:
            self._metrics.add(row, n, **labels)

    def error(self, where: str) -> None:
        """Count an error of the collector itself that was contained."""
        self._add(catalogue.ERRORS, where=where)

    def step(self, service: str) -> None:
        """Count an evaluated tool call."""
        self._add(catalogue.STEPS, service_name=service)

    def fingerprinted(self, service: str) -> None:
        """Count a tool call that was too long to be understood in full."""
        self._add(catalogue.FINGERPRINTED, service_name=service)

    def detection(self, service: str, loop_type: str) -> None:
        """Count a finding of a detector."""
        self._add(catalogue.DETECTIONS, service_name=service, trajectory_guard_loop_type=loop_type)

    def intervention(self, level: str, service: str, agent: str, tool: str, loop_type: str, trace_id: str) -> None:
        """Count a nudge or a stop that became due."""
        self._add(
            catalogue.INTERVENTIONS, trace_id=trace_id, service_name=service, trajectory_guard_intervention=level,
            gen_ai_agent_name=agent, gen_ai_tool_name=tool, trajectory_guard_loop_type=loop_type,
        )  # fmt: skip

    def episode(self, service: str, agent: str, tool: str, loop_type: str, trace_id: str) -> None:
        """Count a loop that began."""
        self._add(
            catalogue.EPISODES, trace_id=trace_id, service_name=service, gen_ai_agent_name=agent,
            gen_ai_tool_name=tool, trajectory_guard_loop_type=loop_type,
        )  # fmt: skip

    def recovery(self, service: str, agent: str) -> None:
        """Count an agent that left a loop after a nudge."""
        self._add(catalogue.RECOVERIES, service_name=service, gen_ai_agent_name=agent)

    def loop_spent(self, service: str, steps: int, tokens: int, cost_usd: float) -> None:
        """Count steps, tokens and US dollars spent inside loops since the last call."""
        self._add(catalogue.LOOP_STEPS, steps, service_name=service)
        self._add(catalogue.LOOP_TOKENS, tokens, service_name=service)
        self._add(catalogue.LOOP_COST, cost_usd, service_name=service)

    def duplicate(self) -> None:
        """Count a second record of a call, which was ignored."""
        self._add(catalogue.DUPLICATES)

    def late(self, how: str) -> None:
        """Count a step that arrived out of order: ``reordered`` or ``too_late``."""
        self._add(catalogue.LATE_STEPS, how=how)

    def evaluated_again(self) -> None:
        """Count a step that was evaluated again."""
        self._add(catalogue.REJUDGED_STEPS)

    def eviction(self, reason: str) -> None:
        """Count an evicted trajectory: ``idle`` or ``full``."""
        self._add(catalogue.EVICTIONS, reason=reason)

    def evicted_runs(self, runs: int) -> None:
        """Count runs that were forgotten because their trajectory has too many."""
        if runs:
            self._add(catalogue.EVICTED_RUNS, runs)
