"""DSPy: tool spans of OpenInference without the attribute that names the tool: its name stands in that of the span."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, named_by
from trajectory_guard.dialects.span import SpanView

_KIND: Final = "openinference.span.kind"
_SCOPE: Final = "openinference.instrumentation.dspy"
_LOOPS: Final = ("ReAct.forward", "ReAct.aforward", "CodeAct.forward", "CodeAct.aforward")
"""Modules that call tools until they have an answer."""


def _matches(span: SpanView) -> bool:
    return span.scope == _SCOPE and span.attributes.get(_KIND) == "TOOL"


def _is_agent(span: SpanView) -> bool:
    return span.scope == _SCOPE and span.name in _LOOPS


DSPY = Dialect(
    name="dspy",
    matches=_matches,
    markers=(_KIND,),
    scopes=(_SCOPE,),
    tool_name=named_by("tool.name", suffixes=(".__call__", ".acall")),
    arguments=("input.value",),
    results=("output.value",),
    identity=Identity(agent_markers=(_KIND,), is_agent=_is_agent),
)
