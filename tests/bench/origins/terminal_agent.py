"""Trajectories in the Agent Trajectory Interchange Format (ATIF) of Harbor's terminal agent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.origins.runs import Run, Step, step

ORIGIN = "harbor"


def load(folder: Path) -> Iterator[Run]:
    """``folder/<job>/<trial>/agent/trajectory.json`` beside ``verifier/reward.txt``."""
    for file in sorted(folder.rglob("agent/trajectory.json")):
        whole = json.loads(file.read_text(encoding="utf-8"))
        reward = file.parents[1] / "verifier" / "reward.txt"
        success = float(reward.read_text().strip() or 0) == 1.0 if reward.exists() else None
        task = next((str(one["message"]) for one in whole["steps"] if one["source"] == "user"), "")
        task = task.partition("Task Description:")[2] or task
        agent = whole["agent"]
        identifier = f"{ORIGIN}/{file.parents[2].name}/{file.parents[1].name}"
        steps = atif_steps(whole["steps"])
        yield Run(identifier, ORIGIN, "en", str(agent.get("model_name")), agent["name"], task.strip(), success, steps)


def atif_steps(turns: Sequence[Mapping[str, Any]]) -> list[Step]:
    """One step a turn of the agent: the terminal answers a batch of keystrokes with one screen."""
    started = next((_seconds(one) for one in turns if one.get("timestamp")), None)
    found = []
    for turn in turns:
        calls = turn.get("tool_calls") or []
        if turn["source"] != "agent" or not calls:
            continue
        names = {str(call["function_name"]) for call in calls}
        args = calls[0]["arguments"] if len(calls) == 1 else {"batch": [call["arguments"] for call in calls]}
        results = (turn.get("observation") or {}).get("results") or []
        screen = "\n".join(str(one.get("content") or "") for one in results).rstrip()
        now = _seconds(turn)
        t = None if now is None or started is None else round(now - started, 2)
        thought = str(turn.get("message") or "")
        found.append(step(" ".join(sorted(names)), args, screen, thought=thought, t=t))
    return found


def _seconds(turn: Mapping[str, Any]) -> float | None:
    stamp = turn.get("timestamp")
    return None if stamp is None else datetime.fromisoformat(str(stamp)).timestamp()
