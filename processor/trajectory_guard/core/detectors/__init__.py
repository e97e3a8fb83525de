"""One detector a file; ``REGISTRY`` says which exist and in which order their findings are listed."""

from __future__ import annotations

from trajectory_guard.core.detectors.base import (
    LOOP_TYPES,
    TYPE_I,
    TYPE_II,
    TYPE_III,
    TYPE_IV,
    TYPE_V,
    TYPE_VI,
    DetectionResult,
    Detector,
    FrozenRun,
    Observation,
)
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.detectors.heartbeat import Heartbeat
from trajectory_guard.core.detectors.insanity import Insanity
from trajectory_guard.core.detectors.monologue import Monologue
from trajectory_guard.core.detectors.phantom import Phantom, SameEffect
from trajectory_guard.core.detectors.pingpong import PingPong
from trajectory_guard.core.detectors.stutter import Stutter

REGISTRY: dict[str, type[Detector]] = {
    kind.name: kind for kind in (Stutter, Heartbeat, Insanity, SameEffect, Phantom, PingPong, ErrorStreak, Monologue)
}

__all__ = [
    "LOOP_TYPES",
    "REGISTRY",
    "TYPE_I",
    "TYPE_II",
    "TYPE_III",
    "TYPE_IV",
    "TYPE_V",
    "TYPE_VI",
    "DetectionResult",
    "Detector",
    "ErrorStreak",
    "FrozenRun",
    "Heartbeat",
    "Insanity",
    "Monologue",
    "Observation",
    "Phantom",
    "PingPong",
    "SameEffect",
    "Stutter",
]
