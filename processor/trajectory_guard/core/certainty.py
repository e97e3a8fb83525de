"""The strength of a finding's evidence, on which the policy bases its speed of escalation."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Certainty(str, Enum):
    """Strength of the evidence behind a finding, strongest first."""

    CERTAIN = "certain"
    """The same call with the same observation, a cycle with the same observations, a call that was refused before."""
    LIKELY = "likely"
    """Reworded calls, one class of error or one state through changing calls, answers that are equal but for noise."""
    ACKNOWLEDGED = "acknowledged"
    """The same action, answered by a bare acknowledgement that shows no state: it may well have done its work."""
    WAITING = "waiting"
    """Something is under way, or fails for a passing reason: repeating the call is what waiting looks like."""

    def __str__(self) -> str:
        return self.value


_RANK: Final = {one: rank for rank, one in enumerate(Certainty)}


def weakest(first: Certainty, second: Certainty) -> Certainty:
    """The weaker of two.

    >>> str(weakest(Certainty.CERTAIN, Certainty.WAITING))
    'waiting'
    """
    return first if _RANK[first] >= _RANK[second] else second


def strongest(first: Certainty, second: Certainty) -> Certainty:
    """The stronger of two."""
    return first if _RANK[first] <= _RANK[second] else second


PACE: Final = {Certainty.CERTAIN: 1, Certainty.LIKELY: 1, Certainty.ACKNOWLEDGED: 3, Certainty.WAITING: 3}
"""Factor on the number of repeats that a rule requires, by strength of evidence."""
