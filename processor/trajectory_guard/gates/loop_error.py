"""The exception of a gate that ends a run by raising."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_guard.errors import PortableError


class LoopDetectedError(PortableError, RuntimeError):
    """Raised by a gate with ``on_stop="raise"`` when a run must stop.

    ``payload`` is the stop payload: status, reason, types, rule, score, nudges_sent, steps_taken, similar actions,
    spent, recommendation, certificate.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        why = payload.get("reason") or ", ".join(payload.get("types") or ())  # redacted, there is no sentence
        super().__init__(f"stopped by trajectory_guard: {why}")
        self.payload = dict(payload)
