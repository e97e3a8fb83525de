"""The loop between agents, which is that of no single run: who is given its flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajectory_guard.board.entries import Entry, RunFlag, stronger
from trajectory_guard.core.policy import Level
from trajectory_guard.core.tracking.scope import graph_instance, graph_turn, label_of
from trajectory_guard.core.visits import AGENTS, Visit

if TYPE_CHECKING:
    from trajectory_guard.core.engine import Verdict


def flag_for_gate(entry: Entry, run: str, path: str = "") -> RunFlag:
    """The flag of a run, or that of the loop between agents if it says more and the run takes part in it.

    The gate of the agent that is at work is given it, or that of the agent at the top, whoever asks first. A stop by
    the former ends the agent, and whoever called it may do something else. If the graph calls an agent that was
    stopped once more, it is stopped before it works; where a gate of the graph stands before it, the graph ends.

    Parameters:
        path: the tasks that lead to the node that asks, as LangGraph names them (``alice:<id>|model:<id>``).
    """
    own, relay, given = entry.flag(run), entry.state.relay, entry.given
    if relay is None or relay.label != label_of(AGENTS, entry.state.turns.get("")):
        return own  # no agent has handed over in this user turn
    if graph_turn(relay.label) not in ("", graph_turn(run)):
        return own  # the next one has begun, which no gate at the top has read yet
    between = entry.flag(relay.label)
    if not relay.ladder.stopped:  # an agent has brought something new since
        given.stops.clear()
        if between.pending is not None and between.pending.level is Level.STOP:
            between.pending = None
    elif given.is_begun_again(run, path) and _in_circle(entry.state.visit, between.last):
        between.pending = between.last
        return between
    return stronger(own, between) if _takes_part(entry, run, between.pending) else own


def is_between(label: str) -> bool:
    """Whether the label of a run is that of the loop between agents."""
    return graph_instance(label) == AGENTS


def _takes_part(entry: Entry, run: str, verdict: Verdict | None) -> bool:
    """Whether the agent that was given the work of the others is at work in a run, and is in the circle."""
    instance, visit, given = graph_instance(run), entry.state.visit, entry.given
    is_next = visit is not None and (not instance or graph_instance(visit.run) == instance)
    return is_next and given.reader == instance and given.goes_on and _in_circle(visit, verdict)


def _in_circle(visit: Visit | None, verdict: Verdict | None) -> bool:
    """Whether the agent of the newest visit is one of those that a verdict names; True if it names none."""
    circle = verdict.detections[0].names if verdict is not None and verdict.detections else ()
    return visit is None or not circle or visit.agent in circle
