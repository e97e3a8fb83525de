"""Calls written out in the model's own text (ReAct): ``Action:``, ``Action Input:``, ``Observation:``."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.transcripts.transcript import ToolCall, ToolResult

_ACTION: Final = re.compile(r"\A[ \t]*Action:([^\n,]*)\Z")
_INPUT: Final = re.compile(r"\A[ \t]*Action Input:")
_ASKS: Final = re.compile(r"^[ \t]*Action:[^\n,]{1,100}\n[ \t]*Action Input:", re.MULTILINE)
_SEEN: Final = re.compile(r"\A[ \t]*Observation:")
_NEXT: Final = re.compile(r"\A[ \t]*(?:Thought|Action):")
_GLUE: Final = re.compile(
    r"\A\s*(?:You ONLY have access to the following tools|Tool \S+ accepts these inputs:|Moving on then\.)"
)
_MAX_NAME_CHARS: Final = 100
_MAX_CHARS: Final = 200_000


def read_react(text: str) -> list[tuple[ToolCall, ToolResult]]:
    """Calls with their observations. Text that stops before the observation holds no call that was surely made.

    The tool list that a framework glues to an observation is cut off.
    """
    if "Observation:" not in text or len(text) > _MAX_CHARS:
        return []
    found: list[tuple[ToolCall, ToolResult]] = []
    lines = _Lines(text)
    while (name := lines.action()) is not None:
        given = lines.until(_SEEN)
        if given is None:
            break
        seen = lines.observation()
        found.append((ToolCall(name.strip("`*\"' "), given.strip()), ToolResult(value=seen)))
    return found


def asks_in_text(text: str) -> bool:
    """Whether an answer of a model ends with a call that is written out: its observation is still to come."""
    if "Action Input:" not in text or "Observation:" in text or len(text) > _MAX_CHARS:
        return False
    return _ASKS.search(text) is not None


class _Lines:
    """The lines of a text, read once from the first to the last."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._at = 0
        self._rest = ""

    def action(self) -> str | None:
        """The name of the next action that is followed by its input; None if there is none."""
        for at in range(self._at, len(self._lines) - 1):
            match = _ACTION.match(self._lines[at])
            given = _INPUT.match(self._lines[at + 1]) if match is not None else None
            name = match[1].strip(" \t") if match is not None else ""
            if given is not None and 0 < len(name) <= _MAX_NAME_CHARS:
                self._at, self._rest = at + 2, self._lines[at + 1][given.end() :]
                return name
        return None

    def until(self, mark: re.Pattern[str]) -> str | None:
        """The text up to the next line that starts with ``mark``, which is passed; None if there is none."""
        found = [self._rest]
        for at in range(self._at, len(self._lines)):
            match = mark.match(self._lines[at])
            if match is not None:
                self._at, self._rest = at + 1, self._lines[at][match.end() :]
                return "\n".join(found)
            found.append(self._lines[at])
        return None

    def observation(self) -> str:
        """The observation, up to the next thought or action; the tool list that follows is cut off."""
        found = [self._rest]
        glued = False
        while self._at < len(self._lines) and not _NEXT.match(self._lines[self._at]):
            line = self._lines[self._at]
            glued = glued or _GLUE.match(line) is not None
            if not glued:
                found.append(line)
            self._at += 1
        return "\n".join(found).strip()
