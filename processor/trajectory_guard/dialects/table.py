"""The ordered table of dialects: the first row that matches a span decides how it is read."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.langfuse import LANGFUSE
from trajectory_guard.dialects.langsmith import LANGSMITH
from trajectory_guard.dialects.llamaindex import LLAMAINDEX
from trajectory_guard.dialects.logfire import LOGFIRE
from trajectory_guard.dialects.mcp import MCP
from trajectory_guard.dialects.openinference import OPENINFERENCE
from trajectory_guard.dialects.openlit import OPENLIT
from trajectory_guard.dialects.openllmetry import OPENLLMETRY
from trajectory_guard.dialects.semconv import SEMCONV, SEMCONV_NAMED
from trajectory_guard.dialects.span import SpanView

DIALECTS: Final[tuple[Dialect, ...]] = (
    LANGSMITH,
    LANGFUSE,
    LOGFIRE,
    OPENLIT,
    LLAMAINDEX,
    OPENLLMETRY,
    OPENINFERENCE,
    MCP,
    SEMCONV,
    SEMCONV_NAMED,
)
MARKERS: Final[frozenset[str]] = frozenset(key for dialect in DIALECTS for key in dialect.markers)
"""A span with none of these keys is no tool span. Checked first: most spans of an application are none."""

_NOT_A_TOOL: Final = frozenset(
    (
        "chat", "generate_content", "text_completion", "embeddings", "invoke_agent", "create_agent", "invoke_workflow",
        "execute_task", "handoff", "agent_handoff", "goto", "plan", "retrieval",
    )
)  # fmt: skip


def is_rejected(span: SpanView) -> bool:
    """Spans that look like tools and are none: model calls that name a tool, pending copies, other MCP methods."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation in _NOT_A_TOOL:
        return True
    if attributes.get("logfire.span_type") == "pending_span":
        return True
    method = attributes.get("mcp.method.name")
    return method is not None and method != "tools/call"


@lru_cache(maxsize=64)
def markers_of(dialects: tuple[Dialect, ...]) -> frozenset[str]:
    """Keys at least one of which every tool span of these dialects carries: ``MARKERS`` for a table of one's own."""
    return MARKERS if dialects is DIALECTS else frozenset(key for dialect in dialects for key in dialect.markers)


def recognise(span: SpanView, dialects: tuple[Dialect, ...] = DIALECTS) -> Dialect | None:
    """The dialect of a tool span, None if the span is no tool span."""
    if dialects is not DIALECTS:
        for dialect in dialects:
            if dialect.declared and dialect.matches(span):
                return dialect
    if is_rejected(span):
        return None
    for dialect in dialects:
        if dialect.matches(span):
            return dialect
    return None
