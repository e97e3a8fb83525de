"""Counters of a process, updated by each verdict."""

from __future__ import annotations

from collections import Counter

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import Spent


def tally(counts: Counter[str], last: Verdict | None, verdict: Verdict) -> float:
    """Count findings, interventions and the loop's consumption since ``last``; returns the loop's cost in USD.

    Parameters:
        counts: ``episodes.<type>``, ``detections.<type>``, ``interventions.<level>``, ``loop_steps``, ``loop_tokens``;
            all but the findings also as ``certainty.<key>.<certainty>``.
        last: the verdict counted last in this run, if any.
    """
    certainty = str(verdict.certainty or "")

    def add(key: str, n: int = 1) -> None:
        counts[key] += n
        counts[f"certainty.{key}.{certainty}"] += n

    before = last.spent if last is not None and last.episode == verdict.episode else None
    if before is None:
        add(f"episodes.{verdict.types[0]}")
        before = Spent()
    for kind in verdict.types:
        counts[f"detections.{kind}"] += 1
    if verdict.nudge is not None:
        add("interventions.NUDGE")
    elif verdict.stop_due:
        add("interventions.STOP")
    add("loop_steps", max(0, verdict.spent.steps - before.steps))
    add("loop_tokens", max(0, verdict.spent.tokens - before.tokens))
    return max(0.0, verdict.spent.cost_usd - before.cost_usd)
