"""The common form of a recorded run, and its split into runs to look at and runs kept aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

LONGEST = 6_000
FEWEST_STEPS = 4
Split = Literal["dev", "held"]


class Call(TypedDict):
    """What every source tells of a tool call."""

    tool: str
    args: Any
    result: str | None
    thought: str
    t: float | None


class Step(Call, total=False):
    """One tool call. ``outcome`` is there only where the source states it; the reader classifies the others."""

    outcome: str
    turn: int
    batch: str


class Run(NamedTuple):
    """A recorded run. ``success``: what the source says of the task, None if it says nothing."""

    id: str
    origin: str
    language: str
    model: str
    framework: str
    task: str
    success: bool | None
    steps: list[Step]

    def line(self) -> dict[str, Any]:
        """As a step line."""
        return {
            "id": self.id, "source": self.origin, "language": self.language, "model": self.model,
            "agent_framework": self.framework, "task": shorten(self.task, 1_500), "success": self.success,
            "steps": self.steps,
        }  # fmt: skip


def step(
    tool: str,
    args: Any,
    result: Any,
    *,
    failed: bool | None = None,
    thought: str = "",
    t: float | None = None,
    turn: int | None = None,
    batch: str | None = None,
) -> Step:
    """A step; ``failed`` is what the source says of the call, None if it says nothing. Results become text."""
    text = result if isinstance(result, str) or result is None else json.dumps(result, ensure_ascii=False)
    made: Step = {
        "tool": tool,
        "args": _shorter(args),
        "result": None if text is None else shorten(text),
        "thought": shorten(thought.strip(), 2_000),
        "t": t,
    }
    if failed is not None:
        made["outcome"] = "error" if failed else "success" if text and text.strip() else "empty"
    if turn is not None:
        made["turn"] = turn
    if batch is not None:
        made["batch"] = batch
    return made


def shorten(text: str, limit: int = LONGEST) -> str:
    """Long text ends in its hash, so that equal stays equal and different stays different."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:10]
    return f"{text[:limit]}…[+{len(text) - limit} chars sha1:{digest}]"


def _shorter(args: Any) -> Any:
    if isinstance(args, str):
        return shorten(args)
    if isinstance(args, Mapping):
        return {str(key): _shorter(value) for key, value in args.items()}
    return args


def decoded(text: Any) -> Any:
    """Arguments that may be JSON in a string."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def split_of(identifier: str) -> Split:
    """Two thirds ``dev``, one third ``held``, by hash of the run's id."""
    digest = hashlib.sha256(identifier.encode()).digest()
    return "held" if int.from_bytes(digest[:4], "big") % 3 == 0 else "dev"


def write(runs: Iterable[Run], folder: Path) -> dict[Split, int]:
    """Write ``folder/<split>/<origin>.jsonl``; runs shorter than ``FEWEST_STEPS`` are left out. Runs by split."""
    by_file: dict[tuple[Split, str], list[Run]] = {}
    for run in runs:
        if len(run.steps) >= FEWEST_STEPS:
            by_file.setdefault((split_of(run.id), run.origin), []).append(run)
    counts: dict[Split, int] = {"dev": 0, "held": 0}
    for (split, origin), found in by_file.items():
        counts[split] += len(found)
        file = folder / split / f"{origin}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(run.line(), ensure_ascii=False) + "\n" for run in sorted(found, key=lambda run: run.id))
        file.write_text("".join(lines), encoding="utf-8")
    return counts
