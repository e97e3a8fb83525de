"""Terminal recordings of mini-swe-agent, as terminal-bench-leaderboard keeps them: the screen as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.bench.origins.runs import Run, Step, step

ORIGIN = "terminal_bench"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\r")
_TURN = re.compile(r"^mini-swe-agent \(step \d+, \$[0-9.]+\):$", re.MULTILINE)
_SPINNER = re.compile("[⠀-⣿] Waiting for the LM to respond\\.\\.\\.")
_COMMAND = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)
_ANSWER = re.compile(r"\nUser:\n(.*?)(?:\n─{20,}|\Z)", re.DOTALL)
_STATUS = re.compile(r"<returncode>(-?\d+)</returncode>")


def load(folder: Path) -> Iterator[Run]:
    """``folder/<date>_<agent>_<model>/…/<task>/<trial>/sessions/agent.log`` beside ``results.json``."""
    for log in sorted(folder.rglob("sessions/agent.log")):
        verdict = log.parents[1] / "results.json"
        if not verdict.exists():
            continue
        facts = json.loads(verdict.read_text(encoding="utf-8"))
        steps = screen_steps(log.read_text(encoding="utf-8", errors="replace"))
        identifier = f"{ORIGIN}/{facts['task_id']}/{facts['trial_name']}"
        model = "claude-4-sonnet"
        yield Run(identifier, ORIGIN, "en", model, "mini-swe-agent", facts["instruction"], facts["is_resolved"], steps)


def screen_steps(screen: str) -> list[Step]:
    """A step for every command that was answered."""
    text = _SPINNER.sub("", _ESCAPES.sub("", screen))
    found = []
    for turn in _TURN.split(text)[1:]:
        command, answer = _COMMAND.search(turn), _ANSWER.search(turn)
        if command is None or answer is None:
            continue
        status = _STATUS.search(answer[1])
        failed = None if status is None else status[1] != "0"
        thought = turn[: command.start()].replace("THOUGHT:", "")
        found.append(step("bash", command[1], _output(answer[1]), failed=failed, thought=thought))
    return found


def _output(answer: str) -> str:
    body = _STATUS.sub("", answer).strip()
    return re.sub(r"^<output>\n?|\n?</output>$", "", body)
