"""Loops between agents: the sequence of their visits is a trajectory of its own, in which each visit is one step.

Each agent instance is evaluated in its own run, where nothing repeats if every call is a new instance. The loop
then consists of the work handed over: writer, critic, writer, critic, all with the same calls and results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.detectors.pingpong import HandOffs, PingPong, name_digest, names_in
from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import SUCCESS, StepRecord
from trajectory_guard.core.tools import is_handoff

AGENTS: Final = "agents"
"""Label of the run that the visits make up, before the label of the user turn."""
HANDOFF: Final = "handoff"
"""Stands for the calls of a visit that only handed over."""


class Visit(NamedTuple):
    """The consecutive steps of one agent instance, without another instance in between.

    Fields:
        run: label of its run.
        agent: its name.
        first: index of its first step in the trajectory.
        calls, results: digests of its calls and their results, hex; empty once one of them is unknown.
        worked: a step before the last one brought something new.
        last: what the last step did: 0 nothing new, 1 something new, 2 it handed over.
        named: digests of the short texts that the last step was given: the next agent may be among them.
    """

    run: str
    agent: str
    first: int
    calls: str
    results: str
    worked: bool = False
    last: int = 0
    named: tuple[str, ...] = ()

    def extended(self, seen: Observation) -> Visit:
        """The visit extended by one step."""
        calls, results = _chained(self.calls, seen.call.hex()), _chained(self.results, seen.result.hex())
        worked = self.worked or self.last == 1
        named = names_in(seen.step) if self.first else ()  # before the second visit there is one agent
        return Visit(self.run, self.agent, self.first, calls, results, worked, _deed(seen), named)

    def record(self, step: StepRecord) -> StepRecord:
        """The visit as one step; ``step`` is the first one after it.

        A visit that did nothing but hand over to the next agent is a call of a hand-off tool.
        """
        handed = not self.worked and (self.last == 2 or name_digest(step.agent_id or "") in self.named)
        return StepRecord(
            step.step_id, step.trajectory_id, HANDOFF if handed else self.agent, self.calls or None,
            self.results or None, SUCCESS, agent_id=self.agent, evidence=step.evidence, timestamp=step.timestamp,
        )  # fmt: skip


def _deed(seen: Observation) -> int:
    return 2 if is_handoff(seen.step.tool_name) else int(seen.progress)


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
    if visit is not None and visit.run == label:
        return visit.extended(seen), None
    begun = Visit(
        label,
        step.agent_id,
        index,
        seen.call.hex(),
        seen.result.hex(),
        last=_deed(seen),
        named=names_in(step) if index else (),
    )
    return begun, visit


def relay_detectors() -> tuple[Detector, ...]:
    """The detectors for the sequence of visits: cycles, and work that is handed round."""
    return (PingPong(of_agents=True), HandOffs())


def _chained(before: str, symbol: str) -> str:
    return digest64(f"{before} {symbol}".encode()).hex() if before and symbol else ""
