"""Pydantic AI: semantic conventions for tools and models; the conversation on the span of the agent."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Messages, is_one_of
from trajectory_guard.dialects.span import SpanView

_DEFERRED: Final = ("pydantic_ai.exceptions.CallDeferred", "pydantic_ai.exceptions.ApprovalRequired")


def _is_deferred(span: SpanView) -> bool:
    """A tool that puts its call off raises an exception, which is control flow although the span may end as an error.

    Early versions write the exception alone, later ones its name, those of instrumentation version 5 only the name.
    """
    if "pydantic_ai.tool.deferral.name" in span.attributes:
        return True
    raised = (one.attributes.get("exception.type") for one in span.events)
    return span.scope == "pydantic-ai" and any(is_one_of(one, _DEFERRED) for one in raised)


PYDANTIC_AI = Dialect(
    name="pydantic_ai",
    deferred=_is_deferred,
    messages=Messages(
        transcripts=("pydantic_ai.all_messages", "all_messages_events"),
        event_lists=("events",),
        tools=("model_request_parameters",),
    ),
)
