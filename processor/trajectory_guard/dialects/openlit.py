"""OpenLIT: semantic conventions with Python reprs, and a run id in place of the call id where a call failed.

Of the OpenAI Agents SDK it presents everything as an agent that is neither a model call nor a tool: runs, turns, and
hand-offs, which name their agents when they end.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from trajectory_guard.dialects.base import Dialect, Identity, Messages, RawCall, named_by, text_or_empty
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.scope.startswith("openlit") and span.attributes.get("gen_ai.operation.name") == "execute_tool"


def _drop_run_id(span: SpanView, raw: RawCall) -> RawCall:
    try:
        UUID(str(raw.call_id))
    except ValueError:
        return raw
    return raw._replace(call_id=None)


def _in_family(span: SpanView) -> bool:
    return span.scope.startswith("openlit")


_SDK: Final = "openlit.instrumentation.openai_agents"
_FROM: Final = "gen_ai.agent.source"


def _no_agent(span: SpanView) -> bool:
    """A turn or a run of the SDK, which has no name, or a hand-off."""
    return span.scope == _SDK and (span.name == "invoke_agent" or _FROM in span.attributes)


def _handed_to(span: SpanView) -> str | None:
    return text_or_empty(span.attributes.get("gen_ai.agent.name")) if span.scope == _SDK else None


OPENLIT = Dialect(
    name="openlit",
    matches=_matches,
    markers=("gen_ai.operation.name",),
    scopes=("openlit",),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_drop_run_id,
    identity=Identity(no_agent=_no_agent, handed_by=(_FROM,), handed_to=_handed_to, handoff_markers=(_FROM,)),
    messages=Messages(in_family=_in_family),
)
