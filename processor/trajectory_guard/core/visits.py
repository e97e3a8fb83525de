"""The visits of agents: the consecutive steps of one agent instance, and the sequence that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.detectors.pingpong import HandOffs, PingPong, has_answered, has_spoken, name_digest, names_in
from trajectory_guard.core.failures import may_change_by_itself
from trajectory_guard.core.fingerprints import Symbol
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import EMPTY, ERROR, SUCCESS, StepRecord, Usage
from trajectory_guard.core.tools import HANDOFF, is_handoff

_WAIT: Final = "wait"
"""Name of a tool that waits, to all rules."""
_MAX_HEARD: Final = 8
_MARKED: Final = 6
"""The newest fields of a visit, which are saved otherwise than by their place."""
AGENTS: Final = "agents"
"""Label of the run that the visits make up, before the label of the user turn."""


class Visit(NamedTuple):
    """The consecutive steps of one agent instance, without another instance in between.

    Fields:
        run: label of its run.
        agent: its name.
        first: index of its first step in the trajectory.
        calls, results: digests of its calls and their results, hex; empty once one of them is unknown.
        brought_new: a step before the last one brought something new.
        last: what the last step did: 0 nothing new, 1 something new, or something unknown, 2 it handed over.
        named: digests of the short texts that the last step was given: the next agent may be among them.
        trace: trace id of the last step, None if unknown.
        spoke: an agent, this one or the one before, has written an answer.
        empty: each step failed or found nothing.
        waits: a step waits for something, or failed with an error that may pass.
        apart: it began with a message that is new, in another trace than the visit before it, or behind a visit of the
            same agent: nobody but a program, or a user, gave it that message.
        heard: labels of the user messages that this agent and those before it were given lately, as far as spans show
            them, each once; the newest last.
        shared: several agents, one after the other, were given the newest of them.
    """

    run: str
    agent: str
    first: int
    calls: str
    results: str
    brought_new: bool = False
    last: int = 0
    named: tuple[str, ...] = ()
    trace: str | None = None
    spoke: bool = False
    empty: bool = False
    waits: bool = False
    apart: bool = False
    heard: tuple[str, ...] = ()
    shared: bool = False

    def extended(self, seen: Observation) -> Visit:
        """The visit extended by one step."""
        calls, results = self.calls, self.results
        if not (seen.in_a_row and seen.repeats):  # a call that a nudge repeats makes no other visit of this one
            calls, results = _chained(calls, seen.call), _chained(results, seen.result)
        usage = seen.step.usage
        has_spoken = usage is not None and usage.answers > 0  # as ``has_spoken``, without a call at each step
        brought_new = self.brought_new or self.last == 1 or (has_spoken and seen.step.is_toolless)
        several = self.first > 0  # before the second visit there is one agent
        return Visit(
            self.run, self.agent, self.first, calls, results, brought_new, _deed(seen),
            names_in(seen) if several else (), seen.step.trace_id, self.spoke or has_spoken,
            self.empty and _found_nothing(seen), self.waits or (several and may_change_by_itself(seen)), self.apart,
            self.heard, self.shared,
        )  # fmt: skip

    @property
    def may_repeat(self) -> bool:
        """Whether further visits of this very agent may do the same once more, though nobody hands over to itself."""
        return self.empty or self.shared

    def record(self, step: StepRecord) -> StepRecord:
        """The visit as one step; ``step`` is the first one after it.

        A visit that did nothing but hand over to the next agent is a call of a hand-off tool, and one that waits is a
        call of a tool that does. ``answers`` of its usage is 1 if an agent spoke, and 2 if it is ``apart`` as well.
        """
        handed = not self.brought_new and (self.last == 2 or name_digest(step.agent_id or "") in self.named)
        return StepRecord(
            step.step_id, step.trajectory_id, HANDOFF if handed else _WAIT if self.waits else self.agent,
            self.calls or None, self.results or None, EMPTY if self.empty else SUCCESS, agent_id=self.agent,
            evidence=step.evidence, timestamp=step.timestamp,
            usage=Usage(answers=self.spoke + self.apart, asked=self.heard[-1] if self.shared else None),
        )  # fmt: skip

    def to_plain(self) -> list[Any]:
        """All fields, JSON-able: what holds or not as bits beside ``last``, and what was heard only if anything."""
        marks = self.spoke + 2 * self.empty + 4 * self.shared + 8 * self.waits + 16 * self.apart
        plain = list(self._replace(last=self.last + 4 * marks)[:-_MARKED])
        return [*plain, self.heard] if self.heard else plain

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> Visit:
        """See ``to_plain``."""
        run, agent, first, calls, results, brought_new, marked, named, trace, *heard = plain
        marks, last = divmod(marked, 4)
        return cls(
            run, agent, first, calls, results, brought_new, last, tuple(named), trace, spoke=bool(marks & 1),
            empty=bool(marks & 2), waits=bool(marks & 8), apart=bool(marks & 16),
            heard=tuple(heard[0]) if heard else (), shared=bool(marks & 4),
        )  # fmt: skip


def _deed(seen: Observation) -> int:
    if is_handoff(seen.step.tool_name) and not seen.delivers:
        return 2
    return int(seen.progress or seen.may_be_new)


def _found_nothing(seen: Observation) -> bool:
    return seen.outcome == EMPTY or seen.outcome == ERROR or seen.signature is not None


def _asked(step: StepRecord) -> str:
    """Label of the user message of the model call before a step, empty if no span shows it."""
    return (step.usage.asked if step.usage is not None else None) or ""


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
    if visit is not None and (visit.run == label or (step.run is not None and visit.run == step.run)):
        return visit.extended(seen), None  # its user turn may become known only after its first step
    heard, asked = visit.heard if visit is not None else (), _asked(step)
    is_new = bool(heard and asked) and asked not in heard  # words of the user, or of an agent that asks like one
    apart = is_new and visit is not None and (visit.trace != step.trace_id or visit.agent == step.agent_id)
    begun = Visit(
        label, step.agent_id, index, seen.call.hex(), seen.result.hex(), brought_new=has_answered(seen.step),
        last=_deed(seen), named=names_in(seen) if index else (), trace=step.trace_id,
        spoke=is_new or has_spoken(step), empty=_found_nothing(seen),
        waits=index > 0 and may_change_by_itself(seen), apart=apart,
        heard=(*[one for one in heard if one != asked], asked)[-_MAX_HEARD:] if asked else heard,
        shared=bool(asked) and heard[-1:] == (asked,),
    )  # fmt: skip
    return begun, visit


def begins_request(handed_over_in: str | None, ended: Visit, step: StepRecord, turns: Mapping[str, str]) -> bool:
    """Whether a step begins another request: agents handed over within one trace, and the step is in another trace.

    Where each agent has a trace of its own (agents in several services), another trace says nothing. While the steps
    answer one user message, the request goes on. Within a trace, a message that is new follows one that two agents were
    given: several requests that a program answers one after the other.

    Parameters:
        handed_over_in: the trace of the last hand-over in which both agents had the same trace, None before the first.
        ended: the visit before the step.
        turns: user turns by agent instance. That of the agent at the top has a run of its own; where it is unknown, the
            turn that the step names decides: the agent before answered another message.
    """
    asked = _asked(step)
    if ended.shared and asked and asked not in ended.heard:
        return True
    if step.turn is not None and "" not in turns:
        return not ended.run.endswith(f"/{step.turn}")
    if step.asked is not None and ended.run.endswith(f"/{step.asked}"):
        return False
    return handed_over_in is not None and handed_over_in == ended.trace != step.trace_id


def relay_detectors() -> tuple[Detector, ...]:
    """The detectors for the sequence of visits: cycles, and work that is handed round."""
    return (PingPong(of_agents=True), HandOffs())


def _chained(before: str, symbol: Symbol) -> str:
    return blake2b(f"{before} {symbol.hex()}".encode(), digest_size=8).hexdigest() if before and symbol else ""
