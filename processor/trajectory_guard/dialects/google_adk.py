"""Google ADK: its own spans, and those of OpenInference, which replaces them.

Schema 2 follows the semantic conventions; schema 1, that of ADK 1.x, has content under keys of its own. Up to 1.14 the
spans of agents have no attributes: the name of the agent stands in the name of the span. ADK for Java writes schema 1,
with another key of the call's id, and what it tells the model of a tool that raised instead of an error.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawCall,
    RawUsage,
    json_object,
    named_by,
)
from trajectory_guard.dialects.span import SpanView

_SCOPES: Final = ("gcp.vertex.agent", "openinference.instrumentation.google_adk")
_REQUEST: Final = "gcp.vertex.agent.llm_request"
_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
_RESULTS: Final = ("gcp.vertex.agent.tool_response", "gen_ai.tool.call.result", "output.value")
_ABSENT: Final = "<not specified>"
_AGENT_RUN: Final = "agent_run ["
_MERGED: Final = ("(merged tools)",)
"""Name of the span that ends a batch of parallel calls, each of which has a span of its own."""
_HIDDEN: Final = "{}"
_OF_RAISED: Final = {"status", "message"}
"""Keys of what ADK for Java answers in place of a tool that raised."""
_OF_ERROR: Final = {"error"}
_ASKING: Final = "This tool call requires confirmation, please approve or reject."
"""Result of a call that must be confirmed. The same call is made again with the decision, in the next trace."""


def _matches(span: SpanView) -> bool:
    return span.scope in _SCOPES and span.attributes.get("gen_ai.operation.name") == "execute_tool"


def _response(written: Any) -> Any:
    """The result of a call: OpenInference wraps it together with name and id, ADK in ``{"result": …}``."""
    found = json_object(written)
    if found.keys() >= {"name", "response"} and found.keys() <= {"id", "name", "response"}:
        written = found["response"]
        found = json_object(written)
    if found.keys() == {"result"} and found["result"] == _ABSENT:
        return None
    return written


def _is_raised(response: Any) -> bool:
    """ADK 1.x says of a tool that raised, or was refused, no more than this; ADK 2 calls it an error as well."""
    found = json_object(response)
    if found.keys() == _OF_ERROR:
        return bool(found["error"])
    return found.keys() == _OF_RAISED and found["status"] == "error"


def _asks(response: Any) -> bool:
    return json_object(response).get("error") == _ASKING


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    call_id = None if raw.call_id == _ABSENT else raw.call_id
    if raw.arguments == raw.result == _HIDDEN and _ARGUMENTS in span.attributes:
        return RawCall(call_id)  # content is off in schema 1: with it a result has at least one key
    result = _response(raw.result)
    handed_over = span.attributes.get("gen_ai.tool.name") == "transfer_to_agent"
    if _asks(result) or (handed_over and json_object(result) == {"result": None}):
        result = None  # a question to a person, or a hand-off: no result of a tool
    elif _is_raised(result):
        result = {"result": result, "is_error": True}
    return RawCall(call_id, raw.arguments, result)


def _awaits_approval(span: SpanView) -> bool:
    return _matches(span) and any(_asks(_response(span.attributes.get(key))) for key in _RESULTS)


def _agent_in_name(span: SpanView) -> str | None:
    """``agent_run [researcher]`` is a run of the researcher."""
    name = span.name
    return name[len(_AGENT_RUN) : -1] if name.startswith(_AGENT_RUN) and name[-1] == "]" else None


def _has_usage(span: SpanView) -> bool:
    """In schema 1 two spans report a model call, one within the other; the outer one has the messages."""
    return span.scope == _SCOPES[0] and (_REQUEST in span.attributes or "gen_ai.system" in span.attributes)


def _usage(span: SpanView) -> RawUsage | None:
    attributes = span.attributes
    if _REQUEST not in attributes or attributes.get("gen_ai.operation.name") is not None:
        return None
    return RawUsage(attributes.get("gen_ai.usage.input_tokens"), attributes.get("gen_ai.usage.output_tokens"))


GOOGLE_ADK = Dialect(
    name="google_adk",
    matches=_matches,
    markers=("gen_ai.operation.name",),
    scopes=_SCOPES,
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    arguments=("gen_ai.tool.call.arguments", _ARGUMENTS),
    results=("gen_ai.tool.call.result", _RESULTS[0]),
    call_ids=("gen_ai.tool_call.id",),
    empty_arguments=True,
    adjust=_adjust,
    not_a_tool={"gen_ai.tool.name": _MERGED.__contains__},
    awaits_approval=_awaits_approval,
    identity=Identity(sessions=("gcp.vertex.agent.session_id",), agent_by_span_name=_agent_in_name, resumes=True),
    models=ModelCalls(
        markers=(_REQUEST,), has_usage=_has_usage, call_markers=(_REQUEST, "gen_ai.system"), usage=_usage
    ),
    messages=Messages(
        raw_inputs=(_REQUEST,),
        raw_outputs=("gcp.vertex.agent.llm_response",),
        family_markers=("gcp.vertex.agent.event_id",),
    ),
)
