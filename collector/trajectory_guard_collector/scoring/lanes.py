"""Agents that work side by side, before the spans that tell them apart have arrived.

A span arrives when it has ended, so the span of an agent comes after those of all its calls. Until then a step is in
the *lane* of the first span above it that is missing. A lane is no agent: many frameworks put a span around each call
or each model turn, and one looping agent would be as many runs as it made calls. Such spans end before the agent goes
on, and the steps below them are then in the lane of the next span above. So steps are evaluated as one run until two
lanes are seen to overlap: a step of one lies between two steps of the other. From then on a lane that goes on like this
is a run of its own. Its label is the id of the missing span, which is that of the agent's run if the span turns out to
be an agent's: nothing has to be evaluated again where it does not name another agent.

The lane of a step stands in its record in the place of the run, so that it moves with the step to other processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.scope import GRAPH
from trajectory_guard_collector.scoring.items import Item, StepItem

_LANE: Final = ">"
_LANE_CHARS: Final = 16
"""Length of the id of a span."""


def in_lane(step: StepRecord, missing: bytes) -> StepRecord:
    """The step in the lane of the missing span above it, unless its run is known or no span is missing.

    The invocation of a graph is a lane as well, not yet a run: a span that is missing may name a conversation.
    """
    run = step.run
    if not missing or (run is not None and run[:1] != GRAPH):
        return step
    lane = missing.hex() if run is None else run[len(GRAPH) :]
    return step._replace(run=f"{_LANE}{lane}") if len(lane) == _LANE_CHARS else step


def lane_of(step: StepRecord) -> str:
    """The id of the missing span above a step whose run depends on it; empty if there is none.

    >>> step = StepRecord("1", "t", "search")
    >>> lane_of(in_lane(step, bytes(8))), lane_of(step)
    ('0000000000000000', '')
    """
    run = step.run
    return run[len(_LANE) :] if run and run[:1] == _LANE and len(run) == len(_LANE) + _LANE_CHARS else ""


class Lanes:
    """The lanes of the steps of a trajectory that can still be put in order.

    Compacted steps are covered by the state: a run with the label of a lane remains one.
    """

    __slots__ = ("_apart", "_is_stale", "_newest", "_seen")

    def __init__(self) -> None:
        self._apart: frozenset[str] = frozenset()
        self._seen: set[str] = set()
        self._newest = ""
        self._is_stale = False

    def add(self, item: Item, *, newest: bool) -> None:
        """Take note of an added item. Most cannot make lanes overlap, and cost no look at the others."""
        lane = _lane_in(item)
        if not lane:
            return
        if not newest or _was_apart(item, lane) or (lane != self._newest and lane in self._seen):
            self._is_stale = self._is_stale or lane not in self._apart or not newest
        self._seen.add(lane)
        self._newest = lane

    def revise(self) -> None:
        """The identity of items has changed, or some are gone: look at all of them again."""
        self._is_stale = True

    def separate(self, items: Sequence[Item]) -> int:
        """Find the lanes that overlap. Returns the place of the first item that is of another run now, -1 if none is.

        A lane that has been a run of its own remains one, also once the agent beside it has ended.
        """
        if not self._is_stale:
            return -1
        seen: set[str] = set()
        newest, apart = "", set()
        for item in items:
            lane = _lane_in(item)
            if not lane:
                continue
            if (lane != newest and lane in seen) or _was_apart(item, lane):
                apart.add(lane)
            seen.add(lane)
            newest = lane
        changed = self._apart ^ apart
        self._apart, self._seen, self._newest, self._is_stale = frozenset(apart), seen, newest, False
        if not changed:
            return -1
        places = (at for at, one in enumerate(items) if isinstance(one, StepItem) and lane_of(one.step) in changed)
        return next(places, -1)

    def resolved(self, item: StepItem, state: TrajectoryState) -> StepRecord:
        """The step as it is evaluated now, in the run of its lane if that is one."""
        lane = lane_of(item.step)
        if not lane:
            item.evaluated_as = None
            return item.step
        known = lane in self._apart or any(_is_of(lane, label) for label in state.runs)
        step = item.step._replace(run=lane if known else None)
        item.evaluated_as = _identity(step)
        return step

    def is_as_evaluated(self, item: Item) -> bool:
        """Whether a refreshed step is still of the agent, the run and the batch of its evaluation."""
        if not isinstance(item, StepItem) or item.evaluated_as is None:
            return False
        step = item.step
        if lane := lane_of(step):
            step = step._replace(run=lane if lane in self._apart else None)
        return item.evaluated_as == _identity(step)


def _lane_in(item: Item) -> str:
    """The lane of a tool call. Model calls follow: which of them are steps depends on what they show."""
    return lane_of(item.step) if isinstance(item, StepItem) and item.step.model_scope is None else ""


def _was_apart(item: Item, lane: str) -> bool:
    return item.verdict is not None and _is_of(lane, item.verdict.run)


def _is_of(lane: str, label: str) -> bool:
    """Whether a run, by its label, is that of a lane, whatever the user turn behind it."""
    return label.partition("/")[0] == lane


def _identity(step: StepRecord) -> tuple[str | None, str | None, str | None]:
    return step.agent_id, step.run, step.batch
