"""Two entries of one trajectory become one: what the entry that stays takes over from the other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajectory_guard.board.entries import Entry
from trajectory_guard.board.quality import carry_over, join_scores
from trajectory_guard.core.calls import CallRecord, call_key, reported
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.core.tracking.scope import run_label

if TYPE_CHECKING:
    from trajectory_guard.board.branches import Branches
    from trajectory_guard.board.cursors import Cursors


def take_place(target: Entry, part: Entry, cursors: Cursors) -> None:
    """Let the entry of a trace be that of its trajectory, of which no step is known yet."""
    part.trajectory_id = part.state.trajectory_id = target.trajectory_id
    join_scores(part, target)
    keep_said(part, target)
    part.state.keep_deliveries_of(target.state)
    cursors.absorb(part, target)


def absorb(target: Entry, part: Entry, branches: Branches, cursors: Cursors) -> Iterator[tuple[StepRecord, bool]]:
    """Add the entry of a trace to that of its trajectory. Yields ``unknown_steps``, to be evaluated there."""
    join_scores(target, part)
    keep_said(target, part)
    cursors.absorb(target, part)
    for label, newest in part.state.model_calls.items():
        target.state.note_model_calls(label, target.state.model_calls.get(label, newest))
    target.awaiting_state += (step._replace(trajectory_id=target.trajectory_id) for step in part.awaiting_state)
    if part.replay is None:  # too many steps to evaluate again: their runs go on as they are
        go_on_with(target, part)
    yield from unknown_steps(target, part, branches)


def begin_again(rebuilt: Entry, before: Entry) -> None:
    """Begin a trajectory again in place of an entry whose steps hid too much."""
    rebuilt.discarded = before.discarded + before.state.index - before.reported
    carry_over(before, rebuilt)
    keep_said(rebuilt, before)
    rebuilt.cursor = before.cursor


def keep_said(entry: Entry, other: Entry) -> None:
    """Keep what gates and people have said of a trajectory under another entry, which is used up.

    Of two flags that people have raised the stronger one stays, with the trace in which it was taken.
    """
    kept, raised = entry.by_hand, other.by_hand
    if raised is not None and (kept is None or raised.level.rank > kept.level.rank):
        entry.by_hand, entry.hand_taken = raised, other.hand_taken
    entry.hands = max(entry.hands, other.hands)
    entry.remote_hands = max(entry.remote_hands, other.remote_hands)
    entry.stating.update(other.stating)


def go_on_with(entry: Entry, newer: Entry) -> None:
    """Take over the runs of another entry as they are, and the calls that spans have reported there.

    Parameters:
        newer: its steps came after those of ``entry``; it is used up.
    """
    entry.state.go_on_with(newer.state)
    entry.flags.update(newer.flags)
    entry.recent, entry.replay = newer.recent, None
    entry.make_room(newer.room // 2)  # it doubles
    for key in newer.calls.symbols():
        if key not in entry.message_calls:  # a gate has read it already
            entry.calls.append(key)
    entry.call_runs.update(newer.call_runs)
    entry.numbered_alike = entry.numbered_alike or newer.numbered_alike


def unknown_steps(entry: Entry, part: Entry, branches: Branches) -> Iterator[tuple[StepRecord, bool]]:
    """The steps of a trace that its trajectory does not know yet, each noted in the run that it is now a step of.

    With each, whether the call had failed before, in a step that it takes the place of.

    A run that is resumed makes its calls in a new trace, which spans may not name: their labels have to be those that
    they get in the trajectory, or the gate that reads the calls takes them for calls of another run.

    Parameters:
        part: the steps of the trace, which were counted there; those that are left out do not count.
    """
    for step in part.replay or ():
        step = entry.placed(step._replace(trajectory_id=entry.trajectory_id))
        if step.model_scope is not None:
            yield step, False
            continue
        if step.evidence is not Evidence.FULL and branches.leaves(entry, step):
            entry.discarded += 1
            continue
        given, step = step, branches.in_batch(step)
        record = CallRecord.of(step, run_label(step, entry.state.turns))
        key = call_key(record.call_id) if record.call_id is not None else None
        is_read = entry.is_in_messages(step)
        earlier = reported(entry.recent, record, unread=step is not given and not is_read)
        recovered = earlier is not None and entry.take_failed(earlier, record, key)
        entry.discarded += earlier is not None or is_read
        if recovered or (earlier is None and not is_read):
            entry.note(record, key)
            yield step, recovered


def apart(entry: Entry, step: StepRecord, turns: dict[str, str]) -> StepRecord:
    """A step that is evaluated on top of saved state: in a run of its trace until a gate says whose it is.

    It is unknown whether the user turn of that state goes on in the trace, or another one has begun.

    Parameters:
        turns: those by which the step had its label before.
    """
    if step.run or step.turn is not None or step.asked is not None or step.trace_id is None:
        return step
    placed = step._replace(run=step.trace_id)
    entry.relabel_calls(run_label(step, turns), run_label(placed, entry.state.turns))
    return placed


def as_reported(entry: Entry, step: StepRecord) -> StepRecord:
    """A call that a gate has read, as a span has reported it, if that is still known in full.

    The spans of the calls behind it are compared with it, and some write arguments in a form of their own.
    """
    if step.stated or step.call_id is None or entry.numbered_alike:
        return step
    seen = next((one for one in reversed(entry.replay or ()) if one.call_id == step.call_id), step)
    if seen.evidence is not Evidence.FULL or (step.args and not seen.args):  # long arguments are not kept
        return step
    if seen.tool_name != step.tool_name or seen.state_snapshot_hash != step.state_snapshot_hash:
        return step  # models use ids again
    return seen._replace(trajectory_id=step.trajectory_id, run=step.run, turn=step.turn)
