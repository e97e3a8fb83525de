"""LangSmith in OpenTelemetry mode. Its spans are created and ended later, on a background thread.

Its integrations of other frameworks put what a tool was called with into an object of their own, or an object in place
of no arguments.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, RawCall, json_object, named_by
from trajectory_guard.dialects.span import SpanView

_INTEGRATION: Final = "langsmith.metadata.ls_integration"
_CLAUDE: Final = "claude-agent-sdk"
_OPENAI_AGENTS: Final = "openai-agents-sdk"
_OF_FAILURES: Final = ("{}", '{"output":null}')
"""Results that LangSmith writes for a tool that raised."""
_STACK: Final = "\n\nTraceback (most recent call last):"


def _matches(span: SpanView) -> bool:
    return span.attributes.get("langsmith.span.kind") == "tool"


def _raised(span: SpanView) -> Any:
    """The exception as Python writes it out, without the stack behind it, which is the same for different errors."""
    for event in span.events:
        text = event.attributes.get("exception.message")
        if event.name == "exception" and isinstance(text, str) and _STACK in text:
            return {"result": text.partition(_STACK)[0], "is_error": True}
    return None


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    result = raw.result
    if result in _OF_FAILURES and span.status == "error":
        result = _raised(span)
    integration = span.attributes.get(_INTEGRATION)
    if integration not in (_CLAUDE, _OPENAI_AGENTS):
        return raw._replace(result=result)
    found = json_object(raw.arguments)
    arguments = raw.arguments
    if found.keys() == {"input"} and isinstance(found["input"], dict):
        arguments = found["input"] if integration == _CLAUDE else arguments
    elif found == {"input": None}:
        arguments = {}
    return RawCall(raw.call_id, arguments, result)


def _is_agent(span: SpanView) -> bool:
    """In a run of the OpenAI Agents SDK only the spans of agents and of models list tools."""
    attributes = span.attributes
    return (
        attributes.get(_INTEGRATION) == _OPENAI_AGENTS
        and attributes.get("langsmith.span.kind") == "chain"
        and "gen_ai.tool.definitions" in attributes
    )


def _agent_name(span: SpanView) -> str | None:
    return span.name if _is_agent(span) else None


def _may_be_call(span: SpanView) -> bool | None:
    return True if span.attributes.get("langsmith.span.kind") == "llm" else None


LANGSMITH = Dialect(
    name="langsmith",
    matches=_matches,
    markers=("langsmith.span.kind",),
    tool_name=named_by("gen_ai.tool.name"),
    arguments=("gen_ai.prompt",),
    results=("gen_ai.completion",),
    adjust=_adjust,
    identity=Identity(
        conversations=(
            "langsmith.metadata.thread_id", "langsmith.metadata.session_id", "langsmith.metadata.conversation_id",
        ),
        metadata_prefixes=("langsmith.metadata.",),
        agent_markers=(_INTEGRATION,),
        is_agent=_is_agent,
        agent_name=_agent_name,
    ),
    models=ModelCalls(may_be_call=_may_be_call, call_markers=("langsmith.span.kind",)),
    messages=Messages(
        inputs=("gen_ai.prompt",),
        outputs=("gen_ai.completion",),
        transcripts=("gen_ai.completion",),
        family_markers=("langsmith.span.kind",),
    ),
)  # fmt: skip
