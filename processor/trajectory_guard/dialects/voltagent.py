"""VoltAgent: every span names the run of the agent that it belongs to."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, first, named_by, written
from trajectory_guard.dialects.span import SpanView

_KIND: Final = "span.type"
_RUN: Final = "operation.id"
_AGENTS: Final = ("subagent.name", "entity.name")
"""Within a sub-agent the entity is still the agent that runs outermost."""
_USAGE: Final = "llm.usage.prompt_tokens"
"""Tokens of the last step of a run; the span of the agent, which is no model call, has the total."""


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "tool" and _RUN in span.attributes


def _returned_nothing(span: SpanView) -> bool:
    """``undefined`` is left out."""
    return "input" in span.attributes


def _is_agent(span: SpanView) -> bool:
    attributes = span.attributes
    return attributes.get("entity.type") == "agent" and _RUN in attributes and _KIND not in attributes


def _agent_name(span: SpanView) -> str | None:
    return written(first(span.attributes, _AGENTS) or "") if _is_agent(span) else None


def _is_call(span: SpanView) -> bool | None:
    return span.attributes[_KIND] == "llm" if _KIND in span.attributes and _RUN in span.attributes else None


VOLTAGENT = Dialect(
    name="voltagent",
    matches=_matches,
    markers=(_KIND,),
    tool_name=named_by("tool.name", prefixes=("tool.execution:",)),
    arguments=("input",),
    results=("output",),
    call_ids=("tool.call.id",),
    empty_result=_returned_nothing,
    identity=Identity(
        conversations=("conversation.id",),
        agents=_AGENTS,
        agent_markers=("entity.type",),
        is_agent=_is_agent,
        agent_name=_agent_name,
        name_keys=_AGENTS,
    ),
    models=ModelCalls(is_call=_is_call, call_markers=(_KIND,), usage_markers=(_USAGE,), names=("llm.model",)),
    messages=Messages(family_markers=("voltagent.operation_id",)),
)
