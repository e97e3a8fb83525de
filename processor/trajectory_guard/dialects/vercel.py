"""The Vercel AI SDK: ``ai.*`` attributes, as v4 to v6 write them, and v7 with ``LegacyOpenTelemetry``.

The spans of v7 follow the semantic conventions; only the metadata of the application stands under a key of the vendor.

`@arizeai/openinference-vercel` adds OpenInference's attributes to the spans of all versions. With the SDK 2 of
OpenTelemetry it writes the first error of a trace into every span of the trace that ends after it. `@sentry/node`
renames the name and the id of a tool call to those of the semantic conventions, and leaves arguments and result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    executes_tool,
    is_one_of,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_OPERATION: Final = "ai.operationId"
_TOOL: Final = "ai.toolCall.name"
_ARGUMENTS: Final = "ai.toolCall.args"
_RESULT: Final = "ai.toolCall.result"
_CALL: Final = (_TOOL, _ARGUMENTS, _RESULT)
_AGENT: Final = "ai.telemetry.functionId"
_KIND: Final = "openinference.span.kind"
_SCOPE_7: Final = "gen_ai"
_LOOPS: Final = ("ai.generateText", "ai.streamText")
"""Operations that call the model until it asks for no tool: one run of an agent. The calls have a suffix."""
_METADATA: Final = ("ai.telemetry.metadata", "ai.settings.context")
_CONVERSATION_NAMES: Final = ("conversationId", "threadId", "chatId", "sessionId", "thread_id", "session_id")
"""The SDK has no notion of a conversation; these are the names that applications give it in their metadata."""


def _matches(span: SpanView) -> bool:
    return any(key in span.attributes for key in _CALL)


def _succeeded(span: SpanView) -> bool:
    """An error that is not of this call: what the call itself raises is an event of its span."""
    return _KIND in span.attributes and not any(event.name == "exception" for event in span.events)


def _empty_result(span: SpanView) -> bool:
    """``recordOutputs`` hides arguments and result together: beside arguments an absent result is ``undefined``."""
    return _matches(span)


def _is_agent(span: SpanView) -> bool:
    return is_one_of(span.attributes.get(_OPERATION), _LOOPS)


def _agent_name(span: SpanView) -> str | None:
    return text_or_empty(span.attributes.get(_AGENT)) if _is_agent(span) else None


def _is_call(span: SpanView) -> bool | None:
    operation = span.attributes.get(_OPERATION)
    return None if operation is None else text_or_empty(operation).endswith((".doGenerate", ".doStream"))


def _answer(attributes: Mapping[str, Any]) -> Any:
    """Text and calls of an answer stand in attributes of their own."""
    text, calls = attributes.get("ai.response.text"), attributes.get("ai.response.toolCalls")
    return None if text is None and calls is None else [{"role": "assistant", "content": text, "tool_calls": calls}]


VERCEL = Dialect(
    name="vercel",
    matches=_matches,
    markers=_CALL,
    tool_name=named_by(_TOOL, "gen_ai.tool.name"),
    arguments=(_ARGUMENTS,),
    results=(_RESULT,),
    call_ids=("ai.toolCall.id", "gen_ai.tool.call.id"),
    empty_result=_empty_result,
    succeeded=_succeeded,
    identity=Identity(
        sessions=tuple(f"{prefix}.{name}" for name in _CONVERSATION_NAMES for prefix in _METADATA),
        agents=(_AGENT,),
        agent_markers=(_OPERATION,),
        is_agent=_is_agent,
        agent_name=_agent_name,
    ),
    models=ModelCalls(
        is_call=_is_call, call_markers=(_OPERATION,),
        markers=("ai.response.toolCalls", "ai.prompt.messages"),
        response_ids=("ai.response.id",),
    ),
    messages=Messages(
        raw_inputs=("ai.prompt.messages",),
        assemble_output=_answer,
        tools=("ai.prompt.tools",),
        family_markers=(_OPERATION,),
    ),
)  # fmt: skip


def _matches_openinference(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "TOOL" and executes_tool(span)


VERCEL_OPENINFERENCE = Dialect(
    name="openinference",
    matches=_matches_openinference,
    markers=(_KIND,),
    scopes=(_SCOPE_7,),
    tool_name=named_by("gen_ai.tool.name", "tool.name"),
    succeeded=_succeeded,
)
