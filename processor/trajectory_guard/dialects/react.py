"""Calls written out in the model's own text (ReAct): ``Action:``, ``Action Input:``, ``Observation:``."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.dialects.transcript import ToolAnswer, ToolCall

_STEP: Final = re.compile(
    r"^[ \t]*Action:[ \t]*(?P<name>[^\n,]{1,100}?)[ \t]*\n[ \t]*Action Input:[ \t]*(?P<input>.*?)\n"
    r"[ \t]*Observation:(?P<seen>.*?)(?=^[ \t]*(?:Thought|Action):|\Z)",
    re.DOTALL | re.MULTILINE,
)
_GLUE: Final = re.compile(r"\n\s*(?:You ONLY have access to the following tools|Tool \S+ accepts these inputs:)")
_MAX_CHARS: Final = 200_000


def read_react(text: str) -> list[tuple[ToolCall, ToolAnswer]]:
    """Calls with their observations. Text that stops before the observation holds no call that was surely made.

    The tool list that a framework glues to an observation is cut off.
    """
    if "Observation:" not in text or len(text) > _MAX_CHARS:
        return []
    return [
        (ToolCall(match["name"].strip("`*\"' "), match["input"].strip()), ToolAnswer(value=_observation(match["seen"])))
        for match in _STEP.finditer(text)
    ]


def _observation(text: str) -> str:
    glue = _GLUE.search(text)
    return (text if glue is None else text[: glue.start()]).strip()
