"""The loop between agents, which is that of no single run: who is given its flag, and what was said meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trajectory_guard.core.detectors.pingpong import AGENTS
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.tracking.scope import graph_instance, label_of

if TYPE_CHECKING:
    from trajectory_guard.core.state import TrajectoryState
    from trajectory_guard.entries import Entry, RunFlag

_MAX_HEARD: Final = 64
"""Texts that a trajectory remembers: an agent that says one of them again has said nothing new."""


class Given:
    """Record of the messages that the agents of a trajectory were given, as gates read them.

    Attributes:
        reader: the agent instance that a gate read last; newest: step id of the newest call that it was given.
        goes_on: that agent was given the calls of the one before it. If not, it may work beside it, on something else.
        heard: digests of what agents and persons have said, newest last.
    """

    __slots__ = ("goes_on", "heard", "newest", "reader")

    def __init__(self) -> None:
        self.reader = self.newest = ""
        self.goes_on = False
        self.heard: tuple[str, ...] = ()

    def note(self, state: TrajectoryState, run: str, newest: str, texts: Iterable[str], calls: Iterable[str]) -> None:
        """Record what the agent of a run was given to read; new words are work of the agents, as the visit then shows.

        Parameters:
            newest: step id of its newest call.
            texts: what agents and persons have said; calls: step ids of the calls in the user turn. Both are read only
                where another agent reads.
        """
        instance, before = graph_instance(run), self.newest
        self.newest = newest
        if self.reader == instance:
            return
        self.reader, self.goes_on = instance, before in calls
        heard = self.heard
        for digest in map(text_digest, texts):
            if digest not in heard:
                heard = (*heard[1 - _MAX_HEARD :], digest)
        if heard is not self.heard:
            self.heard = heard
            if state.visit is not None and graph_instance(state.visit.run) == instance:
                state.visit = state.visit._replace(spoke=True)


def flag_for_gate(entry: Entry, run: str) -> RunFlag:
    """The flag of a run, or that of the loop between agents if it says more and the run takes part in it.

    The gate of the agent that is at work is given it, or that of the agent at the top, whoever asks first. A stop by
    the former ends the agent; a graph that calls further agents all the same has each of them stopped.
    """
    own, relay = entry.flag(run), entry.state.relay
    if relay is None or relay.label != label_of(AGENTS, entry.state.turns.get("")):
        return own  # no agent has handed over in this user turn
    return stronger(own, entry.flag(relay.label)) if _takes_part(entry, run) else own


def stronger(own: RunFlag, between: RunFlag) -> RunFlag:
    """The flag of a run, unless that of the loop between agents is of a higher level."""
    one, other = own.pending, between.pending
    return own if other is None or (one is not None and one.level.rank >= other.level.rank) else between


def is_between(label: str) -> bool:
    """Whether the label of a run is that of the loop between agents."""
    return graph_instance(label) == AGENTS


def _takes_part(entry: Entry, run: str) -> bool:
    instance, visit, given = graph_instance(run), entry.state.visit, entry.given
    is_next = visit is not None and (not instance or graph_instance(visit.run) == instance)
    return is_next and given.reader == instance and given.goes_on
