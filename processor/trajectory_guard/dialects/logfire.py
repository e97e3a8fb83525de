"""Logfire: the OpenAI Agents integration, whose spans are recognised by their message template, and model clients.

Further integrations: that of MCP writes request and response of the protocol, that of the Claude Agent SDK follows the
conventions, but for the text of an error in place of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    executes_tool,
    json_object,
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
    return text_or_empty(span.attributes.get(_TEMPLATE)).startswith("Agent run: ")


def _agent_name(span: SpanView) -> str | None:
    if not _is_agent(span):
        return None
    return text_or_empty(span.attributes.get("name") or span.attributes.get("agent_name"))


def _handed_to(span: SpanView) -> str | None:
    is_handoff = text_or_empty(span.attributes.get(_TEMPLATE)).lower().startswith("handoff")
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
    template = text_or_empty(span.attributes.get(_TEMPLATE))[:20].lower()
    return True if template.startswith(("chat completion", "responses api", "message with")) else None


LOGFIRE_CLIENTS = Dialect(
    name="logfire",
    models=ModelCalls(may_be_call=_may_be_call, call_markers=(_TEMPLATE,)),
    messages=Messages(raw_inputs=("request_data",), raw_outputs=("response_data",)),
)


_REQUEST: Final = "request"


def _params(span: SpanView) -> Mapping[str, Any]:
    params = json_object(span.attributes.get(_REQUEST)).get("params")
    return params if isinstance(params, Mapping) else {}


def _matches_mcp(span: SpanView) -> bool:
    return span.attributes.get("rpc.method") == "tools/call"


def _tool_name_mcp(span: SpanView) -> str | None:
    return text_or_empty(_params(span).get("name")) or span.name.partition("tools/call ")[2] or None


def _adjust_mcp(span: SpanView, raw: RawCall) -> RawCall:
    return RawCall(raw.call_id, _params(span).get("arguments"), span.attributes.get("response"))


LOGFIRE_MCP = Dialect(
    name="mcp",
    matches=_matches_mcp,
    markers=("rpc.jsonrpc.version",),
    scopes=("logfire.mcp",),
    tool_name=_tool_name_mcp,
    adjust=_adjust_mcp,
    messages=Messages(no_transcript=("rpc.jsonrpc.version",)),
)

_CLAUDE_SCOPE: Final = "logfire.claude_agent_sdk"


def _adjust_claude(span: SpanView, raw: RawCall) -> RawCall:
    error = span.attributes.get("error.type")
    return raw if error is None or raw.result is not None else raw._replace(result={"result": error, "is_error": True})


def _awaits_approval(span: SpanView) -> bool:
    """A call that was not made, as somebody or a hook denied it: only the messages say so."""
    return span.scope == _CLAUDE_SCOPE and span.status != "error" and "error.type" not in span.attributes


LOGFIRE_CLAUDE = Dialect(
    name="logfire",
    matches=executes_tool,
    markers=("gen_ai.operation.name",),
    scopes=(_CLAUDE_SCOPE,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_adjust_claude,
    awaits_approval=_awaits_approval,
)
