"""In-process verdicts as they appear on spans at a receiving end, and as flags."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from tests.faults.processes import Collector
from tests.helpers import eventually
from trajectory_guard import telemetry
from trajectory_guard.core.engine import Verdict

Finding = tuple[str, float, int, tuple[str, ...], int]
"""Level, score, step index, loop types, episode."""


def finding_of(verdict: Verdict) -> Finding | None:
    """The finding that a verdict writes on its span; None if it writes none."""
    if not verdict.detections:
        return None
    return (verdict.level.value, round(verdict.score, 6), verdict.step_index, tuple(verdict.types), verdict.episode)


def finding_in(tags: Mapping[str, str]) -> Finding | None:
    """The finding on a span as rotel prints it."""
    if telemetry.INTERVENTION not in tags:
        return None
    return (
        tags[telemetry.INTERVENTION], round(float(tags[telemetry.LOOP_SCORE]), 6), int(tags[telemetry.STEP_INDEX]),
        tuple(re.findall(r"Str\((\w+)\)", tags[telemetry.LOOP_TYPE])), int(tags[telemetry.EPISODE]),
    )  # fmt: skip


def last_of(verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """The newest verdict of each trajectory, with the number of its episodes: a new run has had none of its own."""
    newest: dict[str, Verdict] = {}
    for verdict in verdicts.values():
        before = newest.get(verdict.trajectory_id)
        if before is None or before.step_index < verdict.step_index:
            newest[verdict.trajectory_id] = verdict
    for verdict in verdicts.values():
        last = newest[verdict.trajectory_id]
        newest[verdict.trajectory_id] = last._replace(episode=max(last.episode, verdict.episode))
    return newest


def _end_of(verdict: Verdict) -> tuple[Any, ...]:
    """The state of a trajectory after its last step, to be compared with ``_end_in``."""
    return verdict.level.value, round(verdict.score, 6), verdict.step_index + 1, verdict.nudges, verdict.episode


def _end_in(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The same of a row of ``/debug/trajectories``."""
    return row["level"], round(row["score"], 6), row["steps"], row["nudges"], row["episode"]


async def assert_ends(collector: Collector, ends: Mapping[str, Verdict]) -> None:
    """The trajectories come to what ``last_of`` says: steps may wait for earlier ones, or until there is time for them."""
    expected = {name: _end_of(verdict) for name, verdict in ends.items()}

    def found() -> dict[str, tuple[Any, ...]]:
        return {name: _end_in(row) for name, row in collector.rows().items() if name in ends}

    await asyncio.to_thread(eventually, lambda: found() == expected)
    assert found() == expected
