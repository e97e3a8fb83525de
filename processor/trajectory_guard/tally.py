"""Counters of a process, updated by each verdict."""

from __future__ import annotations

from collections import Counter

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import Spent


def tally(counts: Counter[str], last: Verdict | None, verdict: Verdict) -> float:
    """Count findings, interventions and the loop's consumption since ``last``; returns the loop's cost in USD.

    Parameters:
        counts: ``episodes.<type>``, ``detections.<type>``, ``interventions.<level>``, ``loop_steps``, ``loop_tokens``.
        last: the verdict counted last in this run, if any.
    """
    before = last.spent if last is not None and last.episode == verdict.episode else None
    if before is None:
        counts[f"episodes.{verdict.types[0]}"] += 1
        before = Spent()
    for kind in verdict.types:
        counts[f"detections.{kind}"] += 1
    if verdict.nudge is not None:
        counts["interventions.NUDGE"] += 1
    elif verdict.stop_due:
        counts["interventions.STOP"] += 1
    counts["loop_steps"] += max(0, verdict.spent.steps - before.steps)
    counts["loop_tokens"] += max(0, verdict.spent.tokens - before.tokens)
    return max(0.0, verdict.spent.cost_usd - before.cost_usd)
