"""Type VI by tool: thoughts that are written down one after the other, and nothing is done in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import SPOKEN, TYPE_VI, DetectionResult, Detector
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import ERROR, Certainty
from trajectory_guard.core.tools import only_thinks

_THOUGHTS: Final = 30
_NEWEST: Final = 10


class Thinking(Detector):
    """Fires when thirty thoughts in a row are written down with a tool for thoughts, whatever they say.

    Such a tool does nothing but acknowledge. Parallel thoughts count as one, and any other call ends the series. So
    does a result that says more than the thought did, as that of a tool that reasons with a model of its own.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("only_thoughts", (f"think(thought={'very ' * at}hard) -> noted" for at in range(30)))
    step 29: 30 times, 1.00, acknowledged, NUDGE

    Reference: healthy recorded runs held six thoughts in a row at most (``docs/detection.md``).
    """

    name: ClassVar[str] = "thinking"
    rules: ClassVar[tuple[str, ...]] = ("only_thoughts",)
    loop_type: ClassVar[str] = TYPE_VI
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = SPOKEN
    advice: ClassVar[tuple[str, ...]] = (
        "A further thought changes nothing: do the first thing that can be done now.",
        "If nothing is left to do, or if something is missing, say so to the user in plain text.",
    )
    recommendation: ClassVar[str] = "Tell the agent when to act: it writes down thoughts and calls no other tool."
    thresholds: ClassVar[Mapping[str, int]] = {"thoughts": _THOUGHTS}
    __slots__ = ("count", "first", "newest")

    def __init__(self) -> None:
        self.count, self.first = 0, -1
        self.newest: tuple[int, ...] = ()  # indices of the newest thoughts of the series

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count thoughts, of which each follows the one before it at once."""
        if not only_thinks(seen.name):
            return None  # the next thought does not follow the one before it
        if seen.outcome == ERROR or (seen.progress and not seen.echo and self.count):
            self.count, self.newest = 0, ()
            return None
        if self.newest[-1:] != (seen.index - 1,):
            self.count, self.first, self.newest = 0, seen.index, ()
        self.count += not seen.same_batch or not self.count
        self.newest = (*self.newest[1 - _NEWEST :], seen.index)
        if self.count < _THOUGHTS:
            return None
        return self.found(
            seen, 1.0, "only_thoughts", Certainty.ACKNOWLEDGED, count=self.count, first_step=self.first,
            steps=self.newest, varied=True, calls=self.count,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of thoughts."""
        return f"{found.count} thoughts in a row were written down, and nothing was done in between."

    def dump(self) -> Any:
        """The current series."""
        return [self.count, self.first, self.newest] if self.newest else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.count, self.first, self.newest = data[0], data[1], tuple(data[2])
