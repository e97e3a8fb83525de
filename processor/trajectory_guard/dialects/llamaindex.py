"""LlamaIndex under OpenLLMetry: the outer workflow task carries the call, the inner FunctionTool repeats it.

An agent is a workflow, with one span around each run, under OpenLLMetry and under OpenInference, whose own row reads
the calls. OpenInference writes all attributes of a span when it ends: until then the name alone shows a run.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages
from trajectory_guard.dialects.span import SpanView

_KIND: Final = "traceloop.span.kind"
_OTHER_KIND: Final = "openinference.span.kind"
_OTHER_SCOPE: Final = "openinference.instrumentation.llama_index"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "task" and (
        span.attributes.get("traceloop.entity.name") == "FunctionTool.task" or "tool.name" in span.attributes
    )


def _tool_name(span: SpanView) -> str | None:
    name = span.attributes.get("tool.name")
    return name if isinstance(name, str) else None  # FunctionTool.task: inner duplicate


def _is_run(span: SpanView) -> bool:
    """``FunctionAgent.workflow``: one run of an agent, of several agents, or of a workflow."""
    return span.scope == "opentelemetry.instrumentation.llamaindex" and span.attributes.get(_KIND) == "workflow"


def _agent_of_run(span: SpanView) -> str | None:
    """``FunctionAgent.run``, as above: the span does not say which agent is at work."""
    return "" if span.name.endswith(".run") and span.attributes.get(_OTHER_KIND, "CHAIN") == "CHAIN" else None


LLAMAINDEX = Dialect(
    name="openllmetry",
    matches=_matches,
    markers=(_KIND,),
    tool_name=_tool_name,
    identity=Identity(agent_markers=(_KIND,), is_agent=_is_run),
    messages=Messages(workflow_outputs=("traceloop.entity.output",)),
)
LLAMAINDEX_RUNS = Dialect(
    name="openinference", scopes=(_OTHER_SCOPE,), identity=Identity(agent_by_span_name=_agent_of_run)
)
