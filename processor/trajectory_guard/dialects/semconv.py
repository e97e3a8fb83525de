"""OpenTelemetry GenAI semantic conventions: ``gen_ai.operation.name = execute_tool``.

Emitted by the official LangChain and OpenAI Agents instrumentations, Pydantic AI, Microsoft Agent Framework,
AutoGen, the MCP SDK, and by hand.
"""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, named_by
from trajectory_guard.dialects.span import SpanView

_name = named_by("gen_ai.tool.name", prefixes=("execute_tool ", "tools/call ", "running tool: "))


def _matches(span: SpanView) -> bool:
    return span.attributes.get("gen_ai.operation.name") == "execute_tool"


SEMCONV = Dialect(
    name="semconv",
    matches=_matches,
    markers=("gen_ai.operation.name",),
    tool_name=_name,
)


def _matches_named(span: SpanView) -> bool:
    """A tool name and arguments or a call id without an operation name: older or hand-written spans."""
    attributes = span.attributes
    return (
        "gen_ai.tool.name" in attributes
        and "gen_ai.operation.name" not in attributes
        and (
            "gen_ai.tool.call.id" in attributes
            or "tool_arguments" in attributes
            or span.name.startswith(("execute_tool", "running tool"))
        )
    )


SEMCONV_NAMED = Dialect(
    name="semconv",
    matches=_matches_named,
    markers=("gen_ai.tool.name",),
    tool_name=_name,
)
