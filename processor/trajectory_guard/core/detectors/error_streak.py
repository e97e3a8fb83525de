"""Type V: one class of error through changing calls."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_V, DetectionResult, Observation
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.history import History

_TRANSIENT: Final = re.compile(
    r"time[d]?[ -]?out|temporar|unavailable|too many requests|rate.?limit|overloaded"
    r"|connection (?:reset|refused|aborted)|\b(?:429|502|503|504)\b|again later|econnreset|network|throttl",
    re.IGNORECASE,
)

_STOP_AMONG_WORK: Final = 6


class ErrorStreak:
    """Fires when at least ``count`` of the last ``window`` steps failed with the same masked error.

    With successes in between a finding may nudge, and stop only from the sixth failure within the window on.
    Names, numbers and paths in the message are ignored, the arguments too: an agent that drifts from one variant to
    the next against one wall is caught. Different errors are not (they are information), and transient
    infrastructure errors (timeouts, rate limits) get ``transient_patience`` times as many tries.

    Parameters:
        count: failures of one class, in steps, at which the streak is a hint; it is certain one failure later.
        window: steps looked back.
        transient_patience: factor on ``count`` for transient errors.

    Reference: masked error class, 3 of 10, had no false alarm on 4,172 recorded steps (``docs/detection.md``).
    """

    name: ClassVar[str] = "error_streak"
    loop_type: ClassVar[str] = TYPE_V
    __slots__ = ("count", "recent", "transient_patience", "window")

    def __init__(self, count: int = 3, window: int = 10, transient_patience: int = 2) -> None:
        self.count = count
        self.window = window
        self.transient_patience = transient_patience
        self.recent: list[list[Any]] = []  # [index, digest of the error class] of recent failures, newest last

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        if seen.signature is None:
            return None
        key = digest64(text_bytes(f"{seen.tool}\0{seen.signature}")).hex()
        oldest = seen.index - self.window
        self.recent = [entry for entry in self.recent if entry[0] > oldest]
        self.recent.append([seen.index, key])
        steps = [index for index, other in self.recent if other == key]
        return self._judge(seen, steps)

    def _judge(self, seen: Observation, steps: list[int]) -> DetectionResult | None:
        transient = _TRANSIENT.search(seen.step.result or "") is not None
        needed = self.count * self.transient_patience if transient else self.count
        if len(steps) < needed:
            return None
        confidence = 1.0 if len(steps) > needed else 0.75
        details = {
            "rule": "transient_error" if transient else "same_error",
            "count": len(steps), "first_step": steps[0], "steps": steps,
        }  # fmt: skip
        return DetectionResult(TYPE_V, confidence, details, soft=self._among_work(steps))

    def _among_work(self, steps: list[int]) -> bool:
        """Successes in between: edit and test, look and try. Reason to nudge, but to stop only if it does not end."""
        consecutive = steps[-1] - steps[0] == len(steps) - 1
        return not consecutive and len(steps) < _STOP_AMONG_WORK

    def dump(self) -> Any:
        """Recent failures."""
        return self.recent or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.recent = [list(entry) for entry in data]
