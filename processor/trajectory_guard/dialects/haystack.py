"""Haystack with its own tracer: a span a tool call, and a span for a person's decision, which names the call's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    RawUsage,
    is_span,
    json_object,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_TOOL: Final = "haystack.tool.name"
_AGENT: Final = "haystack.agent.max_steps"
_COMPONENT: Final = "haystack.component.name"
_MODEL: Final = "haystack.agent.step.llm"
_SENT, _ANSWERED = f"{_MODEL}.input", f"{_MODEL}.output"
_DECISION: Final = "haystack.agent.hook.human_in_the_loop.strategy"
_DECIDED: Final = f"{_DECISION}.decision"


def _matches(span: SpanView) -> bool:
    """A call, or the refusal that stands in its place; a call that a person allows has a span of its own."""
    return _TOOL in span.attributes and (span.name != _DECISION or span.attributes.get(_DECIDED) == "reject")


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    if span.name != _DECISION:
        return raw
    asked, decided = (json_object(span.attributes.get(f"{_DECISION}.{end}")) for end in ("input", "output"))
    return RawCall(raw.call_id, asked.get("tool_params"), decided.get("feedback"))


def _is_agent(span: SpanView) -> bool:
    return _AGENT in span.attributes


def _agent_name(span: SpanView) -> str | None:
    """Agents have no names of their own: the name that a pipeline gives to its component stands for them."""
    if span.attributes.get("haystack.component.type") != "Agent":
        return None
    return text_or_empty(span.attributes.get(_COMPONENT))


def _usage(span: SpanView) -> RawUsage | None:
    """Tokens stand in the metadata of the reply, if content is on."""
    replies = json_object(span.attributes.get(_ANSWERED)).get("replies")
    meta = replies[0].get("meta") if isinstance(replies, list) and replies and isinstance(replies[0], Mapping) else None
    usage: Any = meta.get("usage") if isinstance(meta, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    return RawUsage(
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
    )


HAYSTACK = Dialect(
    name="haystack",
    matches=_matches,
    markers=(_TOOL,),
    tool_name=named_by(_TOOL),
    arguments=("haystack.agent.step.tool.input",),
    results=("haystack.agent.step.tool.output",),
    call_ids=("haystack.tool.call.id",),
    adjust=_adjust,
    failed_when={"haystack.tool.error": True},
    refused_when={_DECIDED: lambda decision: bool(decision == "reject")},
    identity=Identity(
        agent_markers=(_AGENT, _COMPONENT), is_agent=_is_agent, agent_name=_agent_name, name_keys=(_COMPONENT,)
    ),
    models=ModelCalls(is_call=is_span(_MODEL), usage_markers=(_ANSWERED,), usage=_usage),
    messages=Messages(inputs=(_SENT,), outputs=(_ANSWERED,), family_markers=(_ANSWERED,)),
)
