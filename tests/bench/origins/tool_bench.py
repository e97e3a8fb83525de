"""Korean tool-use benchmark (Hugging-Face-KREW/Ko-AgentBench): one JSON file a model and level."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.origins.runs import Run, Step, step

ORIGIN = "ko_agentbench"


def load(folder: Path) -> Iterator[Run]:
    """``folder/<model>/<time>/L<level>.json``."""
    for file in sorted(folder.rglob("L*.json")):
        whole = json.loads(file.read_text(encoding="utf-8"))
        model = str(whole["metadata"]["model"])
        for task in whole["results"]:
            identifier = f"{ORIGIN}/{model.replace('/', '_')}/{task['task_id']}"
            yield Run(identifier, ORIGIN, "ko", model, "Ko-AgentBench", task["instruction"], None, _steps(task))


def _steps(task: Mapping[str, Any]) -> list[Step]:
    found = []
    for call in task["tool_calls"]:
        error = call.get("error")
        result = call.get("result") if error is None else error
        failed = not call.get("success", True) or None
        found.append(step(call["tool_name"], call["arguments"], result, failed=failed, batch=str(call["step"])))
    return found
