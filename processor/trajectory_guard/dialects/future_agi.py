"""Future AGI (traceAI): the kinds of OpenInference under a key with the prefix of the conventions.

Of LangChain, a lone text argument is written without its name, as JSON, and so is the absence of arguments; the result
is the repr of the message within an object.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    json_object,
    json_text,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_KIND: Final = "gen_ai.span.kind"
_SCOPE: Final = "traceai"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "TOOL"


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    text, written = json_text(raw.arguments), json_object(raw.result)
    given = raw.arguments if text is None else text or {}
    is_message = written.keys() == {"output"} and text_or_empty(written["output"]).startswith("content=")
    return RawCall(raw.call_id, given, written["output"] if is_message else raw.result)


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "AGENT" and span.scope.startswith(_SCOPE)


def _agent_name(span: SpanView) -> str | None:
    return text_or_empty(span.attributes.get("graph.node.id")) or span.name if _is_agent(span) else None


def _is_call(span: SpanView) -> bool | None:
    return span.attributes.get(_KIND) == "LLM" if span.scope.startswith(_SCOPE) else None


FUTURE_AGI = Dialect(
    name="future_agi",
    matches=_matches,
    markers=(_KIND,),
    scopes=(_SCOPE,),
    tool_name=named_by("gen_ai.tool.name"),
    arguments=("input.value",),
    results=("output.value",),
    single_argument=True,
    empty_arguments=True,
    adjust=_adjust,
    identity=Identity(
        agent_markers=(_KIND,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        graph_scopes=("traceai_langchain",),
    ),
    models=ModelCalls(is_call=_is_call, call_markers=(_KIND,)),
    messages=Messages(family_markers=(_KIND,)),
)
