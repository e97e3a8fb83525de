"""Which run a step belongs to, and where the boundaries between runs are.

A *run* is one agent instance working towards one answer. Two labels name it: ``run`` the instance (an agent span, a
checkpoint namespace) and ``turn`` the user turn in which it works. Another label is another run: a *certain* boundary,
across which nothing is suspected. Where labels are missing, a new trace of the same conversation and a long pause are
*uncertain* boundaries: what lies before them proves less, and never leads to a stop.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.core.run import Run
from trajectory_guard.core.steps import StepRecord

RHYTHM_FACTOR: Final = 8
"""A pause so many times as long as the run's own rhythm is a boundary."""
LEAST_PAUSE_S: Final = 30.0
"""Shorter pauses are none, whatever the rhythm."""
PACED_S: Final = 20.0
"""Idle seconds before a repeat from which on it may be deliberate polling."""
RETRY_PAUSE_S: Final = 5.0
"""Idle seconds before a repeat from which on it may be a deliberate back-off."""
PACED_FACTOR: Final = 4
"""And so many times as long as the run's own rhythm."""


def run_label(step: StepRecord, turns: dict[str, str]) -> str:
    """Label of the step's run. ``turns``: label of the current user turn by agent instance.

    A step without a turn belongs to the turn that its instance is in.

    >>> run_label(StepRecord("1", "t", "search", turn="2", run="billing"), {})
    'billing/2'
    """
    instance = step.run or ""
    turn = step.turn if step.turn is not None else turns.get(instance)
    if turn is None:
        return instance
    return f"{instance}/{turn}"


def idle_s(run: Run, step: StepRecord) -> float:
    """Idle seconds between the newest step of the run and this one, the model's own time aside; 0 if unknown."""
    if not step.timestamp or run.index == 0:
        return 0.0
    thinking = step.usage.seconds if step.usage is not None else 0.0
    return max(0.0, step.timestamp - run.last_end - thinking)


def is_boundary(run: Run, step: StepRecord, gap_s: float, pause_s: float) -> bool:
    """Whether an uncertain boundary lies before the step.

    Parameters:
        gap_s: idle seconds before the step.
        pause_s: idle seconds from which on a pause is a boundary whatever the rhythm.
    """
    if run.index == 0:
        return False
    if step.turn is None and step.trace_id is not None and run.trace_id is not None and step.trace_id != run.trace_id:
        return True
    if gap_s >= pause_s:
        return True
    return gap_s >= LEAST_PAUSE_S and run.rhythm_s >= 0.0 and gap_s >= RHYTHM_FACTOR * max(run.rhythm_s, 1.0)


def is_paced(run: Run, gap_s: float) -> bool:
    """Whether a repeat comes after a pause that looks deliberate: longer than this run's usual thinking."""
    return gap_s >= PACED_S and (run.rhythm_s < 0.0 or gap_s >= PACED_FACTOR * run.rhythm_s)


def next_rhythm(run: Run, gap_s: float) -> float:
    """The run's rhythm after a call that was no repeat: a running mean that forgets slowly."""
    return gap_s if run.rhythm_s < 0.0 else 0.75 * run.rhythm_s + 0.25 * gap_s
