"""Record of the events of an episode that were published: late steps may move a finding, and it is published once."""

from __future__ import annotations

from typing import Any

from trajectory_guard.core.interventions import Spent


class Published:
    """Publication state of one episode: late steps may move a finding, but it is published once.

    Attributes:
        started, stopped, recovered, counted: whether its beginning, stop and end were published and metrics count it.
        nudges: number of nudges published; folded: number of nudges at steps that are no longer kept.
        spent: resources counted so far.
    """

    __slots__ = ("counted", "folded", "nudges", "recovered", "spent", "started", "stopped")

    def __init__(self) -> None:
        self.started = self.stopped = self.recovered = self.counted = False
        self.nudges = self.folded = 0
        self.spent = Spent()

    @property
    def may_recover(self) -> bool:
        """Whether a nudge was published, and no recovery yet."""
        return self.nudges > 0 and not self.recovered

    def to_plain(self) -> list[Any]:
        """A form that JSON can represent."""
        return [self.started, self.stopped, self.recovered, self.counted, self.nudges, list(self.spent)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Published:
        """Restore ``to_plain``."""
        published = cls()
        published.started, published.stopped, published.recovered, published.counted, published.nudges, spent = plain
        published.folded, published.spent = published.nudges, Spent(*spent)  # single steps are not saved
        return published
