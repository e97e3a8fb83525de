"""AgentOps: its decorators, its callbacks for LangChain, and calls as a model of OpenAI asks for them.

The latter are spans below that of the model, before the tool runs: what came back is unknown.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, is_one_of, named_by
from trajectory_guard.dialects.span import SpanView

_KIND: Final = "agentops.span.kind"
_TOOLS: Final = ("tool", "AgentOpsSpanKindValues.TOOL")


def _matches(span: SpanView) -> bool:
    return is_one_of(span.attributes.get(_KIND), _TOOLS)


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "agent"


_tool_named: Final = named_by("operation.name", suffixes=(".tool",))
_named: Final = named_by("operation.name", suffixes=(".agent",))


def _agent_name(span: SpanView) -> str | None:
    return _named(span) or "" if _is_agent(span) else None


def _tool_name(span: SpanView) -> str | None:
    names = (span.attributes.get(key) for key in ("langchain.tool.name", "tool.name"))
    return next((name for name in names if isinstance(name, str) and name), None) or _tool_named(span)


AGENTOPS = Dialect(
    name="agentops",
    matches=_matches,
    markers=(_KIND,),
    tool_name=_tool_name,
    arguments=("langchain.tool.input", "agentops.tool.input", "tool.parameters"),
    results=("langchain.tool.output", "agentops.tool.output"),
    call_ids=("tool.call.id",),
    identity=Identity(agent_markers=(_KIND,), is_agent=_is_agent, agent_name=_agent_name),
)
