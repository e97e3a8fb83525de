"""The verdicts of a trajectory that gates act on, computed from the verdicts of its steps in their order.

Late steps change verdicts that were there before. The standing is therefore a function of the verdicts, not of
the order in which spans arrived: one process and many agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level


class Standing(NamedTuple):
    """The newest verdict with a finding, with a nudge and with a stop; a recovery of their run ends the latter two."""

    last: Verdict | None = None
    nudge: Verdict | None = None
    stop: Verdict | None = None

    def after(self, verdicts: Iterable[Verdict | None]) -> Standing:
        """The standing after further steps."""
        found = self
        for verdict in verdicts:
            found = found.after_item(verdict)
        return found

    def after_item(self, verdict: Verdict | None) -> Standing:
        """The standing after a further step; ``verdict``: None if it did not count."""
        if verdict is None:
            return self
        found = self.after_recovery(verdict.run) if verdict.recovered else self
        if not verdict.detections:
            return found
        if verdict.level is Level.STOP:
            return found._replace(last=verdict, stop=verdict.with_certificate_of(found.stop))
        if verdict.nudge is not None:
            return found._replace(last=verdict, nudge=verdict)
        return found._replace(last=verdict)

    def after_recovery(self, run: str) -> Standing:
        """The standing after a run has recovered."""
        nudge = None if self.nudge is not None and self.nudge.run == run else self.nudge
        stop = None if self.stop is not None and self.stop.run == run else self.stop
        return self if (nudge, stop) == (self.nudge, self.stop) else self._replace(nudge=nudge, stop=stop)


NOTHING: Final = Standing()
