"""Two entries of one trajectory become one: what the entry that stays takes over from the other one."""

from __future__ import annotations

from trajectory_guard.entries import Entry


def keep_said(entry: Entry, before: Entry) -> None:
    """Keep what gates and people have said of a trajectory, from the entry whose place another one takes."""
    entry.by_hand = entry.by_hand or before.by_hand
    entry.hand_taken = entry.hand_taken or before.hand_taken
    entry.hands = max(entry.hands, before.hands)
    entry.remote_hands = max(entry.remote_hands, before.remote_hands)
    entry.stating.update(before.stating)


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
