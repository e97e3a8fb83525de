"""Type III: different calls, and the world does not move."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_II, TYPE_III, DetectionResult, Observation
from trajectory_guard.core.history import History
from trajectory_guard.core.tools import is_communication

_ACKNOWLEDGEMENT: Final = re.compile(
    r"\b(?:ok|okay|done|success(?:ful|fully)?|saved|written|wrote|created|updated|deleted|removed|added|sent|moved|copied"
    r"|applied|edited|completed?|passed|accepted|submitted|inserted|uploaded|stored|true|yes|finished|started|queued)\b",
    re.IGNORECASE,
)
_MIN_STATE_CHARS: Final = 12
_MAX_ACKNOWLEDGEMENT_CHARS: Final = 120


def describes_state(seen: Observation) -> bool:
    """Whether a successful answer says how things stand, rather than just acknowledging ("ok", "file written")."""
    if seen.step.outcome_type != "success":
        return False
    text = (seen.step.result or "").strip()
    if len(text) < _MIN_STATE_CHARS:
        return False
    return len(text) > _MAX_ACKNOWLEDGEMENT_CHARS or _ACKNOWLEDGEMENT.search(text) is None


class Phantom:
    """Fires when three or more different calls in a row come back with one and the same answer.

    The state the answers describe is frozen although the actions differ. The same is often innocent (a batch of
    writes that all say "ok", a list of membership checks), so confidence grows with the run and is full only at the
    fifth call (the third, where different tools describe one state); and the type never stops a run by itself. Bare
    acknowledgements and blank answers do not describe a state: they need ``ack_factor`` times as many calls, answers
    that nothing was found twice as many. Messages and notes (``send_message``, ``think``) expect no answer and never
    count.

    Parameters:
        full_at: length of the run, in steps, that makes it certain.
        ack_factor: how much longer a run of mere acknowledgements must be.

    Reference: phantom progress of the original TrajectoryGuard plan; hardening in ``docs/detection.md``.
    """

    name: ClassVar[str] = "phantom"
    loop_type: ClassVar[str] = TYPE_III
    __slots__ = ("ack_factor", "full_at")

    def __init__(self, full_at: int = 5, ack_factor: int = 3) -> None:
        self.full_at = full_at
        self.ack_factor = ack_factor

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        run = seen.frozen
        if run.distinct < 3 or is_communication(seen.step.tool_name):
            return None
        full_at = self._full_at(seen)
        confidence = min(1.0, run.distinct / full_at)
        if confidence < 0.6:
            return None
        details = {"rule": "same_answer", "count": run.distinct, "first_step": run.first, "tools": list(run.tools)}
        return DetectionResult(TYPE_III, confidence, details, soft=True)

    def _full_at(self, seen: Observation) -> int:
        """Length of the run that is certain, by what the answer says."""
        if not (seen.step.result or "").strip():
            return self.full_at * self.ack_factor
        if describes_state(seen):
            return 3 if len(seen.frozen.tools) > 1 else self.full_at
        if seen.step.outcome_type == "success":
            return self.full_at * self.ack_factor
        return self.full_at * 2 if seen.step.outcome_type == "empty" else self.full_at

    def dump(self) -> Any:
        """Stateless."""
        return None

    def load(self, data: Any) -> None:
        """Stateless."""


class SameEffect:
    """Type II by effect: calls of different tools that all lead to one and the same described state.

    Fires at the third different call when at least two tools took part and the answer describes a state (a page, a
    listing, a board), not an acknowledgement: whatever the calls are meant to do, they do the same, which is
    nothing. A single tool whose answers are equal is left to ``Phantom``: checks over a list look like that.
    A finding may nudge, never stop.
    """

    name: ClassVar[str] = "same_effect"
    loop_type: ClassVar[str] = TYPE_II
    __slots__ = ()

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        run = seen.frozen
        if run.distinct < 3 or len(run.tools) < 2 or not describes_state(seen):
            return None
        details = {"rule": "same_effect", "count": run.distinct, "first_step": run.first, "tools": list(run.tools)}
        return DetectionResult(TYPE_II, 1.0, details, soft=True)

    def dump(self) -> Any:
        """Stateless."""
        return None

    def load(self, data: Any) -> None:
        """Stateless."""
