"""OpenLIT: semantic conventions with Python reprs, and a run id in place of the call id where a call failed.

Of the OpenAI Agents SDK it presents everything as an agent that is neither a model call nor a tool: runs, turns, and
hand-offs, which name their agents when they end; of smolagents each step. A tool of smolagents that raised leaves a
span with nothing but the exception, whose text names the arguments. The nodes of Pydantic AI that call tools are
written as one tool with the name of the model. Of Agno and smolagents it leaves out arguments and results that are
empty, and of Agno it writes the text of an error as its class.
"""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

from trajectory_guard.dialects.base import Dialect, Identity, Messages, RawCall, named_by, text_or_empty
from trajectory_guard.dialects.span import SpanView

_SDK: Final = "openlit.instrumentation.openai_agents"
_SMOLAGENTS: Final = "openlit.instrumentation.smolagents"
_PYDANTIC_AI: Final = "openlit.instrumentation.pydantic_ai"
_AGNO: Final = "openlit.instrumentation.agno"
_FROM: Final = "gen_ai.agent.source"
_TOOL: Final = "execute_tool "
_AGENT: Final = "invoke_agent "
_STEP: Final = re.compile(r" step_\d{1,9}\Z")
_RAISED: Final = re.compile(
    r"\AError executing tool '[^'\n]{1,200}' with arguments (?P<given>\{.{0,20000}?\}): (?P<error>.*)", re.DOTALL
)
_named: Final = named_by("gen_ai.tool.name", prefixes=(_TOOL,))


def _matches(span: SpanView) -> bool:
    operation = span.attributes.get("gen_ai.operation.name")
    return operation == "execute_tool" or (
        operation is None and span.scope == _SMOLAGENTS and span.name.startswith(_TOOL)
    )


def _tool_name(span: SpanView) -> str | None:
    if span.scope == _PYDANTIC_AI and "gen_ai.tool.name" not in span.attributes:
        return None  # a node of the graph, which may call several tools
    return _named(span)


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    if span.scope == _SMOLAGENTS and span.status == "error" and raw.arguments is None:
        return _raised(span, raw)
    if span.scope == _AGNO or (span.scope == _SMOLAGENTS and span.status != "error"):
        raw = _completed(span, raw)
    try:
        UUID(str(raw.call_id))
    except ValueError:
        return raw
    return raw._replace(call_id=None)


def _completed(span: SpanView, raw: RawCall) -> RawCall:
    """Read missing arguments, or a missing result, as empty if the other is there: without content both are missing."""
    if span.status == "error":
        return raw._replace(result=span.attributes.get("error.type", raw.result))
    arguments = {} if raw.arguments is None and raw.result is not None else raw.arguments
    return raw._replace(arguments=arguments, result="" if raw.result is None and arguments is not None else raw.result)


def _raised(span: SpanView, raw: RawCall) -> RawCall:
    """The arguments and the error as the text of the exception names them."""
    texts: list[Any] = [event.attributes.get("exception.message") for event in span.events]
    found = next((_RAISED.match(text) for text in texts if isinstance(text, str)), None)
    return raw if found is None else raw._replace(arguments=found["given"], result=found["error"])


def _in_family(span: SpanView) -> bool:
    return span.scope.startswith("openlit")


def _no_agent(span: SpanView) -> bool:
    """A turn or a run of the SDK, which has no name, or a hand-off; a step of smolagents."""
    if span.scope == _SDK:
        return span.name == "invoke_agent" or _FROM in span.attributes
    return span.scope == _SMOLAGENTS and _STEP.search(span.name) is not None


def _agent_by_span_name(span: SpanView) -> str | None:
    """A run of smolagents says nothing but its name before it ends. Of a step, the run around it is the agent."""
    if span.scope != _SMOLAGENTS or not span.name.startswith(_AGENT) or _no_agent(span):
        return None
    return span.name.removeprefix(_AGENT)


def _handed_to(span: SpanView) -> str | None:
    return text_or_empty(span.attributes.get("gen_ai.agent.name")) if span.scope == _SDK else None


OPENLIT = Dialect(
    name="openlit",
    matches=_matches,
    markers=("gen_ai.operation.name", "error.type"),
    scopes=("openlit",),
    tool_name=_tool_name,
    adjust=_adjust,
    identity=Identity(
        no_agent=_no_agent,
        agent_by_span_name=_agent_by_span_name,
        handed_by=(_FROM,),
        handed_to=_handed_to,
        handoff_markers=(_FROM,),
    ),
    messages=Messages(in_family=_in_family),
)
