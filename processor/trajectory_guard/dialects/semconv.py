"""OpenTelemetry GenAI semantic conventions: ``gen_ai.operation.name = execute_tool``.

Emitted by the official LangChain and OpenAI Agents instrumentations, Pydantic AI, Microsoft Agent Framework,
AutoGen, the MCP SDK, and by hand.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.dialects.base import (
    HANDOFF_KEYS,
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    executes_tool,
    hands_over,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_name = named_by("gen_ai.tool.name", prefixes=("execute_tool ", "tools/call ", "running tool: "))
_OPERATION: Final = "gen_ai.operation.name"
_NOT_A_TOOL: Final = frozenset(
    (
        "chat", "generate_content", "text_completion", "embeddings", "invoke_agent", "create_agent", "invoke_workflow",
        "execute_task", "handoff", "agent_handoff", "goto", "plan", "retrieval",
    )
)  # fmt: skip
_MODEL_OPERATIONS: Final = frozenset(
    ("chat", "generate_content", "text_completion", "completion", "generate", "message", "messages", "responses")
)
_OTHER_OPERATIONS: Final = frozenset(
    (
        "execute_tool", "invoke_agent", "create_agent", "invoke_workflow", "execute_task", "embeddings", "retrieval",
        "chain",
    )
)  # fmt: skip


def _is_other_operation(operation: Any) -> bool:
    return isinstance(operation, str) and operation in _NOT_A_TOOL


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_OPERATION) == "invoke_agent"


def _agent_name(span: SpanView) -> str | None:
    if not _is_agent(span):
        return None
    named = span.attributes.get("gen_ai.agent.name")
    if named:
        return text_or_empty(named)
    name = span.name.removeprefix("invoke_agent ") if span.name.startswith("invoke_agent ") else ""
    return "" if name == span.attributes.get("gen_ai.request.model") else name  # an agent without a name of its own


def _is_call(span: SpanView) -> bool | None:
    operation = span.attributes.get(_OPERATION)
    if not isinstance(operation, str):
        return None
    return True if operation in _MODEL_OPERATIONS else False if operation in _OTHER_OPERATIONS else None


def _has_usage(span: SpanView) -> bool:
    return span.attributes.get(_OPERATION) in ("chat", "generate_content", "text_completion")


SEMCONV = Dialect(
    name="semconv",
    matches=executes_tool,
    markers=(_OPERATION,),
    tool_name=_name,
    not_a_tool={_OPERATION: _is_other_operation},
    identity=Identity(
        conversations=("gen_ai.conversation.id",),
        agent_markers=(_OPERATION,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        name_keys=("gen_ai.agent.name",),
        handed_by=HANDOFF_KEYS[:1],
        handed_to=hands_over(_OPERATION, "handoff", "agent_handoff"),
        handoff_markers=HANDOFF_KEYS,
    ),
    models=ModelCalls(
        is_call=_is_call,
        markers=("gen_ai.output.messages", "gen_ai.input.messages"),
        usage_markers=("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        has_usage=_has_usage,
        call_markers=(_OPERATION,),
        input_tokens=("gen_ai.usage.input_tokens",),
        output_tokens=("gen_ai.usage.output_tokens",),
        costs=("gen_ai.usage.cost",),
        names=("gen_ai.response.model", "gen_ai.request.model"),
        response_ids=("gen_ai.response.id",),
    ),
    messages=Messages(
        inputs=("gen_ai.input.messages",),
        outputs=("gen_ai.output.messages",),
        transcripts=("gen_ai.output.messages",),
        input_events=("gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message"),
        output_events=("gen_ai.choice",),
        tools=("gen_ai.tool.definitions",),
    ),
)


def _matches_named(span: SpanView) -> bool:
    """A tool name and arguments or a call id without an operation name: older or hand-written spans."""
    attributes = span.attributes
    return (
        "gen_ai.tool.name" in attributes
        and _OPERATION not in attributes
        and (
            "gen_ai.tool.call.id" in attributes
            or "tool_arguments" in attributes
            or span.name.startswith(("execute_tool", "running tool"))
        )
    )


def _agent_beside(span: SpanView) -> str | None:
    """An agent's name on a span that says nothing of its kind."""
    attributes = span.attributes
    if "gen_ai.agent.name" not in attributes or attributes.get(_OPERATION) is not None:
        return None
    return text_or_empty(attributes["gen_ai.agent.name"])


SEMCONV_NAMED = Dialect(
    name="semconv",
    matches=_matches_named,
    markers=("gen_ai.tool.name",),
    tool_name=_name,
    identity=Identity(
        sessions=("conversation.id", "thread.id.conversation"),
        agent_markers=("gen_ai.agent.name",),
        agent_name=_agent_beside,
    ),
)

UNPREFIXED = Dialect(name="semconv", messages=Messages(raw_inputs=("input",), raw_outputs=("output",)))
"""Attributes without a vendor's prefix, as Logfire and hand-written spans have them."""
