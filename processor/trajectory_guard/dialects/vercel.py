"""The Vercel AI SDK: messages of its model calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_guard.dialects.base import Dialect, Messages, ModelCalls


def _answer(attributes: Mapping[str, Any]) -> Any:
    """Text and calls of an answer stand in attributes of their own."""
    if "ai.response.toolCalls" not in attributes:
        return None
    text, calls = attributes.get("ai.response.text"), attributes["ai.response.toolCalls"]
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


VERCEL = Dialect(
    name="vercel",
    models=ModelCalls(markers=("ai.response.toolCalls", "ai.prompt.messages")),
    messages=Messages(raw_inputs=("ai.prompt.messages",), assemble_output=_answer),
)
