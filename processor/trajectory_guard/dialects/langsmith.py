"""LangSmith in OpenTelemetry mode. Its spans are created and ended later, on a background thread."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, RawCall, named_by
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.attributes.get("langsmith.span.kind") == "tool"


def _drop_empty_failure(span: SpanView, raw: RawCall) -> RawCall:
    """``{}`` is what LangSmith writes for a tool that raised."""
    return raw._replace(result=None) if raw.result == "{}" and span.status == "error" else raw


def _may_be_call(span: SpanView) -> bool | None:
    return True if span.attributes.get("langsmith.span.kind") == "llm" else None


LANGSMITH = Dialect(
    name="langsmith",
    matches=_matches,
    markers=("langsmith.span.kind",),
    tool_name=named_by("gen_ai.tool.name"),
    arguments=("gen_ai.prompt",),
    results=("gen_ai.completion",),
    adjust=_drop_empty_failure,
    identity=Identity(
        conversations=(
            "langsmith.metadata.thread_id", "langsmith.metadata.session_id", "langsmith.metadata.conversation_id",
        ),
        metadata_prefixes=("langsmith.metadata.",),
    ),
    models=ModelCalls(may_be_call=_may_be_call, call_markers=("langsmith.span.kind",)),
    messages=Messages(
        inputs=("gen_ai.prompt",),
        outputs=("gen_ai.completion",),
        transcripts=("gen_ai.completion",),
        family_markers=("langsmith.span.kind",),
    ),
)  # fmt: skip
