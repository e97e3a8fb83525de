"""The contract of a detector: its input, its findings, and its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.build import mypyc_attr
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import SUCCESS, Certainty, weakest
from trajectory_guard.core.tools import only_speaks

TYPE_I: Final = "TYPE_I_STUTTER"
TYPE_II: Final = "TYPE_II_INSANITY"
TYPE_III: Final = "TYPE_III_PHANTOM"
TYPE_IV: Final = "TYPE_IV_PINGPONG"
TYPE_V: Final = "TYPE_V_ERROR_STREAK"
TYPE_VI: Final = "TYPE_VI_MONOLOGUE"


class DetectionResult(NamedTuple):
    """The finding of one detector at one step.

    Fields:
        loop_type: one of the registered loop types.
        confidence: in [0, 1].
        rule: name of the rule behind the finding, unique among all detectors.
        certainty: how much the finding proves; the policy escalates by it.
        count: how often the loop has repeated, this step included.
        first_step: index of the first step of the loop.
        steps: indices of its steps, oldest first, as far as they are remembered.
        names: tools or agents of the loop, in order, where there are several.
        attempts: short texts of the calls tried, where they differ in words; empty with ``redact``.
        period: steps of one lap, for cycles.
        calls: how many calls the texts name: of this very call, or, where the calls differ, of all of them.
        alike: how many of these returned the same; less than ``calls`` where the results differ.
        worked: calls that had not been made before lie between this repeat and the one before it.
        at_least: the loop may have more steps than are counted: they are forgotten, or nothing showed yet that they
            were the first.
        only_nudge: nothing shows what was asked for: the finding leads to nudges, and never to a stop.
    """

    loop_type: str
    confidence: float
    rule: str = ""
    certainty: Certainty = Certainty.CERTAIN
    count: int = 0  # type: ignore[assignment]  # as in the contract; tuple.count is not used on findings
    first_step: int = 0
    steps: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    period: int = 0
    calls: int = 0
    alike: int = 0
    worked: bool = False
    at_least: bool = False
    only_nudge: bool = False

    @property
    def detected(self) -> bool:
        """Whether the confidence is above 0."""
        return self.confidence > 0


REPEATED: Final = 1
"""The call returned a result that it returned before."""
REFUSED: Final = 2
"""The call was refused before, and is once more."""
UNPRODUCTIVE: Final = 4
"""The step brought nothing new."""
SERIES: Final = 8
"""Several steps in a row got one answer, or showed nothing new."""
FAILED: Final = 16
"""The step shows an error."""
PROGRESS: Final = 32
"""The step brought something new."""
SPOKEN: Final = 64
"""The model wrote a text with the call, wrote down a thought, or declared its work done."""
COPIED: Final = 128
"""One model message holds the call so often that this copy counts; such a step shows no other sign."""
UNSEEN: Final = 256
"""Several steps in a row only repeated calls, and nothing is known of what they returned."""
WORKED: Final = 512
"""The call succeeded, and is more than the step before it once again."""
LAPS: Final = 1024
"""A long walk came round for the third time."""
FETCHED: Final = 2048
"""A call without a command, path or question was made again and returned something new: the next entry of a queue."""
ALWAYS: Final = UNPRODUCTIVE | PROGRESS
_LEAST_SERIES: Final = 3


def signs_of(seen: Observation) -> int:
    """The signs that a step shows, of those above: a detector is asked where one of them is among its ``asked_at``."""
    if seen.is_surplus:
        return COPIED
    signs = PROGRESS if seen.progress else UNPRODUCTIVE
    if seen.repeats > 1 or seen.recurrences > 1:
        signs |= REPEATED
    if seen.denied_times > 1:
        signs |= REFUSED
    in_a_row = _LEAST_SERIES
    if seen.same_results.distinct >= in_a_row or seen.alike >= in_a_row or seen.old_states_in_a_row >= in_a_row:
        signs |= SERIES
    if seen.lap:
        signs |= LAPS
    if seen.result_changed and fetches(seen):  # few steps are of a call that was made before
        signs |= FETCHED
    if seen.unseen >= in_a_row:
        signs |= UNSEEN
    if seen.signature is not None:
        signs |= FAILED
    elif seen.repeats < 2 or seen.repeated_at[-2:-1] != (seen.index - 1,):
        signs |= WORKED
    if seen.step.thought or only_speaks(seen.name):
        signs |= SPOKEN
    return signs


def fetches(seen: Observation) -> bool:
    """Whether a step shows ``FETCHED``. The arguments of such a call name a queue or a page at most."""
    if not (seen.progress and seen.result_changed and seen.outcome == SUCCESS):
        return False
    values = seen.values
    return not values or (len(values) == 1 and _SOURCE.fullmatch(values[0]) is not None)


_SOURCE: Final = re.compile(r"[\w-]{1,40}")


class DetectorSettings(NamedTuple):
    """Settings shared by all detectors.

    Fields:
        redact: keep digests instead of texts.
        settle: decides whether two texts mean the same where the comparator cannot; None without a model. Never blocks.
    """

    redact: bool = False
    settle: Any = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Detector:
    """Finds one kind of loop, step by step.

    A subclass owns everything about its kind: type, weight, words and advice. One instance belongs to one run, is
    deterministic and bounded, and replaces what it remembers instead of changing it in place, so that a step that fails
    can be taken back. A detector without memory sets ``shared`` and serves all runs with one instance.

    Class attributes:
        name: key in the registry and in saved state.
        rules: names of its rules, unique among all detectors.
        loop_type: the type its findings have; weight: default weight of that type.
        asked_at: signs (``signs_of``) of which a step has to show one. Without them the detector finds nothing and
            remembers nothing, so it is not asked: most detectors have nothing to do with most steps.
        of_model_calls: it looks at repeated model calls, which no other detector is shown, and at nothing else.
        may_stop: a finding of one of its ``rules`` may lead to a stop; otherwise to nudges only, ever more rarely, but
            for its ``stopping_rules``.
        insists: its nudges count among those in vain, after which a run is stopped.
        advice: suggestions for the agent in a nudge, one sentence each.
        recommendation: advice for the developer.
        thresholds: the numbers that its rules compare with, by name, which its certificates state.
    """

    name: ClassVar[str]
    rules: ClassVar[tuple[str, ...]] = ()
    loop_type: ClassVar[str]
    weight: ClassVar[float] = 1.0
    shared: ClassVar[bool] = False
    asked_at: ClassVar[int] = ALWAYS
    of_model_calls: ClassVar[bool] = False
    may_stop: ClassVar[bool] = True
    stopping_rules: ClassVar[tuple[str, ...]] = ()
    insists: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Do something else: another tool, other arguments, or another way to the goal.",
        "If you have all you can get, answer with it, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = "Review the agent's prompt and tool setup."
    thresholds: ClassVar[Mapping[str, int]] = {}
    __slots__ = ()

    @classmethod
    def from_settings(cls, settings: DetectorSettings) -> Detector:
        """A detector for one run."""
        return cls()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Process one step; returns a finding or None."""
        raise TypeError(f"{type(self).__name__} must define update(seen)")

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence that names the repeated call, the count and the result.

        Parameters:
            call: the call of this step as text, without arguments where texts are redacted.
            answer: the result, as a noun phrase.
        """
        return f"{call} is part of a loop that has repeated {found.count} times; the last result was {answer}."

    def found(
        self, seen: Observation, confidence: float, rule: str, certainty: Certainty = Certainty.CERTAIN, *,
        varied: bool = False, **facts: Any,
    ) -> DetectionResult | None:  # fmt: skip
        """A finding of this detector, weakened to what the step can prove; None at confidence 0.

        Parameters:
            varied: the rule is about changing calls, not about one call repeated.
            facts: further fields of the result.
        """
        if confidence <= 0.0:
            return None
        proof = seen.variation if varied else seen.certainty
        tally = {"calls": seen.made, "alike": seen.made_alike, "worked": seen.new_calls_since_repeat, **facts}
        if seen.may_be_meant:
            tally["only_nudge"] = True
        return DetectionResult(self.loop_type, confidence, rule, weakest(certainty, proof), **tally)

    def dump(self) -> Any:
        """Memory as JSON-able data; None if it equals that of a new detector."""
        return None

    def load(self, data: Any) -> None:
        """Take over what ``dump`` returned."""
