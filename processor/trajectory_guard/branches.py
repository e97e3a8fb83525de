"""Branches of a thread: checkpoints that are resumed more than once, as in time travel and "regenerate"."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from trajectory_guard.core.calls import call_key
from trajectory_guard.entries import EntryTable
from trajectory_guard.entry import MAX_READ, ReadCall
from trajectory_guard.quality.board import clear_flags


class BranchTable(EntryTable):
    """The part of the board that takes a trajectory back to a checkpoint. Thread-safe."""

    def last_read(self, trajectory_id: str) -> ReadCall | None:
        """The newest call that a gate has read from the messages of the agent at the top; None before the first."""
        entry = self._find(trajectory_id)
        return entry.read_calls[-1] if entry is not None and entry.read_calls else None

    def go_back(self, trajectory_id: str, data: bytes | None, kept: Collection[str]) -> None:
        """Take a trajectory back to a checkpoint.

        Spans may have reported calls of the new branch already: the gate reads them from its messages.

        Parameters:
            data: the state saved in that checkpoint; None if nothing had been evaluated there.
            kept: step ids of the calls that this state covers.

        Raises:
            StateFormatError: the bytes cannot be read; nothing changes.
        """
        entry = self._find(trajectory_id)
        if entry is None:
            return
        saved = self.engine.load_state(data) if data is not None else self.engine.new_state(entry.trajectory_id)
        with entry.lock:
            if data is None:
                saved.noise = entry.state.noise  # learned about the tools, whatever the branch
            entry.state, entry.saved_index, entry.replay = saved, saved.index, []
            entry.reported = min(entry.reported, saved.index)
            left = [one for one in entry.read_calls if one.step_id not in kept]
            entry.read_calls = deque((one for one in entry.read_calls if one not in left), maxlen=MAX_READ)
            for one in left:
                entry.message_steps.forget(call_key(one.step_id))
                if one.call_id is not None:
                    entry.message_calls.forget(call_key(one.call_id))
            entry.calls.clear()
            entry.call_runs.clear()
            entry.recent.clear()
            entry.gates.clear()
            entry.awaiting_state.clear()
            clear_flags(entry)
