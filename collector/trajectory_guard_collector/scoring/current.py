"""The verdicts of a trajectory that stand, by run: what an agent that asks for its flag is given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from trajectory_guard.board.between import is_between
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import MAX_BUSY_RUNS
from trajectory_guard.core.tracking.scope import graph_turn
from trajectory_guard_collector.scoring.items import Item, StepItem


class RunVerdicts(NamedTuple):
    """The verdicts that stand against one run.

    Fields:
        run: its label; agent: the name of its agent, None if no span names it.
        trace_id: trace of its newest step; since: index of its first step in that trace.
        nudge, stop: the newest verdict with a nudge, and with a stop.
        nudge_in, stop_in: id of the trace in which all of that loop lies; empty if it goes through several.
    """

    run: str
    agent: str | None = None
    trace_id: str = ""
    since: int = 0
    nudge: Verdict | None = None
    stop: Verdict | None = None
    nudge_in: str = ""
    stop_in: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether nothing stands against it."""
        return self.nudge is None is self.stop

    def at(self, verdict: Verdict, agent: str | None, trace_id: str) -> RunVerdicts:
        """The same after a further step of the run, and the verdict on it."""
        since = self.since if trace_id == self.trace_id else verdict.step_index
        now = self._replace(agent=agent, trace_id=trace_id, since=since)
        within = trace_id if verdict.first_step >= since else ""
        if verdict.detections and verdict.level is Level.STOP:
            return now._replace(stop=verdict.with_certificate_of(self.stop), stop_in=within)
        if verdict.detections and verdict.nudge is not None:
            return now._replace(nudge=verdict, nudge_in=within)
        return now

    def after(self, ended: Collection[str]) -> RunVerdicts:
        """The same once these traces have ended: a loop through several traces goes on in the next one."""
        nudge = None if self.nudge_in in ended else self.nudge
        return self._replace(nudge=nudge, stop=None if self.stop_in in ended else self.stop)


class CurrentVerdicts(NamedTuple):
    """The verdicts that stand against a trajectory. They follow from its steps in their order, on whatever process.

    Fields:
        last: the newest verdict with a finding.
        runs: the runs that acted last, the newest at the end. A recovery of a run ends what stands against it.
    """

    last: Verdict | None = None
    runs: tuple[RunVerdicts, ...] = ()

    @property
    def nudge(self) -> Verdict | None:
        """The newest verdict with a nudge that stands against any run."""
        return newest_of([one.nudge for one in self.runs if one.nudge is not None])

    @property
    def stop(self) -> Verdict | None:
        """The newest stop that stands against any run."""
        return newest_of([one.stop for one in self.runs if one.stop is not None])

    def after(self, items: Iterable[Item]) -> CurrentVerdicts:
        """The verdicts after further steps."""
        current = self
        for item in items:
            if isinstance(item, StepItem):
                current = current.after_item(item)
        return current

    def after_item(self, item: StepItem) -> CurrentVerdicts:
        """The verdicts after a further step."""
        verdict, step, trace_id = item.verdict, item.step, item.view.trace_id
        if verdict is None:
            return self
        newest = self.runs[-1] if self.runs else RunVerdicts("")
        if not (verdict.detections or verdict.recovered) and newest[:3] == (verdict.run, step.agent_id, trace_id):
            return self  # as most steps
        current = self.after_recovery(verdict.run) if verdict.recovered else self
        run = next((one for one in current.runs if one.run == verdict.run), RunVerdicts(verdict.run))
        agent = None if is_between(verdict.run) else step.agent_id or run.agent  # once named, it is the same agent
        run = run.at(verdict, agent, trace_id)
        others = [one for one in current.runs if one.run != verdict.run]
        if len(others) == MAX_BUSY_RUNS:  # one against which nothing stands goes first
            others.remove(next(filter(attrgetter("is_clear"), others), others[0]))
        return CurrentVerdicts(verdict if verdict.detections else current.last, (*others, run))

    def after_recovery(self, run: str) -> CurrentVerdicts:
        """The verdicts after a run has recovered."""
        if all(one.run != run or one.is_clear for one in self.runs):
            return self
        runs = [one._replace(nudge=None, stop=None) if one.run == run else one for one in self.runs]
        return self._replace(runs=tuple(runs))

    def under(self, trajectory_id: str) -> CurrentVerdicts:
        """The same verdicts under another name of the trajectory."""

        def renamed(verdict: Verdict | None) -> Verdict | None:
            return verdict._replace(trajectory_id=trajectory_id) if verdict is not None else None

        runs = [one._replace(nudge=renamed(one.nudge), stop=renamed(one.stop)) for one in self.runs]
        return CurrentVerdicts(renamed(self.last), tuple(runs))

    def stands(self, ended: Collection[str]) -> bool:
        """Whether anything stands against a run, other than in traces that have ended."""
        return not all(one.after(ended).is_clear for one in self.runs)

    def standing(self, agent: str | None, ended: Collection[str]) -> list[RunVerdicts]:
        """The verdicts for an agent that asks now: on its newest run, and on the loop between agents of that user turn.

        Parameters:
            agent: its name; None asks for the run that acted last, of whatever agent.
            ended: ids of the traces whose root span has ended: what became due in them concerns no later request.
        """
        own = [one for one in self.runs if not is_between(one.run) and agent in (None, one.agent)]
        between = [one for one in self.runs if is_between(one.run)]
        found = own[-1:] + [
            one for one in between[-1:] if not own or graph_turn(one.run) in ("", graph_turn(own[-1].run))
        ]
        return [one.after(ended) for one in found]


def newest_of(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The verdict on the newest step; None of none."""
    return max(verdicts, key=lambda one: one.step_index, default=None)


NOTHING: Final = CurrentVerdicts()
