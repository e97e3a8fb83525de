"""Flags that a person raises and clears: the lever beside the engine's own findings."""

from __future__ import annotations

from trajectory_guard.board.entry_table import EntryTable
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.logs import log_flag
from trajectory_guard.process.locks import looks_again


class HandFlags(EntryTable):
    """The part of the board by which people raise and clear flags. Thread-safe."""

    @looks_again
    def raise_flag(self, trajectory_id: str, level: Level | str, reason: str, *, actor: str = "") -> None:
        """Nudge or stop an agent by hand: the next gate of the trajectory that is asked acts on it.

        A nudge is given once. A stop ends the run of the agent at the top, and those of agents below it that are asked
        before; it needs no nudge before it. Either stands until a gate has acted on it, or until ``clear_flag``.

        Parameters:
            trajectory_id: or a trace, thread or session id that it is known by.
            level: NUDGE or STOP.
            reason: for the agent (a nudge), the log and the payload of the stop.
            actor: who raises it, for the log and the spans.

        Raises:
            LookupError: there is no such trajectory.
            ValueError: as for ``HandFlag.of``.
        """
        flag = HandFlag.of(level, reason, actor, mode=self.config.mode)
        entry = self.find(trajectory_id)
        if entry is None:
            raise LookupError(f"no trajectory {trajectory_id!r} is known: it begins with its first tool call")
        with entry.lock:
            entry.hands += 1
            entry.by_hand = flag._replace(ordinal=entry.hands)
        self.counts["flags.raised"] += 1
        log_flag("RAISED", entry.trajectory_id, str(flag.level), flag.reason, flag.actor)

    @looks_again
    def clear_flag(self, trajectory_id: str, reason: str = "", *, actor: str = "") -> bool:
        """Clear every flag of a trajectory, raised by hand or not, because a person finds that all is well.

        The score of each run becomes 0 and has to build up again. Returns whether the trajectory is known.
        """
        entry = self.find(trajectory_id)
        if entry is None:
            return False
        with entry.lock:
            entry.by_hand = None
            entry.flags.clear()
            entry.state.relay = None
            for label in entry.state.runs:
                self.engine.reset_episode(entry.state, label)
        self.counts["flags.cleared"] += 1
        log_flag("CLEARED", entry.trajectory_id, "", reason, actor)
        return True

    def has_hand_flag(self, trajectory_id: str) -> bool:
        """Whether a flag that was raised by hand waits for a gate."""
        entry = self.find(trajectory_id)
        return entry is not None and entry.by_hand is not None

    @looks_again
    def adopt_hand_flag(self, trajectory_id: str, flag: HandFlag) -> None:
        """Take over a flag that was raised on a collector, once."""
        entry = self.entry(trajectory_id)
        with entry.lock:
            if flag.ordinal > entry.remote_hands:
                entry.remote_hands, entry.by_hand = flag.ordinal, flag

    def remote_hands(self, trajectory_id: str) -> int:
        """Ordinal of the newest flag that was taken over from a collector, 0 if none was."""
        entry = self.find(trajectory_id)
        return entry.remote_hands if entry is not None else 0

    @looks_again
    def put_back_hand_flag(self, trajectory_id: str, flag: HandFlag) -> None:
        """Put back a taken nudge that the gate could not deliver yet."""
        entry = self.find(trajectory_id)
        if entry is not None:
            with entry.lock:
                entry.by_hand = entry.by_hand or flag
