"""LlamaIndex under OpenLLMetry: the outer workflow task carries the call, the inner FunctionTool repeats it."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Messages
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.attributes.get("traceloop.span.kind") == "task" and (
        span.attributes.get("traceloop.entity.name") == "FunctionTool.task" or "tool.name" in span.attributes
    )


def _tool_name(span: SpanView) -> str | None:
    name = span.attributes.get("tool.name")
    return name if isinstance(name, str) else None  # FunctionTool.task: inner duplicate


LLAMAINDEX = Dialect(
    name="openllmetry",
    matches=_matches,
    markers=("traceloop.span.kind",),
    tool_name=_tool_name,
    messages=Messages(workflow_outputs=("traceloop.entity.output",)),
)
