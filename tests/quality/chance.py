"""How often scores that do not change look like a drop, and drops are found: ``python -m tests.quality.chance``."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
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


Draw = Callable[[random.Random], float]
DROPS: Final[dict[str, tuple[Draw, Draw]]] = {
    "0.8, then 0.3; deviation 0.1": (lambda made: made.gauss(0.8, 0.1), lambda made: made.gauss(0.3, 0.1)),
    "0.7, then 0.4; deviation 0.1": (lambda made: made.gauss(0.7, 0.1), lambda made: made.gauss(0.4, 0.1)),
    "0.7, then 0.4; deviation 0.2": (lambda made: made.gauss(0.7, 0.2), lambda made: made.gauss(0.4, 0.2)),
    "yes in 90 %, then in 30 %": (lambda made: float(made.random() < 0.9), lambda made: float(made.random() < 0.3)),
    "yes in 80 %, then in 20 %": (lambda made: float(made.random() < 0.8), lambda made: float(made.random() < 0.2)),
}


def found(kind: str, rule: QualityRule, runs: int = RUNS) -> tuple[float, int]:
    """Of runs with 40 scores before the drop and 15 after it, and no finding before: share found, median delay."""
    made, (before, after) = random.Random(7), DROPS[kind]
    delays: list[int] = []
    missed = 0
    for _ in range(runs):
        series = QualitySeries()
        scores = [*(before(made) for _ in range(40)), *(after(made) for _ in range(15))]
        changes = [series.add(min(1.0, max(0.0, score)), rule) for score in scores]
        first = changes.index(Change.DROPPED) if Change.DROPPED in changes else None
        if first is None:
            missed += 1
        elif first >= 40:
            delays.append(first - 39)
    return len(delays) / (len(delays) + missed), round(median(delays))


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
    """Print the tables."""
    rules = (QualityRule(deviations=0.0), QualityRule(), QualityRule(recent=10), QualityRule(recent=20))
    print(
        "| scores | `quality_deviations = 0` | default | `quality_recent = 10` | `= 20` |\n| --- | --- | --- | --- | --- |"
    )
    for kind in KINDS:
        shares = " | ".join(f"{100 * share(kind, rule):.1f} %" for rule in rules)
        print(f"| {kind} | {shares} |")
    print("\n| drop | `quality_deviations = 0` | default |\n| --- | --- | --- |")
    for kind in DROPS:
        cells = [found(kind, rule) for rule in rules[:2]]
        print(f"| {kind} | {' | '.join(f'{100 * one:.0f} %, {delay}' for one, delay in cells)} |")


if __name__ == "__main__":
    main()
