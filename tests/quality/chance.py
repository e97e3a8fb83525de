"""How often scores that do not change look like a drop: ``python -m tests.quality.chance`` prints a table."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from trajectory_guard.core.quality import Change, QualityRule, QualitySeries

RUNS: Final = 4_000
LENGTH: Final = 100
KINDS: Final[dict[str, Callable[[random.Random], float]]] = {
    "0.85, deviation 0.10": lambda made: made.gauss(0.85, 0.10),
    "0.65, deviation 0.10": lambda made: made.gauss(0.65, 0.10),
    "0.65, deviation 0.20": lambda made: made.gauss(0.65, 0.20),
    "0.50, deviation 0.10": lambda made: made.gauss(0.50, 0.10),
    "yes (1) in 95 %, else no (0)": lambda made: float(made.random() < 0.95),
    "yes in 80 %": lambda made: float(made.random() < 0.80),
    "yes in 60 %": lambda made: float(made.random() < 0.60),
}


def share(kind: str, rule: QualityRule, runs: int = RUNS, length: int = LENGTH) -> float:
    """Share of runs with at least one drop."""
    made = random.Random(7)
    found = 0
    for _ in range(runs):
        series = QualitySeries()
        scores = (min(1.0, max(0.0, KINDS[kind](made))) for _ in range(length))
        found += any(series.add(score, rule) is Change.DROPPED for score in scores)
    return found / runs


def main() -> None:
    """Print the table."""
    rules = (QualityRule(deviations=0.0), QualityRule(), QualityRule(recent=10), QualityRule(recent=20))
    print(
        "| scores | `quality_deviations = 0` | default | `quality_recent = 10` | `= 20` |\n| --- | --- | --- | --- | --- |"
    )
    for kind in KINDS:
        shares = " | ".join(f"{100 * share(kind, rule):.1f} %" for rule in rules)
        print(f"| {kind} | {shares} |")


if __name__ == "__main__":
    main()
