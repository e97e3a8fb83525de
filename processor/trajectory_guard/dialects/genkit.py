"""Genkit: a span an action. In JavaScript each answer of the model is generated within the one before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawUsage,
    is_one_of,
    json_object,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "genkit:type"
_KIND: Final = "genkit:metadata:subtype"
_NAME: Final = "genkit:name"
_PATH: Final = "genkit:path"
_INPUT: Final = "genkit:input"
_OUTPUT: Final = "genkit:output"
_INTERRUPT: Final = "genkit:metadata:interrupt"
_TOOLS: Final = ("tool", "tool.v2")
_LOOP: Final = "/{generate,t:util}"
"""End of the path of a span that generates an answer, with all tool calls on the way to it."""


def _matches(span: SpanView) -> bool:
    return is_one_of(span.attributes.get(_KIND), _TOOLS)


def _returned_nothing(span: SpanView) -> bool:
    """``undefined`` is left out; content is never hidden."""
    return _INPUT in span.attributes and not _interrupts(span)


def _interrupts(span: SpanView) -> bool:
    """A tool that asks a person raises; the answer follows as its result, without a span."""
    if not _matches(span):
        return False
    raised = (one.attributes.get("exception.type") for one in span.events)
    return _INTERRUPT in span.attributes or "ToolInterruptError" in raised


def _is_agent(span: SpanView) -> bool:
    """An agent, or the outermost generation."""
    if span.attributes.get(_KIND) == "agent":
        return True
    path = text_or_empty(span.attributes.get(_PATH))
    return path.endswith(_LOOP) and not path.endswith(_LOOP + _LOOP)


def _agent_name(span: SpanView) -> str | None:
    return text_or_empty(span.attributes.get(_NAME)) if span.attributes.get(_KIND) == "agent" else None


def _is_call(span: SpanView) -> bool | None:
    return span.attributes.get(_KIND) == "model" if _TYPE in span.attributes else None


def _usage(span: SpanView) -> RawUsage | None:
    """Tokens stand in the answer."""
    usage: Any = json_object(span.attributes.get(_OUTPUT)).get("usage")
    return RawUsage(usage.get("inputTokens"), usage.get("outputTokens")) if isinstance(usage, Mapping) else None


GENKIT = Dialect(
    name="genkit",
    matches=_matches,
    markers=(_KIND,),
    tool_name=named_by(_NAME),
    arguments=(_INPUT,),
    results=(_OUTPUT,),
    empty_result=_returned_nothing,
    awaits_approval=_interrupts,
    identity=Identity(
        conversations=("genkit:metadata:agent:sessionId",),
        agent_markers=(_TYPE,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        name_keys=(_NAME,),
    ),
    models=ModelCalls(is_call=_is_call, call_markers=(_KIND,), usage_markers=(_KIND,), usage=_usage, names=(_NAME,)),
    messages=Messages(raw_inputs=(_INPUT,), raw_outputs=(_OUTPUT,), tools=(_INPUT,), family_markers=(_TYPE,)),
)
