"""Langfuse SDK 3 to 5: LangChain callback handler and ``@observe(as_type="tool")``. The span name is the tool."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, RawUsage, first, json_object
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "langfuse.observation.type"
_INPUT: Final = ("input", "input_tokens", "prompt_tokens")
_OUTPUT: Final = ("output", "output_tokens", "completion_tokens")
"""Langfuse's own names, and those of OpenAI's APIs, which its wrapper of the client hands through."""


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "tool"


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
    return RawUsage(first(tokens, _INPUT), first(tokens, _OUTPUT), cost.get("total")) if tokens else None


LANGFUSE = Dialect(
    name="langfuse",
    matches=_matches,
    markers=(_TYPE,),
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
