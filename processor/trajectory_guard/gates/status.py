"""The types of what a gate writes into the state of a graph."""

from __future__ import annotations

from typing import Any, TypedDict


class LoopStatus(TypedDict, total=False):
    """``loop_status`` in the state of a guarded graph, as the table in the README of the package explains it.

    Empty before the first decision. A hand-placed ``TrajectoryGuardNode`` keeps further keys in it, for itself.
    """

    status: str
    loop_score: float
    health: float
    loop_type: str | None
    nudges_sent: int
    last_intervention: str | None
    steps_taken: int
    trajectory_id: str
    run: str
    stop: dict[str, Any] | None
    budget: dict[str, Any]
    cursor: dict[str, Any]
