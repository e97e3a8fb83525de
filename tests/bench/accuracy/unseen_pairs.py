"""``python -m tests.bench.accuracy.unseen_pairs [--model DIR]``: pairs of calls by somebody who had not seen the comparator.

A pair counts as called the same if the comparator says so; with a model also if the comparator leaves it open and the
model settles it. Polls are not among the pairs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.accuracy.data import BUNDLED
from tests.bench.accuracy.tables import Table
from tests.helpers import lines
from trajectory_guard.core.similarity import Relation, compare, normalize
from trajectory_guard.core.similarity.calibration import settler
from trajectory_guard.core.similarity.cascade import Settle
from trajectory_guard.semantic.settler import ModelSettings, prepare

PAIRS: Final = BUNDLED / "similar_calls_unseen.jsonl"
SPLITS: Final = (
    "dev", "held", "blind", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth",
)  # fmt: skip
RESAMPLES: Final = 2_000
SEED: Final = 7


class Compared(NamedTuple):
    """A pair, whether it is a repeat, and what was said without and with a model."""

    split: str
    language: str
    repeat: bool
    same: bool
    settled: bool
    open: bool


def compare_all(settle: Settle | None) -> list[Compared]:
    """All pairs; without a model ``settled`` is ``same``."""
    return [_compared(pair, settle) for pair in lines(PAIRS)]


def _compared(pair: dict[str, Any], settle: Settle | None) -> Compared:
    one, other = (normalize(pair["tool"], pair[side]) for side in ("a_args", "b_args"))
    relation = compare(one, other).relation
    asked = settle is not None and relation is Relation.MAYBE and bool(one.text and other.text)
    same = relation is Relation.SAME
    settled = same or (asked and settle is not None and settle(one.text, other.text) is True)
    return Compared(pair["split"], pair["lang"], pair["label"] == 1, same, settled, relation is Relation.MAYBE)


Measure = Callable[[Sequence[Compared]], "float | None"]


def _recall(said: Callable[[Compared], bool]) -> Measure:
    def measure(group: Sequence[Compared]) -> float | None:
        found = [said(one) for one in group if one.repeat]
        return sum(found) / len(found) if found else None

    return measure


def _precision(said: Callable[[Compared], bool]) -> Measure:
    def measure(group: Sequence[Compared]) -> float | None:
        found = [one.repeat for one in group if said(one)]
        return sum(found) / len(found) if found else None

    return measure


def interval(group: Sequence[Compared], measure: Measure) -> str:
    """The figure, and 95 % of resamples of the pairs."""
    value = measure(group)
    if value is None:
        return "-"
    dice = random.Random(SEED)
    drawn = (measure(dice.choices(group, k=len(group))) for _ in range(RESAMPLES))
    found = sorted(one for one in drawn if one is not None)
    low, high = found[int(0.025 * len(found))], found[min(len(found) - 1, int(0.975 * len(found)))]
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def groups(every: Sequence[Compared]) -> Iterator[tuple[str, list[Compared]]]:
    """By split, and English apart from the other languages."""
    for split in SPLITS:
        part = [one for one in every if one.split == split]
        yield split, part
        others = [one for one in part if one.language != "en"]
        if others:
            yield f"{split}, English", [one for one in part if one.language == "en"]
            yield f"{split}, other languages", others


def table(every: Sequence[Compared], *, model: bool) -> Table:
    """One row a group."""
    ways: list[tuple[str, Callable[[Compared], bool]]] = [("", lambda one: one.same)]
    if model:
        ways.append((" with a model", lambda one: one.settled))
    heads = [f"{what}{way}" for way, _ in ways for what in ("recall", "precision")]
    rows = [
        (
            name,
            len(group),
            *(interval(group, measure(said)) for _, said in ways for measure in (_recall, _precision)),
            interval(group, _recall(lambda one: one.same or one.open)),
        )
        for name, group in groups(every)
    ]
    note = f"In brackets: 95 % of {RESAMPLES:,} resamples of the pairs (seed {SEED})."
    columns = ("pairs", "number", *heads, "recall if every open pair were settled rightly")
    return Table("unseen-pairs", "Pairs by somebody who had not seen the comparator", columns, rows, note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy.unseen_pairs", description=__doc__)
    parser.add_argument("--model", type=Path, metavar="DIR", help="folder with a sentence model for fastembed")
    options = parser.parse_args(arguments)
    settle: Settle | None = None
    if options.model is not None:
        prepared = prepare(ModelSettings(path=str(options.model)))
        settle = settler(prepared.embed, prepared.calibration).settle
    print(table(compare_all(settle), model=settle is not None).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
