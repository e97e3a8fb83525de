"""Findings that are reported from outside the engine, measured there already: no detector runs for them."""

from __future__ import annotations

from typing import ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_VI, DetectionResult, Detector

NOTHING_NEW_SAID: Final = "nothing_new_said"
"""No output of a node, in every window of the newest ones, said enough that is new."""
STATE_INVARIANT: Final = "state_invariant"
"""An invariant of the state does not hold."""
TYPE_INTEGRITY: Final = "TYPE_VII_INTEGRITY"
QUALITY_DROP: Final = "quality_drop"
"""The mean of the newest scores of a trajectory is well below that of the earlier ones."""
TYPE_QUALITY: Final = "TYPE_VIII_QUALITY"
QUALITY_RUN: Final = "quality:"
"""Beginning of the label of the run that such a finding belongs to."""


class Stagnation(Detector):
    """Outputs of one graph node, one after the other, bring nothing that the outputs before them did not say."""

    name: ClassVar[str] = "stagnation"
    rules: ClassVar[tuple[str, ...]] = (NOTHING_NEW_SAID,)
    loop_type: ClassVar[str] = TYPE_VI
    weight: ClassVar[float] = 2.0
    advice: ClassVar[tuple[str, ...]] = (
        "Saying it again does not move the task.",
        "Take another way, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = "Route the run elsewhere (the gate's edge), or check what the node is waiting for."
    __slots__ = ()

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the node and the number of outputs."""
        return f"The last {found.count} outputs of {call} say nearly the same."


class Integrity(Detector):
    """The output of a graph node violates an invariant that the application has declared."""

    name: ClassVar[str] = "integrity"
    rules: ClassVar[tuple[str, ...]] = (STATE_INVARIANT,)
    loop_type: ClassVar[str] = TYPE_INTEGRITY
    weight: ClassVar[float] = 2.0
    advice: ClassVar[tuple[str, ...]] = ("Repair the state before going on, or start again from the last good one.",)
    recommendation: ClassVar[str] = "Check the node that returned this state, and what led to it."
    __slots__ = ()

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the node and the invariants; the state itself is never quoted."""
        return f"The output of {call} violates: {', '.join(found.names)}."


class QualityDrop(Detector):
    """Scores of answers, by an evaluator, a judge or log-probabilities, are lower than they were.

    No loop: the finding asks for another answer, and never ends a run. Its ``names`` are the name of the scores, their
    mean before, and their mean now.
    """

    name: ClassVar[str] = "quality"
    rules: ClassVar[tuple[str, ...]] = (QUALITY_DROP,)
    loop_type: ClassVar[str] = TYPE_QUALITY
    weight: ClassVar[float] = 2.0
    may_stop: ClassVar[bool] = False
    insists: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "Read the request again, and check the next answer against each of its points before you give it.",
        "Say what you do not know instead of guessing; look it up where a tool can answer.",
    )
    recommendation: ClassVar[str] = "Look at the answers since then: context too long, missing sources, or the model."
    __slots__ = ()

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the name of the scores, and both means; no answer is quoted."""
        name, before, now = found.names
        return f"The scores '{name}' were {before} on average, and the last {found.count} are {now}."


REPORTED: Final[tuple[type[Detector], ...]] = (Stagnation, Integrity, QualityDrop)
