"""OpenLLMetry (Traceloop): LangChain wrapper, OpenAI Agents, clients of models, SDK decorators, MCP; up to 0.62.

Its LangChain.js wrapper (``@traceloop/instrumentation-langchain``) writes the class of a tool where its name belongs.

Before 0.50 model calls have no operation name: ``llm.request.type`` shows them, or the messages, which are spread over
attributes. The first versions have the messages and tokens under ``llm.`` instead of ``gen_ai.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    HANDOFF_KEYS,
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    RawUsage,
    first,
    hands_over,
    json_object,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_KIND = "traceloop.span.kind"
_INPUT = "traceloop.entity.input"
_REQUEST_TYPE: Final = "llm.request.type"
_MESSAGE_KEYS: Final = (
    "gen_ai.completion.0.role", "gen_ai.completion.0.content", "gen_ai.prompt.0.role",
    "gen_ai.completion.0.tool_calls.0.name", "llm.completions.0.role", "llm.completions.0.content",
    "llm.prompts.0.role",
)  # fmt: skip


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "tool"


def _empty_result(span: SpanView) -> bool:
    return "traceloop.entity.output" not in span.attributes and span.scope.endswith(".mcp.instrumentation")


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "agent"


def _agent_name(span: SpanView) -> str | None:
    if not _is_agent(span):
        return None
    return text_or_empty(span.attributes.get("gen_ai.agent.name") or span.attributes.get("traceloop.entity.name"))


def _wrapped_metadata(span: SpanView) -> Mapping[str, Any]:
    """Versions before 0.50 keep LangGraph's metadata inside the input wrapper only."""
    text = span.attributes.get(_INPUT)
    if not isinstance(text, str) or not text.startswith('{"input_str"') or "gen_ai.operation.name" in span.attributes:
        return {}
    metadata = json_object(text).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _may_be_call(span: SpanView) -> bool | None:
    attributes = span.attributes
    request = attributes.get(_REQUEST_TYPE)
    if request in ("chat", "completion"):
        return True
    if request in ("embedding", "rerank") or _KIND in attributes:
        return False
    return True if any(key in attributes for key in _MESSAGE_KEYS) else None  # the Responses API has no type


def _in_family(span: SpanView) -> bool:
    return _REQUEST_TYPE in span.attributes or any(key in span.attributes for key in _MESSAGE_KEYS)


OPENLLMETRY = Dialect(
    name="openllmetry",
    matches=_matches,
    markers=(_KIND,),
    tool_name=named_by(
        "gen_ai.tool.name", "traceloop.entity.name", prefixes=("execute_tool ",), suffixes=(".tool", ".mcp")
    ),
    empty_result=_empty_result,
    failed_when={"gen_ai.task.status": "failure"},
    identity=Identity(
        conversations=(
            "traceloop.association.properties.thread_id",
            "traceloop.association.properties.session_id",
            "traceloop.association.properties.conversation_id",
        ),
        metadata_prefixes=("traceloop.association.properties.",),
        wrapped_metadata=_wrapped_metadata,
        wrapped_in=_INPUT,
        agent_markers=(_KIND,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        graph_scopes=("opentelemetry.instrumentation.langchain",),
        handed_by=HANDOFF_KEYS[:1],
        handed_to=hands_over(_KIND, "handoff"),
        handoff_markers=HANDOFF_KEYS,
    ),
    models=ModelCalls(
        may_be_call=_may_be_call,
        markers=_MESSAGE_KEYS,
        call_markers=(_REQUEST_TYPE, *_MESSAGE_KEYS),
        usage_markers=(_REQUEST_TYPE, *_MESSAGE_KEYS),
        input_tokens=("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
        output_tokens=("gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
        names=("llm.response.model", "llm.request.model"),
    ),
    messages=Messages(
        inputs=("gen_ai.prompt.", "llm.prompts."),
        outputs=("gen_ai.completion.", "llm.completions."),
        raw_outputs=("traceloop.entity.output",),
        transcripts=("traceloop.entity.output",),
        input_events=("gen_ai.content.prompt",),
        output_events=("gen_ai.content.completion",),
        tools=("llm.request.functions.",),
        family_markers=(_KIND,),
        in_family=_in_family,
    ),
)  # fmt: skip


_OUTPUT: Final = "traceloop.entity.output"
_JS_SCOPE: Final = "@traceloop/instrumentation-langchain"


def _matches_js(span: SpanView) -> bool:
    return span.scope == _JS_SCOPE and span.attributes.get("gen_ai.operation.name") == "execute_tool"


def _name_in_message(span: SpanView) -> str | None:
    """The tool's name from its message, which a call that raised has not: then that of its class."""
    message = json_object(span.attributes.get(_OUTPUT)).get("kwargs")
    name = message.get("name") if isinstance(message, Mapping) else None
    return text_or_empty(name) or text_or_empty(span.attributes.get("traceloop.entity.name")) or None


def _without_list(span: SpanView, raw: RawCall) -> RawCall:
    """``{"args": ["…"]}``: the arguments as text, alone in a list."""
    found = json_object(raw.arguments)
    args = found.get("args") if found.keys() == {"args"} else None
    return raw._replace(arguments=args[0]) if isinstance(args, list) and len(args) == 1 else raw


OPENLLMETRY_JS = Dialect(
    name="openllmetry",
    matches=_matches_js,
    markers=(_KIND,),
    scopes=(_JS_SCOPE,),
    tool_name=_name_in_message,
    arguments=(_INPUT,),
    results=(_OUTPUT,),
    adjust=_without_list,
)


_GEMINI: Final = ("opentelemetry.instrumentation.google_generativeai", "opentelemetry.instrumentation.vertexai")
_ASKED: Final = "gen_ai.usage.input_tokens"  # the first versions had another key
_TOTALS: Final = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")


def _has_total_of_gemini(span: SpanView) -> bool:
    return span.scope in _GEMINI and _ASKED in span.attributes and first(span.attributes, _TOTALS) is not None


def _usage_of_gemini(span: SpanView) -> RawUsage:
    """The tokens of the answer leave out what the model thought; the total includes it."""
    attributes = span.attributes
    asked, answered = attributes.get(_ASKED), attributes.get("gen_ai.usage.output_tokens")
    total = first(attributes, _TOTALS)
    if isinstance(total, int) and isinstance(asked, int):
        answered = max(total - asked, answered if isinstance(answered, int) else 0)
    return RawUsage(asked, answered)


OPENLLMETRY_GEMINI = Dialect(
    name="openllmetry",
    models=ModelCalls(
        usage=_usage_of_gemini, usage_markers=_TOTALS, has_usage=_has_total_of_gemini, call_markers=_TOTALS
    ),
)
