"""Langfuse SDK 3 to 5: LangChain callback handler and ``@observe(as_type="tool")``. The span name is the tool.

Its tracer for Haystack puts "tool - " before it, and writes the name alone into the metadata, as JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawUsage,
    first,
    json_object,
    json_text,
)
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "langfuse.observation.type"
_OF_HAYSTACK: Final = "langfuse.observation.metadata.haystack.tool.name"
_INPUT: Final = ("input", "input_tokens", "prompt_tokens")
_OUTPUT: Final = ("output", "output_tokens", "completion_tokens")
"""Langfuse's own names, and those of OpenAI's APIs, which its wrapper of the client hands through."""


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "tool"


def _tool_name(span: SpanView) -> str | None:
    named = span.attributes.get(_OF_HAYSTACK)
    name = json_text(named) or named
    return name if name and isinstance(name, str) and span.name.endswith(name) else span.name or None  # masked or not


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "agent"


def _agent_name(span: SpanView) -> str | None:
    return span.name if _is_agent(span) else None


def _is_call(span: SpanView) -> bool | None:
    kind = span.attributes.get(_TYPE)
    return kind == "generation" if _TYPE in span.attributes else None


def _usage(span: SpanView) -> RawUsage | None:
    tokens = json_object(span.attributes.get("langfuse.observation.usage_details"))
    cost = json_object(span.attributes.get("langfuse.observation.cost_details"))
    if not tokens:
        return None
    asked, answered = _with_parts(tokens, _INPUT), _with_parts(tokens, _OUTPUT)
    total = tokens.get("total")
    if isinstance(total, int) and isinstance(asked, int) and isinstance(answered, int) and asked + answered > total:
        asked, answered = first(tokens, _INPUT), first(tokens, _OUTPUT)  # somebody's own parts, which count already
    return RawUsage(asked, answered, cost.get("total"))


def _with_parts(tokens: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Tokens, with those that Langfuse counts separately.

    Its callback handler for LangChain takes what came from a cache out of ``input``, as ``input_cache_read``, and what
    the model thought out of ``output``, as ``output_reasoning``. ``…_priority`` is no such part, but a tier.
    """
    whole, prefix = tokens.get(names[0]), f"{names[0]}_"
    if not isinstance(whole, int):
        return first(tokens, names)
    parts = [key for key in tokens if key.startswith(prefix) and not key.startswith(f"{prefix}priority")]
    return whole + sum(tokens[key] for key in parts if key not in names and isinstance(tokens[key], int))


LANGFUSE = Dialect(
    name="langfuse",
    matches=_matches,
    markers=(_TYPE,),
    tool_name=_tool_name,
    arguments=("langfuse.observation.input",),
    results=("langfuse.observation.output",),
    failed_when={"langfuse.observation.level": "ERROR"},
    status_messages=("langfuse.observation.status_message",),
    identity=Identity(
        conversations=("langfuse.observation.metadata.thread_id", "langfuse.trace.metadata.thread_id"),
        sessions=("langfuse.session.id",),
        metadata_prefixes=("langfuse.observation.metadata.",),
        agent_markers=(_TYPE,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        graph_markers=("langfuse.trace.metadata.ls_integration",),
    ),
    models=ModelCalls(
        is_call=_is_call,
        call_markers=(_TYPE,),
        usage=_usage,
        usage_markers=("langfuse.observation.usage_details",),
        names=("langfuse.observation.model.name",),
    ),
    messages=Messages(
        inputs=("langfuse.observation.input",),
        outputs=("langfuse.observation.output",),
        transcripts=("langfuse.observation.output",),
        family_markers=(_TYPE,),
    ),
)
