"""Agents of Amazon Bedrock under OpenInference, which makes spans of the trace that such an agent sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import Dialect, Identity, RawCall, json_object, text_or_empty, written
from trajectory_guard.dialects.span import SpanView

_SCOPES: Final = ("openinference.instrumentation.bedrock",)
_KIND: Final = "openinference.span.kind"
_GROUP, _VERB, _PATH = "action_group_name", "verb", "api_path"
_COLLABORATOR: Final = "agent_collaborator_name"


def _metadata(span: SpanView) -> Mapping[str, Any]:
    return json_object(span.attributes.get("metadata"))


def _matches(span: SpanView) -> bool:
    return span.scope in _SCOPES and span.attributes.get(_KIND) == "TOOL"


def _tool_name(span: SpanView) -> str | None:
    """A function as the model knows it, with its action group; an action of an OpenAPI schema by verb and path."""
    name, metadata = text_or_empty(span.attributes.get("tool.name")), _metadata(span)
    if not name:
        return " ".join(written(metadata[key]) for key in (_VERB, _PATH) if metadata.get(key)) or None
    return f"{written(metadata[_GROUP])}__{name}" if metadata.get(_GROUP) else name


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    """Parameters are a list of names and values; those of the code interpreter describe it."""
    if _GROUP not in _metadata(span):
        return raw
    try:
        listed: Any = parse_json(text_or_empty(span.attributes.get("tool.parameters")))
    except (ValueError, RecursionError):
        return raw
    known = isinstance(listed, list) and all(isinstance(one, Mapping) and "name" in one for one in listed)
    return raw._replace(arguments={str(one["name"]): one.get("value") for one in listed} if known else None)


def _agent_name(span: SpanView) -> str | None:
    """Only agents that another agent calls have names."""
    if span.scope not in _SCOPES or span.attributes.get(_KIND) != "AGENT":
        return None
    return text_or_empty(_metadata(span).get(_COLLABORATOR))


BEDROCK = Dialect(
    name="openinference",
    matches=_matches,
    markers=(_KIND,),
    scopes=_SCOPES,
    tool_name=_tool_name,
    arguments=("input.value",),
    results=("output.value",),
    single_argument=True,
    adjust=_adjust,
    identity=Identity(agent_markers=(_KIND,), agent_name=_agent_name),
)
