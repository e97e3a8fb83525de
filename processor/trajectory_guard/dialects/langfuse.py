"""Langfuse SDK 3 to 5: LangChain callback handler and ``@observe(as_type="tool")``. The span name is the tool."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, named_by
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.attributes.get("langfuse.observation.type") == "tool"


LANGFUSE = Dialect(
    name="langfuse",
    matches=_matches,
    markers=("langfuse.observation.type",),
    tool_name=named_by(),
    arguments=("langfuse.observation.input",),
    results=("langfuse.observation.output",),
)
