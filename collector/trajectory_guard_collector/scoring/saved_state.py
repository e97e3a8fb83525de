"""Saved state that cannot be read, as that of all trajectories is after an upgrade to another version of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from trajectory_guard.core.engine import Engine
from trajectory_guard.core.state import StateFormatError
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry.metrics import ScoringCounts
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_throttled: Final = ThrottledLog(logging.getLogger(__name__))
T = TypeVar("T")


def with_saved_state(
    trajectory: Trajectory,
    engine: Engine,
    counts: ScoringCounts,
    use: Callable[[], T],
    *,
    before_again: Callable[[], object] = lambda: None,
) -> T:
    """Do something that reads the saved state of a trajectory; if it cannot be read, again without it.

    Parameters:
        engine: reads the state.
        counts: counts the state that cannot be read.
        use: what to do; raises ``StateFormatError`` if the state cannot be read, and can then be called again.
        before_again: called in between, when the trajectory has given that state up.
    """
    try:
        return use()
    except StateFormatError as error:
        counts.error("state.trajectory")
        name = trajectory.key[1]
        _throttled.log(logging.WARNING, "state", f"the saved state of trajectory {name!r} begins again: {error}")
    trajectory.start_again(engine)
    before_again()
    return use()
