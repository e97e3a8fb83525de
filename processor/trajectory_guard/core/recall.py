"""Evidence that a run has on a call that the model requests, on which a gate may answer it without running it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.essentials import essential
from trajectory_guard.core.fingerprints import Symbol, args_hash, call_symbol
from trajectory_guard.core.run import Run
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking import scope

LEAST_TIMES: Final = 2


class KnownCall(NamedTuple):
    """The evidence of a run on a call with these arguments.

    Fields:
        times: model turns in a row in which the call returned its last result, since the last progress.
        open: something may have changed since: another call that had not been made before, progress in another run, a
            step that could only prove waiting, or a pause that looks deliberate.
    """

    times: int
    open: bool


NOT_MADE: Final = KnownCall(0, True)


def recall(
    state: TrajectoryState, label: str, tool: str, args: Any, *, now: float = 0.0, slow_gap_s: float = 120.0
) -> KnownCall:
    """The evidence of the run on a call; ``NOT_MADE`` where it has none.

    Parameters:
        label: label of the run; where the trajectory has no such run, the one that acted last is asked.
        now: seconds since the epoch, for the pause before the call; 0 if unknown.
        slow_gap_s: idle seconds from which on a pause is an uncertain boundary.
    """
    run = state.runs.get(label) or state.run
    found = _newest(run, tool, args) if run is not None else None
    if run is None or found is None:
        return NOT_MADE
    call, last = found
    history = run.history
    first = max(0, run.last_progress, run.boundary, run.dismissed)
    batches: set[int] = set()
    oldest = last
    for at in history.calls.occurrences(call):
        if at < first or history.results[at] != history.results[last]:
            break
        batches.add(history.batch_of(at))
        oldest = at
    gap_s = max(0.0, now - run.last_end) if now and run.last_end else 0.0
    is_open = (
        run.last_new_call > last
        or run.last_waiting >= oldest
        or gap_s >= slow_gap_s
        or scope.is_paced(run, gap_s)
        or _others_progressed(state, run, history.place_of(last, state.index))
    )
    return KnownCall(len(batches), is_open)


def _newest(run: Run, tool: str, args: Any) -> tuple[Symbol, int] | None:
    """The call, by whichever agent made it last, and that step; None if it was not made, or its result is unknown."""
    hashed = args_hash(essential(tool, args))
    calls = [call_symbol(StepRecord("", "", tool, hashed, agent_id=agent)) for agent in (None, *run.agents)]
    last, call = max((run.history.calls.last(call), call) for call in calls)
    return (call, last) if last >= 0 and run.history.results[last] else None


def _others_progressed(state: TrajectoryState, run: Run, place: int) -> bool:
    """Whether another run of the trajectory made progress after the step with this index in the trajectory."""
    return any(
        other is not run and other.last_progress >= 0 and other.history.place_of(other.last_progress, -1) > place
        for other in state.runs.values()
    )
