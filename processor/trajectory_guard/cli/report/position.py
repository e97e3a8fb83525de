"""Where recorded trajectories stand: their cursor, from the steps alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trajectory_guard.board.cursors import sighting_of
from trajectory_guard.core.cursor.cursor import Cursor
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.scope import run_label


class Position(NamedTuple):
    """Position of a cursor, calls that repeat the one before them, and calls that were not answered.

    >>> Position("task.1.step.7", 2, 0).words
    'task.1.step.7, 2 repeats, 0 open'
    """

    cursor: str
    repeat_loop_count: int
    open_calls: int

    @property
    def words(self) -> str:
        """For a table."""
        repeats = "1 repeat" if self.repeat_loop_count == 1 else f"{self.repeat_loop_count:,} repeats"
        return f"{self.cursor}, {repeats}, {self.open_calls:,} open"


def position_of(steps: Iterable[StepRecord]) -> Position:
    """The position after the tool calls among the steps."""
    cursor = Cursor()
    for step in steps:
        if step.model_scope is None:
            call = cursor.sight(sighting_of(step, run_label(step, {}), redact=True))
            cursor.finish(call, step.outcome_type, end=step.timestamp + step.duration)
    report = cursor.report()
    return Position(report.cursor, report.repeat_loop_count, report.open_calls + report.unrecorded_boundaries)
