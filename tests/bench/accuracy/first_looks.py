"""``python -m tests.bench.accuracy.first_looks``: what the guard made of unseen material when it first met it.

Rules are changed because of what a set shows, so the first figures of a set cannot be measured again. They are kept in
``tests/data/first_looks.jsonl``, one line a set; this module adds them up. An interval comes from resampling the sets,
and the cases of each: sets differ more from each other than the cases of one.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.bench.accuracy.data import BUNDLED
from tests.bench.accuracy.tables import Table
from tests.helpers import lines

FIRST_LOOKS: Final = BUNDLED / "first_looks.jsonl"
RESAMPLES: Final = 1_000
SEED: Final = 7

Row = Mapping[str, Any]


def first_looks(kind: str) -> list[Row]:
    """All sets of one kind: ``runs``, ``situations``, ``pairs``, or one of them with `` aside``, and ``peer cases aside``."""
    return [row for row in lines(FIRST_LOOKS) if row["kind"] == kind]


def pooled(rows: Sequence[Row], part: str, whole: str) -> str:
    """The share of ``part`` in ``whole`` over all sets that state both, with the interval of 95 %."""
    counts = [(row[part], row[whole]) for row in rows if part in row and whole in row]
    dice = random.Random(SEED)
    drawn = sorted(_share(_resampled(counts, dice)) for _ in range(RESAMPLES))
    low, high = drawn[RESAMPLES * 25 // 1_000], drawn[RESAMPLES * 975 // 1_000]
    found, of = (sum(column) for column in zip(*counts, strict=True))
    return f"**{found / of:.2f}** [{low:.2f}, {high:.2f}], {found:,} of {of:,}"


def _resampled(counts: Sequence[tuple[int, int]], dice: random.Random) -> list[tuple[int, int]]:
    sets = dice.choices(counts, k=len(counts))
    return [(sum(dice.random() < found / of for _ in range(of)), of) for found, of in sets]


def _share(counts: Sequence[tuple[int, int]]) -> float:
    return sum(found for found, _ in counts) / sum(of for _, of in counts)


def summary() -> Iterator[Table]:
    """One row for each kind of material, over all its sets."""
    runs, situations, pairs = (first_looks(kind) for kind in ("runs", "situations", "pairs"))
    runs = [{**row, "left_alone": row["healthy"] - row["nudged"]} for row in runs]
    situations = [{**row, "found": row["nudged"]} if "loops" in row else row for row in situations]
    yield Table(
        "first-looks",
        "Unseen material at the first look",
        ("material", "sets", "loops nudged", "healthy left alone", "healthy stopped"),
        [
            ("recorded runs of real agents", *_run_cells(runs, "stopped")),
            (
                "written situations, half of them in other languages than English",
                *_run_cells(situations, "wrong_stops"),
            ),
        ],
    )
    yield Table(
        "first-looks-pairs",
        "Unseen pairs of calls at the first look",
        ("pairs of calls", "sets", "repeats recognised", "with the sentence model", "different calls called the same"),
        [
            (name, *_pair_cells([row for row in pairs if (row["language"] == "English") is english]))
            for name, english in (("English", True), ("other languages", False))
        ],
    )


def _run_cells(rows: Sequence[Row], stopped: str) -> tuple[Any, ...]:
    stops, healthy = sum(row[stopped] for row in rows), sum(row["healthy"] for row in rows)
    return len(rows), pooled(rows, "found", "loops"), pooled(rows, "left_alone", "healthy"), f"{stops} of {healthy:,}"


def _pair_cells(rows: Sequence[Row]) -> tuple[Any, ...]:
    return (
        len(rows),
        pooled(rows, "found", "repeats"),
        pooled(rows, "found_with_model", "repeats"),
        pooled(rows, "false", "different"),
    )


_COLUMNS: Final[Mapping[str, Mapping[str, Callable[[Row], Any]]]] = {
    "runs": {
        "set": lambda row: row["set"],
        "what": lambda row: _what(row),
        "runs": lambda row: row["count"],
        "loops": lambda row: row["loops"],
        "recall": lambda row: row["recall"],
        "precision": lambda row: row["precision"],
        "median delay": lambda row: row["delay"],
        "healthy nudged": lambda row: _of(row, "nudged", "healthy"),
        "healthy stopped": lambda row: row["stopped"],
    },
    "situations": {
        "set": lambda row: row["set"],
        "what": lambda row: _what(row),
        "situations": lambda row: row["count"],
        "right": lambda row: row["right"],
        "healthy left alone": lambda row: _of(row, "left_alone", "healthy"),
        "loops nudged": lambda row: _of(row, "nudged", "loops"),
        "wrong stops": lambda row: row["wrong_stops"],
    },
    "pairs": {
        "set": lambda row: row["set"],
        "language": lambda row: row["language"],
        "what": lambda row: _what(row),
        "repeats recognised": lambda row: _of(row, "found", "repeats"),
        "with a model": lambda row: _of(row, "found_with_model", "repeats"),
        "different called the same": lambda row: _of(row, "false", "different"),
        "with a model ": lambda row: _of(row, "false_with_model", "different"),
    },
}
_ASIDE: Final = ("runs aside", "situations aside", "pairs aside", "peer cases aside")


def details() -> Iterator[Table]:
    """One row for each set."""
    for kind, columns in _COLUMNS.items():
        rows = [[cell(row) for cell in columns.values()] for row in first_looks(kind)]
        yield Table(f"first-looks-{kind}", kind, list(columns), rows)
    yield Table(
        "first-looks-aside",
        "parts kept aside",
        ("kind", "set", "cases", "under the rules before", "under the changed rules"),
        [
            (kind.removesuffix(" aside"), row["set"], row["count"], row.get("before"), row["after"])
            for kind in _ASIDE
            for row in first_looks(kind)
        ],
    )


def _what(row: Row) -> str:
    return "; ".join(row[key] for key in ("of", "note") if key in row) or "-"


def _of(row: Row, part: str, whole: str) -> str | None:
    return f"{row[part]} of {row[whole]}" if part in row and whole in row else None


def main() -> int:
    """Print all tables."""
    for table in (*summary(), *details()):
        print(f"{table.title}\n\n{table.markdown()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
