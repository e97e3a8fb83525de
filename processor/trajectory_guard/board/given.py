"""The messages that the agents of a trajectory were given, and the places at which they were stopped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.tracking.scope import graph_instance, graph_turn

if TYPE_CHECKING:
    from trajectory_guard.core.state import TrajectoryState

_MAX_HEARD: Final = 64
"""Texts that a trajectory remembers: an agent that says one of them again has said nothing new."""
_MAX_PLACES: Final = 64
_MAX_STATES: Final = 8


class Given:
    """Record of the messages that the agents of a trajectory were given, as gates read them.

    Attributes:
        reader: the agent instance that a gate read last; newest: step id of the newest call that it was given.
        goes_on: that agent was given the calls of the one before it. If not, it may work beside it, on something else.
        heard: digests of what agents and persons have said, newest last.
        stops: how often agents were stopped at each place since the loop between them was to stop; stopped_in: the user
            turn in which they were.
        states: digest of what the state of a graph held beside the messages, by the instance of the graph.
    """

    __slots__ = ("goes_on", "heard", "newest", "reader", "states", "stopped_in", "stops")

    def __init__(self) -> None:
        self.reader = self.newest = ""
        self.goes_on = False
        self.heard: tuple[str, ...] = ()
        self.stops: dict[str, int] = {}
        self.stopped_in = ""
        self.states: dict[str, str] = {}

    def note_state(self, state: TrajectoryState, run: str, digest: str) -> None:
        """Record the state of the graph around the agents: another one than before shows work of theirs, or new tasks.

        Parameters:
            run: label of the run of the gate that stands in that graph.
        """
        instance = graph_instance(run)
        before = self.states.pop(instance, digest)
        self.states = {**dict(list(self.states.items())[1 - _MAX_STATES :]), instance: digest}
        if before != digest and state.visit is not None:
            state.visit = state.visit._replace(spoke=True)

    def note_stop(self, run: str, path: str) -> None:
        """Record that the agent of a run was stopped. ``path``: as for ``flag_for_gate``."""
        if self.stopped_in != graph_turn(run):
            self.stops, self.stopped_in = {}, graph_turn(run)
        for place in _places(path):
            if place in self.stops or len(self.stops) < _MAX_PLACES:
                self.stops[place] = self.stops.get(place, 0) + 1

    def is_begun_again(self, run: str, path: str) -> bool:
        """Whether the agent of a run was stopped before, or any agent that was stopped has been begun again."""
        if not self.stops or self.stopped_in != graph_turn(run):
            return False
        return any(place in self.stops for place in _places(path)) or any(times > 1 for times in self.stops.values())

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


def _places(path: str) -> tuple[str, ...]:
    """The node of a path of tasks, and the node that its graph is unless at the top, as paths of names."""
    node = "|".join([task.partition(":")[0] for task in path.split("|")])
    return tuple([bounded_name(place) for place in (node, node.rpartition("|")[0]) if place])
