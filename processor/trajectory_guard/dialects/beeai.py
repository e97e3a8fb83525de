"""BeeAI: tool spans of OpenInference, with the arguments of the call inside those of the method that runs the tool."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, RawCall, json_object, named_by
from trajectory_guard.dialects.span import SpanView

_SCOPE: Final = "openinference.instrumentation.beeai"
_TOOL: Final = "tool.name"


def _matches(span: SpanView) -> bool:
    return _TOOL in span.attributes and span.scope == _SCOPE


def _unwrap(span: SpanView, raw: RawCall) -> RawCall:
    """``{"input": …, "options": …}``: the model sent the input."""
    found = json_object(raw.arguments)
    return raw._replace(arguments=found["input"]) if found.keys() == {"input", "options"} else raw


BEEAI = Dialect(
    name="beeai",
    matches=_matches,
    markers=(_TOOL,),
    scopes=(_SCOPE,),
    tool_name=named_by(_TOOL),
    arguments=("input.value",),
    results=("output.value",),
    adjust=_unwrap,
)
