"""Loops between agents: the sequence of their visits is a trajectory of its own, in which each visit is one step.

Each agent instance is evaluated in its own run, where nothing repeats if every call is a new instance. The loop
then consists of the work handed over: writer, critic, writer, critic, all with the same calls and results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.detectors.pingpong import PingPong
from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import SUCCESS, StepRecord

AGENTS: Final = "agents"
"""Label of the run that the visits make up, before the label of the user turn."""


class Visit(NamedTuple):
    """The consecutive steps of one agent instance, without another instance in between.

    Fields:
        run: label of its run.
        agent: its name.
        first: index of its first step in the trajectory.
        calls, results: digests of its calls and their results, hex; empty once one of them is unknown.
    """

    run: str
    agent: str
    first: int
    calls: str
    results: str

    def extended(self, call: str, result: str) -> Visit:
        """The visit extended by one step."""
        return self._replace(calls=_chained(self.calls, call), results=_chained(self.results, result))

    def record(self, step: StepRecord) -> StepRecord:
        """The visit as one step; ``step`` is the first one after it."""
        return StepRecord(
            step.step_id, step.trajectory_id, self.agent, self.calls or None, self.results or None, SUCCESS,
            evidence=step.evidence, timestamp=step.timestamp,
        )  # fmt: skip


def advance(
    visit: Visit | None, step: StepRecord, seen: Observation, label: str, index: int
) -> tuple[Visit | None, Visit | None]:
    """The visit that goes on after a step, and the one that ended with it, if any.

    Parameters:
        label: label of the step's run. Agents that share a run are evaluated there.
        index: index of the step in the trajectory.
    """
    if not step.agent_id:
        return visit, None
    call, result = seen.call.hex(), seen.result.hex()
    if visit is not None and visit.run == label:
        return visit.extended(call, result), None
    return Visit(label, step.agent_id, index, call, result), visit


def relay_detectors() -> tuple[Detector, ...]:
    """The detectors for the sequence of visits: cycles only."""
    return (PingPong(),)


def _chained(before: str, symbol: str) -> str:
    return digest64(f"{before} {symbol}".encode()).hex() if before and symbol else ""
