"""Logfire: the OpenAI Agents integration, whose spans are recognised by their message template, and model clients."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    named_by,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_TEMPLATE = "logfire.msg_template"
_ERROR_LEVEL: Final = 17
"""Logfire turns it into the status of a span on the way to its exporters: other processors see none."""


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TEMPLATE) == "Function: {name}"


def _drop_nulls(span: SpanView, raw: RawCall) -> RawCall:
    """``null`` is how Logfire writes what it did not capture."""
    return RawCall(raw.call_id, *(None if value == "null" else value for value in (raw.arguments, raw.result)))


def _is_agent(span: SpanView) -> bool:
    return str(span.attributes.get(_TEMPLATE, "")).startswith("Agent run: ")


def _agent_name(span: SpanView) -> str | None:
    if not _is_agent(span):
        return None
    return text_or_empty(span.attributes.get("name") or span.attributes.get("agent_name"))


def _handed_to(span: SpanView) -> str | None:
    is_handoff = str(span.attributes.get(_TEMPLATE, "")).lower().startswith("handoff")
    return text_or_empty(span.attributes.get("to_agent")) if is_handoff else None


LOGFIRE = Dialect(
    name="logfire",
    matches=_matches,
    markers=(_TEMPLATE,),
    tool_name=named_by("name"),
    arguments=("input",),
    results=("output",),
    adjust=_drop_nulls,
    copies={"logfire.span_type": "pending_span"},
    failed_when={"logfire.level_num": _ERROR_LEVEL},
    identity=Identity(
        sessions=("group_id",),
        agent_markers=(_TEMPLATE,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        handed_by=("from_agent",),
        handed_to=_handed_to,
        handoff_markers=("to_agent",),
    ),
    models=ModelCalls(costs=("operation.cost",)),
    messages=Messages(family_markers=(_TEMPLATE,)),
)


def _may_be_call(span: SpanView) -> bool | None:
    template = str(span.attributes.get(_TEMPLATE, ""))[:20].lower()
    return True if template.startswith(("chat completion", "responses api", "message with")) else None


LOGFIRE_CLIENTS = Dialect(
    name="logfire",
    models=ModelCalls(may_be_call=_may_be_call, call_markers=(_TEMPLATE,)),
    messages=Messages(raw_inputs=("request_data",), raw_outputs=("response_data",)),
)
