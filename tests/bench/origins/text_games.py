"""Text games: traces of ADaPT (ALFWorld, TextCraft) and step tables of BALROG (TextWorld, BabyAI)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.origins.runs import Run, Step, step

ADAPT, BALROG = "adapt", "balrog"
_MODELS = {"davinci_003": "text-davinci-003", "turbo-instruct": "gpt-3.5-turbo-instruct"}


def load_adapt(folder: Path) -> Iterator[Run]:
    """``folder/*.json``: episodes by name, in ALFWorld's file below the kind of task."""
    for file in sorted(folder.glob("*.json")):
        model = next((name for mark, name in _MODELS.items() if mark in file.stem), file.stem)
        for name, episode in _episodes(json.loads(file.read_text(encoding="utf-8"))):
            identifier = f"{ADAPT}/{file.stem}/{name}"
            steps = trace_steps(episode["trace"])
            success = bool(episode.get("reward"))
            yield Run(identifier, ADAPT, "en", model, "ADaPT", str(episode["problem"]), success, steps)


def _episodes(value: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, one in value.items():
        if isinstance(one, Mapping) and "trace" in one:
            yield f"{name}{key}", one
        elif isinstance(one, Mapping):
            yield from _episodes(one, f"{name}{key}/")


def trace_steps(trace: str) -> list[Step]:
    """``> action`` with the lines up to the next one; a ``think:`` action is the thought of the next step."""
    found, thought = list[Step](), ""
    for part in re.split(r"(?:^|\n)> ?", trace.lstrip().removeprefix("> ")):
        action, _, answer = part.partition("\n")
        action = action.strip()
        if action.startswith("think:"):
            thought = action.removeprefix("think:")
        elif action and answer.strip():
            tool, _, rest = action.partition(" ")
            found.append(step(tool, rest, answer.strip(), thought=thought))
            thought = ""
    return found


def load_balrog(folder: Path) -> Iterator[Run]:
    """``folder/<date>_<agent>/<game>/…/<run>.csv`` beside ``<run>.json``."""
    for table in sorted(folder.rglob("*.csv")):
        facts = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))
        identifier = f"{BALROG}/{table.relative_to(folder).with_suffix('')}"
        model = str(facts["client"]["model_id"])
        steps = table_steps(table.read_text(encoding="utf-8", errors="replace"))
        success = facts["progression"] == 1.0
        yield Run(identifier, BALROG, "en", model, "BALROG", str(facts["task"]), success, steps)


def table_steps(table: str) -> list[Step]:
    """A step a row; the observation of a row is what its action led to."""
    return [
        step("act", row["Action"], row["Observation"], thought=row.get("Reasoning") or "")
        for row in csv.DictReader(io.StringIO(table))
    ]
