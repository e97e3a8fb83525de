"""The flag of a trajectory as a gate reads it, and the run that a gate follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.tracking.scope import label_of

if TYPE_CHECKING:
    from trajectory_guard.config.choices import Mode
    from trajectory_guard.spending.spending import BudgetStatus

_HIGHEST: Final = {"enforce": Level.STOP, "nudge": Level.NUDGE, "observe": Level.OBSERVE}


class Flag(NamedTuple):
    """The flag of a trajectory, as a gate reads it.

    Fields:
        level: the strongest intervention that became due since a gate last took the flag.
        verdict: the verdict behind it, None without a finding.
        score, nudges, steps: current score, nudges due so far, steps taken.
        remote: the flag comes from a collector, which counts the steps of all processes.
        budget: the budgets that concern the trajectory; None if none is configured, or the ledger cannot be read.
        by_hand: the flag that a person raised, if it is one.
    """

    level: Level
    verdict: Verdict | None
    score: float
    nudges: int
    steps: int
    remote: bool = False
    budget: BudgetStatus | None = None
    by_hand: HandFlag | None = None

    def within(self, mode: Mode) -> Flag:
        """The flag as ``mode`` lets a caller act on it: nudges and stops, nudges only, or nothing."""
        budget = self.budget.within(mode) if self.budget is not None else None
        if self.level.rank <= _HIGHEST[mode].rank:
            return self._replace(budget=budget)
        return self._replace(level=Level.OBSERVE, verdict=None, by_hand=None, budget=budget)


class GateRun(NamedTuple):
    """The run that a gate follows: agent instance (checkpoint namespace) and user turn, as in ``StepRecord``."""

    instance: str
    turn: str | None

    @property
    def label(self) -> str:
        """Label of the run."""
        return label_of(self.instance, self.turn)
