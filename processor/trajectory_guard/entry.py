"""What the board keeps of one trajectory."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from trajectory_guard.core.calls import CallRecord
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.history import Ring
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import StepRecord

_CALL_IDS: Final = 32
_RECENT_STEPS: Final = 16


class Entry:
    """One trajectory under judgement: its state, its flag, and what is needed to know its calls again."""

    __slots__ = (
        "calls", "last", "last_used", "lock", "lossy", "nudge", "pending", "recent", "replay", "saved_index", "state",
        "told", "told_ids", "told_tools", "trajectory_id", "turn",
    )  # fmt: skip

    def __init__(self, state: TrajectoryState) -> None:
        self.trajectory_id = state.trajectory_id
        self.state = state
        self.lock = threading.Lock()
        self.pending: Verdict | None = None  # the strongest verdict since the flag was taken last
        self.nudge: Verdict | None = None  # the nudge due since then
        self.last: Verdict | None = None
        self.calls = Ring(_CALL_IDS)
        self.recent: deque[CallRecord] = deque(maxlen=_RECENT_STEPS)
        self.replay: list[StepRecord] | None = []  # steps since state was saved; None: too many to judge again
        self.lossy = True  # no step so far was fully visible
        self.told = Ring(_CALL_IDS)  # steps a gate has read from the graph's messages
        self.told_ids = Ring(_CALL_IDS)  # and their tool call ids, which some models use anew in every turn
        self.told_tools: set[str] = set()
        self.turn: str | None = None  # label of the user turn, as a gate sees it
        self.saved_index = 0  # steps covered by the state saved last
        self.last_used = 0.0
