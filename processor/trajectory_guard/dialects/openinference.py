"""OpenInference (Arize): LangChain, OpenAI Agents, LlamaIndex, smolagents, Agno, CrewAI and manual tracers.

The span kind is not enough: a tool with "agent" in its name is AGENT, and a hand-off is TOOL. ``tool.name`` decides.
"""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    attributes = span.attributes
    if "tool.name" in attributes:
        return attributes.get("openinference.span.kind") not in ("LLM", "EMBEDDING", "RETRIEVER", "RERANKER")
    return attributes.get("openinference.span.kind") == "TOOL"


def _tool_name(span: SpanView) -> str | None:
    name = span.attributes.get("tool.name")
    return name if isinstance(name, str) and name else None  # without a name: a hand-off, not a step


OPENINFERENCE = Dialect(
    name="openinference",
    matches=_matches,
    markers=("tool.name", "openinference.span.kind"),
    tool_name=_tool_name,
    arguments=("tool.arguments", "input.value"),
    results=("output.value",),
    single_argument=True,
    empty_arguments=True,
)
