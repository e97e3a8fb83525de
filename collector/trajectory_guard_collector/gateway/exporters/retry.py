"""Pauses between attempts at a backend, as its ``retry_on_failure`` section has them."""

from __future__ import annotations

import random
from collections.abc import Callable

from trajectory_guard import backoff
from trajectory_guard_collector.config.models import Retry


class Backoff(backoff.Backoff):
    """Pauses of one batch at one backend.

    Parameters:
        retry: the configuration.
        uniform: random number between two bounds; for tests.
    """

    def __init__(self, retry: Retry, *, uniform: Callable[[float, float], float] = random.uniform) -> None:
        super().__init__(
            initial_s=retry.initial_interval_s,
            multiplier=retry.multiplier,
            max_s=retry.max_interval_s,
            jitter=retry.randomization_factor,
            uniform=uniform,
        )
