"""OpenLLMetry (Traceloop): LangChain wrapper, OpenAI Agents, SDK decorators, MCP; 0.4x to 0.62."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, named_by
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.attributes.get("traceloop.span.kind") == "tool"


OPENLLMETRY = Dialect(
    name="openllmetry",
    matches=_matches,
    markers=("traceloop.span.kind",),
    tool_name=named_by(
        "gen_ai.tool.name", "traceloop.entity.name", prefixes=("execute_tool ",), suffixes=(".tool", ".mcp")
    ),
    empty_result=True,
)
