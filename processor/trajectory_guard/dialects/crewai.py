"""CrewAI: tool spans of OpenInference; under OpenLLMetry the messages of all tasks, on the span of the crew."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, RawCall, begins_with
from trajectory_guard.dialects.span import SpanView

_SCOPE: Final = "openinference.instrumentation.crewai"
_TOOL: Final = "tool.name"
_RESULT: Final = "output.value"
_UNKNOWN_TOOL: Final = "Tool not found"
_GLUE: Final = re.compile(
    r"\n{2,8}(?:You ONLY have access to the following tools|Tool \S{1,100} accepts these inputs:)"
)
"""CrewAI repeats the list of tools behind some results."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9_]+")


def _matches(span: SpanView) -> bool:
    return _TOOL in span.attributes and span.scope.startswith(_SCOPE)


def _tool_name(span: SpanView) -> str | None:
    """The name by which the model calls the tool: ``Delegate work to coworker`` is its title.

    CrewAI itself repeats a failing call up to three times before the model hears of it: that is one call.
    """
    attributes = span.attributes
    attempts, name = attributes.get("tool.run_attempts"), attributes.get(_TOOL)
    if not isinstance(name, str) or (isinstance(attempts, int) and attempts > 1 and span.status == "error"):
        return None
    return _NOT_IN_NAMES.sub("_", name.lower()).strip("_") or name


def _without_glue(span: SpanView, raw: RawCall) -> RawCall:
    if not isinstance(raw.result, str):
        return raw
    glue = _GLUE.search(raw.result)
    return raw if glue is None else RawCall(raw.call_id, raw.arguments, raw.result[: glue.start()])


CREWAI = Dialect(
    name="crewai",
    matches=_matches,
    markers=(_TOOL,),
    scopes=(_SCOPE,),
    tool_name=_tool_name,
    arguments=("input.value",),
    results=(_RESULT,),
    single_argument=True,
    empty_arguments=True,
    adjust=_without_glue,
    failed_when={_RESULT: _UNKNOWN_TOOL},
    refused_when={_RESULT: begins_with("Tool execution blocked by hook.")},
    identity=Identity(agents=("tool.agent_role",)),
    messages=Messages(transcripts=("crewai.crew.tasks_output",)),
)
