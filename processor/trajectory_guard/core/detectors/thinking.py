"""Type VI by tool: thoughts or plans that are written down one after the other, and nothing is done in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trajectory_guard.core.content.result_text import is_brief
from trajectory_guard.core.detectors.base import SERIES, SPOKEN, TYPE_VI, DetectionResult, Detector, signs_of
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import ERROR, Certainty
from trajectory_guard.core.tools import only_thinks

_THOUGHTS: Final = 30
_PLANS: Final = 8
_NEWEST: Final = 10
_KEPT_STATES: Final = 16
_UNSEEN_PLANS: Final = 3
"""A series shows at its third call only."""
_LEAST_STATES: Final = 2
_MAX_STATES: Final = 200
_MAX_STATE_CHARS: Final = 32
_STATE_KEYS: Final = ("status", "state", "completed", "done")
"""Keys of the steps of a plan that say how far each is, in the tools of coding agents."""


class Thinking(Detector):
    """Fires when thirty thoughts in a row are written down with a tool for thoughts, whatever they say.

    Such a tool does nothing but acknowledge. Parallel thoughts count as one, and any other call ends the series. So
    does a result that says more than the thought did, as that of a tool that reasons with a model of its own.

    Fires as well when a list of steps with their states is handed over for the eighth time in a row, in whatever words,
    to a tool that only acknowledges it, and no step is further than before.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("only_thoughts", (f"think(thought={'very ' * at}hard) -> noted" for at in range(30)))
    step 29: 30 times, 1.00, acknowledged, NUDGE

    Reference: healthy recorded runs held six thoughts in a row at most (``docs/detection.md``).
    """

    name: ClassVar[str] = "thinking"
    rules: ClassVar[tuple[str, ...]] = ("only_thoughts", "only_plans")
    loop_type: ClassVar[str] = TYPE_VI
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = SPOKEN | SERIES
    advice: ClassVar[tuple[str, ...]] = (
        "A further thought changes nothing: do the first thing that can be done now.",
        "If nothing is left to do, or if something is missing, say so to the user in plain text.",
    )
    recommendation: ClassVar[str] = "Tell the agent when to act: it writes down thoughts and calls no other tool."
    thresholds: ClassVar[Mapping[str, int]] = {"thoughts": _THOUGHTS, "plans": _PLANS}
    __slots__ = ("count", "first", "newest", "plan", "plans", "states")

    def __init__(self) -> None:
        self.count, self.first = 0, -1
        self.newest: tuple[int, ...] = ()  # indices of the newest thoughts of the series
        self.plan, self.plans = -1, 0  # index of the newest plan; how many in a row brought no step further
        self.states: tuple[int, ...] = ()  # checksums of how far the steps of a plan were

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count thoughts, of which each follows the one before it at once."""
        args = seen.step.args
        if args.__class__ is dict:
            for steps in args.values():
                if steps.__class__ is list:
                    return self._plans(seen, steps)
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

    def _plans(self, seen: Observation, steps: list[Any]) -> DetectionResult | None:
        run, states = seen.same_results, states_of_plan(steps) if signs_of(seen) & SERIES else 0
        if not states or seen.outcome == ERROR or len(run.tools) > 1 or not is_brief(seen.step.result or ""):
            return None
        in_a_row, new = run.first <= self.plan, states not in self.states
        if new:
            self.states = (*self.states[1 - _KEPT_STATES :], states)
        self.plans = _UNSEEN_PLANS if new or not in_a_row else self.plans + (not seen.same_batch)
        self.plan = seen.index
        if self.plans < _PLANS or seen.same_batch:
            return None
        return self.found(
            seen, 1.0, "only_plans", Certainty.ACKNOWLEDGED, count=self.plans, first_step=seen.index + 1 - self.plans,
            varied=True, calls=self.plans, at_least=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of thoughts, or of plans."""
        if found.rule == "only_plans":
            return f"The plan was written down {found.count} times in a row, and no step of it was done."
        return f"{found.count} thoughts in a row were written down, and nothing was done in between."

    def dump(self) -> Any:
        """The current series."""
        if not (self.newest or self.states):
            return None
        return [self.count, self.first, self.newest, self.plan, self.plans, self.states]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.count, self.first, self.newest = data[0], data[1], tuple(data[2])
        self.plan, self.plans, self.states = data[3], data[4], tuple(data[5])


def states_of_plan(steps: list[Any]) -> int:
    """A checksum of how far the steps of a plan are, without the most frequent state; 0 if a list is no plan.

    A plan is a list of objects that all have a state. A step that is added, with the state that most have, changes
    nothing.

    >>> todo, done = {"content": "a", "status": "pending"}, {"content": "b", "status": "completed"}
    >>> states_of_plan([todo, todo]) == states_of_plan([todo, todo, todo]) != 0
    True
    >>> states_of_plan([todo, todo, done]) in (states_of_plan([todo, todo]), 0), states_of_plan([{"name": "a"}] * 2)
    (False, 0)
    """
    if not _LEAST_STATES <= len(steps) <= _MAX_STATES or not all(isinstance(one, dict) for one in steps):
        return 0
    for key in _STATE_KEYS:
        if all(key in one for one in steps):
            states = Counter(str(one[key])[:_MAX_STATE_CHARS] for one in steps).most_common()
            return checksum(repr(sorted(states[1:])))
    return 0
