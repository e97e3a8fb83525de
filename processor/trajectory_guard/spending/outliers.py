"""Model calls that cost far more tokens than the calls of the same agent usually do. Pure.

An exponentially weighted mean and variance, and the sizes of the newest calls. Five things differ from the textbook. A
call is compared before it is learned from. An outlier is left out, since one spike at weight 0.3 would otherwise be a
third of the new mean. The spread is never taken for less than a tenth of the mean, or an agent whose calls are all
alike would make an outlier of every other call. A size that has come twice of late is usual: an agent may have several,
one for tool calls and one for answers. A call that is only a few tokens above the mean is no outlier, whatever its
deviation.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import Final, NamedTuple

WEIGHT: Final = 0.3
"""Weight of the newest call in mean and variance."""
WARM_UP: Final = 10
"""Calls that are learned from before any is compared."""
NEW_NORMAL: Final = 10
"""Outliers in a row after which they are the new usual: learning starts over."""
THRESHOLD: Final = 3.0
"""Standard deviations above the mean from which a call is an outlier."""
LEAST_TOKENS: Final = 1_000
"""Tokens above the mean below which a call is no outlier."""
RECENT: Final = 50
"""Newest calls among which a size that recurs is looked for."""
RECURRING: Final = 2
"""Calls of this size among them, outliers included, from which on it is usual."""
_SAME_SIZE: Final = 0.8
_LEAST_SPREAD: Final = 0.1


class Outlier(NamedTuple):
    """A call that is out of the ordinary.

    Fields:
        value: tokens of the call.
        mean: tokens of the agent's usual call.
        deviations: standard deviations between them.
    """

    value: float
    mean: float
    deviations: float


class Baseline:
    """The usual consumption of one agent.

    >>> baseline = Baseline()
    >>> any(baseline.check(tokens) for tokens in [1000, 1100, 900, 1000, 1050, 950, 1000, 1000, 1100, 900])
    False
    >>> round(baseline.check(100_000).deviations) > 100
    True
    >>> baseline.check(1000) is None
    True
    """

    __slots__ = ("in_a_row", "mean", "recent", "seen", "variance")

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._restart()

    def _restart(self) -> None:
        self.seen = self.in_a_row = 0
        self.mean = self.variance = 0.0

    def check(self, value: float, threshold: float = THRESHOLD, least: float = LEAST_TOKENS) -> Outlier | None:
        """Compare a call with those before it, then learn from it unless it is an outlier.

        Parameters:
            value: tokens of the call.
            threshold: standard deviations above the mean, and least: tokens above it, from which it is an outlier.
        """
        found = self._compare(value, threshold, least)
        self.recent.append(value)
        if found is None:
            self.in_a_row = 0
            self._learn(value)
        else:
            self.in_a_row += 1
            if self.in_a_row >= NEW_NORMAL:
                self._restart()
                self._learn(value)
        return found

    def _compare(self, value: float, threshold: float, least: float) -> Outlier | None:
        if self.seen < WARM_UP or value - self.mean < least:
            return None
        if sum(one >= _SAME_SIZE * value for one in self.recent) >= RECURRING:
            return None
        spread = max(sqrt(self.variance), _LEAST_SPREAD * self.mean, 1.0)
        deviations = (value - self.mean) / spread
        return Outlier(value, self.mean, deviations) if deviations > threshold else None

    def _learn(self, value: float) -> None:
        """In the warm-up all calls weigh the same, so that the first one does not stay for a third of the mean."""
        self.seen += 1
        weight = max(WEIGHT, 1.0 / self.seen)
        step = value - self.mean
        self.mean += weight * step
        self.variance = (1.0 - weight) * (self.variance + weight * step * step)
