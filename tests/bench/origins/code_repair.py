"""Small code repairs by four models (snowshine0216/agent-eval-lab): one run a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.origins.runs import Run, Step, step

ORIGIN = "agent_eval_lab"


def load(folder: Path) -> Iterator[Run]:
    """``folder/runs-*.jsonl``."""
    for file in sorted(folder.glob("runs-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            turns = one["trajectory"]["turns"]
            task = next((str(turn["content"]) for turn in turns if turn.get("role") == "user"), "")
            model = one["condition_id"]
            identifier = f"{ORIGIN}/{model.replace('/', '_')}/{one['task_id']}/{one['run_index']}"
            success = bool(one["grade"]["passed"])
            yield Run(identifier, ORIGIN, "en", model, "agent-eval-lab", task, success, _steps(turns))


def _steps(turns: Sequence[Mapping[str, Any]]) -> list[Step]:
    answers = {turn["call_id"]: turn["outcome"] for turn in turns if turn["type"] == "tool_result"}
    found = []
    for place, turn in enumerate(turns):
        for call in turn.get("tool_calls") or () if turn["type"] == "tool_call" else ():
            outcome = answers.get(call["call_id"])
            failed = None if outcome is None else outcome["type"] != "success"
            result = None if outcome is None else outcome.get("result", outcome)
            thought = turn.get("content") or ""
            found.append(
                step(call["name"], call["arguments"], result, failed=failed, thought=thought, batch=str(place))
            )
    return found
