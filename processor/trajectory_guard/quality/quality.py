"""The quality of a process: the rule, the judge, and the newest scores by source and name for its metrics."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from trajectory_guard.core.quality import QualityRule
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock

if TYPE_CHECKING:
    from trajectory_guard.quality.judge import Judge

SPANS: Final = "span"
API: Final = "api"
LOGPROBS: Final = "logprobs"
JUDGE: Final = "judge"
_MAX_SHOWN: Final = 64


class Quality:
    """Settings and process-wide sums. Thread-safe.

    Parameters:
        rule: when scores have dropped.
        evaluations: names of evaluations on spans that count; empty for all.
        counts: counts ``quality.<event>``.

    Attributes:
        judge: asked about answers, None without one.
    """

    def __init__(self, rule: QualityRule, *, evaluations: Collection[str] = (), counts: Counter[str]) -> None:
        self.rule, self.counts = rule, counts
        self.judge: Judge | None = None
        self._evaluations = frozenset(evaluations)
        self._shown: BoundedTable[tuple[str, str], deque[float]] = BoundedTable(_MAX_SHOWN)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    def counts_evaluation(self, name: str) -> bool:
        """Whether evaluations of this name on spans count."""
        return not self._evaluations or name in self._evaluations

    def note(self, source: str, name: str, score: float) -> None:
        """Add a score to the sums of its source and name."""
        self.counts["quality.scores"] += 1
        with self._lock:
            known = self._shown.touch((source, name))
            if known is None:
                known = self._shown[source, name] = deque(maxlen=self.rule.window)
            known.append(score)

    def shown(self) -> list[tuple[str, str, float]]:
        """Source, name, and mean of the newest scores of all trajectories (at most ``quality_window``)."""
        with self._lock:
            return [(*key, math.fsum(scores) / len(scores)) for key, scores in self._shown.items()]

    def close(self) -> None:
        """Stop the judge."""
        if self.judge is not None:
            self.judge.close()
