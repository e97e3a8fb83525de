"""The detectors, and the registry that says which exist and in which order their findings are listed.

A detector of your own is one class and one line: see ``docs/detectors.md``.
"""

from __future__ import annotations

from trajectory_guard.core.detectors.base import (
    TYPE_I,
    TYPE_II,
    TYPE_III,
    TYPE_IV,
    TYPE_V,
    TYPE_VI,
    DetectionResult,
    Detector,
    DetectorSettings,
)
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.detectors.insanity import Insanity
from trajectory_guard.core.detectors.lasting_failures import OnlyFailures, RecurringFailure
from trajectory_guard.core.detectors.long_cycle import LongCycle
from trajectory_guard.core.detectors.model_calls import SameModelCall
from trajectory_guard.core.detectors.monologue import Monologue
from trajectory_guard.core.detectors.never_works import NeverWorks
from trajectory_guard.core.detectors.phantom import Phantom, SameEffect, Wandering
from trajectory_guard.core.detectors.pingpong import HandOffs, PingPong, Undone
from trajectory_guard.core.detectors.renewed import Renewed
from trajectory_guard.core.detectors.repeats import DeniedAgain, KnownCalls, Recurrence, Reread, Stutter
from trajectory_guard.core.detectors.reported import REPORTED, Integrity, Stagnation
from trajectory_guard.core.detectors.same_answer import SameAnswer
from trajectory_guard.core.detectors.standstill import Standstill
from trajectory_guard.core.detectors.thinking import Thinking
from trajectory_guard.core.detectors.unseen import Unseen

_BUILT_IN: tuple[type[Detector], ...] = (
    Stutter, Recurrence, DeniedAgain, Unseen, Insanity, SameAnswer, SameEffect, Phantom, Wandering, PingPong, HandOffs,
    Undone, KnownCalls, LongCycle, Renewed, ErrorStreak, Monologue, Thinking, SameModelCall, Reread, Standstill,
    RecurringFailure, OnlyFailures, NeverWorks,
)  # fmt: skip
LOOP_TYPES: tuple[str, ...] = (TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI)
"""Loop types of the built-in detectors. ``weights()`` knows registered ones too, and ``REPORTED`` has those of gates
around nodes and of the quality of answers."""
REGISTRY: dict[str, type[Detector]] = {kind.name: kind for kind in _BUILT_IN}


def register(kind: type[Detector]) -> type[Detector]:
    """Add a detector of your own; usable as a class decorator. Engines made afterwards use it.

    Raises:
        TypeError: it is no subclass of ``Detector``, or lacks ``name``, ``loop_type`` or ``update``.
        ValueError: the name is taken, or a detector of the same type declares another weight.
    """
    if not (isinstance(kind, type) and issubclass(kind, Detector)):
        raise TypeError(f"register: expected a subclass of Detector, got {kind!r}")
    for attribute in ("name", "loop_type"):
        if not isinstance(getattr(kind, attribute, None), str):
            raise TypeError(f"register: {kind.__name__}.{attribute} must be text")
    if kind.update is Detector.update:
        raise TypeError(f"register: {kind.__name__} does not define update(seen)")
    known = REGISTRY.get(kind.name)
    if known is not None and known is not kind:
        raise ValueError(f"register: {kind.name!r} is already the name of {known.__name__}")
    weight = weights().get(kind.loop_type)
    if weight is not None and weight != kind.weight:
        raise ValueError(f"register: {kind.loop_type} has weight {weight}, {kind.__name__} says {kind.weight}")
    REGISTRY[kind.name] = kind
    return kind


def unregister(name: str) -> None:
    """Remove a detector that ``register`` added; built-in ones are switched off by weight 0 instead."""
    if any(kind.name == name for kind in _BUILT_IN):
        raise ValueError(f"unregister: {name!r} is built in; set the weight of its type to 0")
    REGISTRY.pop(name, None)


def weights() -> dict[str, float]:
    """Default weight of every registered loop type."""
    return {kind.loop_type: kind.weight for kind in REGISTRY.values()}


def detector_of(finding: DetectionResult) -> type[Detector]:
    """The class that made a finding, by its type and rule; the first of its type where the rule is unknown."""
    first: type[Detector] | None = None
    for kind in (*REGISTRY.values(), *REPORTED):
        if kind.loop_type == finding.loop_type:
            if finding.rule in kind.rules:
                return kind
            first = first or kind
    return first or Detector


__all__ = [
    "LOOP_TYPES",
    "REGISTRY",
    "REPORTED",
    "TYPE_I",
    "TYPE_II",
    "TYPE_III",
    "TYPE_IV",
    "TYPE_V",
    "TYPE_VI",
    "DeniedAgain",
    "DetectionResult",
    "Detector",
    "DetectorSettings",
    "ErrorStreak",
    "HandOffs",
    "Insanity",
    "Integrity",
    "KnownCalls",
    "LongCycle",
    "Monologue",
    "NeverWorks",
    "OnlyFailures",
    "Phantom",
    "PingPong",
    "Recurrence",
    "RecurringFailure",
    "Renewed",
    "Reread",
    "SameAnswer",
    "SameEffect",
    "SameModelCall",
    "Stagnation",
    "Standstill",
    "Stutter",
    "Wandering",
    "detector_of",
    "register",
    "unregister",
    "weights",
]
