"""The data of the benchmark: recorded runs, cases and pairs, from the bundled files or from a folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_guard.cli.recordings.inputs import Diagnostics, Recorded, read
from trajectory_guard.core.steps import StepRecord

BUNDLED = Path(__file__).parents[2] / "data"
PEERS, OWN = "peer cases", "own trajectories"


class Pattern(NamedTuple):
    """One labelled stretch: ``first`` is the first step of the loop, ``fire`` the step that completes the evidence."""

    type: str
    first: int
    fire: int


class Run(NamedTuple):
    """A trajectory with its label.

    Fields:
        loop: True, False, or None where the label says nothing.
        patterns: of loops; the earliest counts. A case without steps to point at has none.
        kind, tier, note: as in the case files, empty for recorded runs.
        at_end: only the verdict at the last step counts.
    """

    source: str
    id: str
    loop: bool | None
    steps: list[StepRecord]
    patterns: tuple[Pattern, ...] = ()
    kind: str = ""
    tier: str = ""
    note: str = ""
    at_end: bool = False

    @property
    def first(self) -> int:
        """First step of the loop, -1 if unknown."""
        return min((one.first for one in self.patterns), default=-1)

    @property
    def fire(self) -> int | None:
        """Step at which the labelling rule had its evidence."""
        return min((one.fire for one in self.patterns), default=None)


class Data(NamedTuple):
    """Everything one benchmark run looks at."""

    recorded: list[Run]
    peers: list[Run]
    own: list[Run]
    pairs: list[dict[str, Any]]
    origin: str

    @property
    def sources(self) -> list[str]:
        """Sources of recorded runs, in order of appearance."""
        return list(dict.fromkeys(run.source for run in self.recorded))


def load(folder: Path | None = None) -> Data:
    """The bundled data, or ``folder/trajectories/dev`` and ``folder/cases`` beside the bundled own trajectories."""
    cases = BUNDLED if folder is None else folder / "cases"
    files = (
        [BUNDLED / "trajectories_sample.jsonl.gz"]
        if folder is None
        else sorted((folder / "trajectories" / "dev").glob("*.jsonl"))
    )
    recorded = [run for file in files if file.exists() for run in _recorded(file)]
    if folder is not None and not recorded:
        raise FileNotFoundError(f"{folder}: no runs in trajectories/dev")
    return Data(
        recorded,
        list(_cases(cases / "peer_cases.jsonl", PEERS)),
        list(_cases(BUNDLED / "own_trajectories.jsonl", OWN)),
        [pair for _, pair in _lines(cases / "similar_calls.jsonl")],
        "bundled sample" if folder is None else "all runs",
    )


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as stream:
        for number, line in enumerate(stream):
            if line.strip():
                yield number, json.loads(line)


def with_steps(file: Path) -> Iterator[tuple[Mapping[str, Any], list[StepRecord]]]:
    """Every line of a file of runs, and its steps as the package reads them."""
    diagnostics = Diagnostics()
    found = (item for item in read(str(file), diagnostics) if isinstance(item, Recorded))
    for (_, line), item in zip(_lines(file), found, strict=True):
        yield line, item.steps
    if diagnostics.errors:
        raise diagnostics.errors[0]


def _recorded(file: Path) -> Iterator[Run]:
    for line, steps in with_steps(file):
        label = line["label"]
        patterns = tuple(Pattern(one["type"], one["first"], one["fire"]) for one in label["patterns"])
        yield Run(_source(line, file), line["id"], label["loop"], steps, patterns)


def _source(line: Mapping[str, Any], file: Path) -> str:
    return file.stem if file.suffix == ".jsonl" else str(line.get("source_file") or line["source"])


def _cases(file: Path, source: str) -> Iterator[Run]:
    for line, steps in with_steps(file):
        patterns = (Pattern(line["kind"], line["first"], line["first"]),) if "first" in line else ()
        yield Run(
            source, line["id"], line["expect"] == "loop", steps, patterns, line.get("kind", ""), line.get("tier", ""),
            line.get("note", ""), line.get("when") == "end",
        )  # fmt: skip
