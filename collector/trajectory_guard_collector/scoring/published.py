"""What was published of an episode: late steps may move a finding, and a restart may evaluate a step again."""

from __future__ import annotations

from typing import Any

from trajectory_guard.core.explain.interventions import Spent


class Published:
    """Publication state of one episode: late steps may move a finding, but it is published once.

    Attributes:
        started, stopped, recovered, counted: whether its beginning, stop and end were published and metrics count it.
        nudges: number of nudges published; compacted: number of nudges at steps that are no longer kept.
        spent: resources counted so far.
    """

    __slots__ = ("compacted", "counted", "nudges", "recovered", "spent", "started", "stopped")

    def __init__(self) -> None:
        self.started = self.stopped = self.recovered = self.counted = False
        self.nudges = self.compacted = 0
        self.spent = Spent()

    @property
    def may_recover(self) -> bool:
        """Whether a nudge was published, and no recovery yet."""
        return self.nudges > 0 and not self.recovered

    def to_plain(self) -> list[Any]:
        """A form that JSON can represent."""
        return [self.started, self.stopped, self.recovered, self.counted, self.nudges, self.compacted, list(self.spent)]

    @classmethod
    def from_plain(cls, plain: list[Any], *, with_steps: bool) -> Published:
        """Restore ``to_plain``.

        Parameters:
            with_steps: whether the steps that are still kept are restored as well.
        """
        published = cls()
        published.started, published.stopped, published.recovered, published.counted, *numbers, spent = plain
        published.nudges, published.compacted = numbers
        if not with_steps:
            published.compacted = published.nudges
        published.spent = Spent(*spent)
        return published
