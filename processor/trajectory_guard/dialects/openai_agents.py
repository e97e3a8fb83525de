"""OpenAI Agents, whichever instrumentation follows it."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Identity
from trajectory_guard.dialects.span import SpanView


def _awaits_approval(span: SpanView) -> bool:
    """A call that waits for approval has a finished span; every executed call has an output."""
    return span.status != "error" and "openai_agents" in span.scope


OPENAI_AGENTS = Dialect(
    name="openai_agents",
    awaits_approval=_awaits_approval,
    identity=Identity(placeholders=("OpenAI Agent",)),
)
