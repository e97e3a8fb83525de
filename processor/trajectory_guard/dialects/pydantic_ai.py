"""Pydantic AI: semantic conventions for tools and models; the conversation on the span of the agent."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Messages

PYDANTIC_AI = Dialect(
    name="pydantic_ai",
    messages=Messages(
        transcripts=("pydantic_ai.all_messages", "all_messages_events"),
        event_lists=("events",),
        tools=("model_request_parameters",),
    ),
)
