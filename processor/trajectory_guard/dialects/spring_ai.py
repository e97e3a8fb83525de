"""Spring AI: the operation names of the semantic conventions, with tools and conversation under keys of its own."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, named_by
from trajectory_guard.dialects.span import SpanView

_TOOL: Final = "spring.ai.tool.definition.name"
_KIND: Final = "spring.ai.kind"


def _matches(span: SpanView) -> bool:
    return _TOOL in span.attributes


def _is_agent(span: SpanView) -> bool:
    """One request of the application to a chat client, with all model and tool calls until the answer."""
    return span.attributes.get(_KIND) == "chat_client"


SPRING_AI = Dialect(
    name="spring_ai",
    matches=_matches,
    markers=(_TOOL,),
    tool_name=named_by(_TOOL),
    arguments=("spring.ai.tool.call.arguments",),
    results=("spring.ai.tool.call.result",),
    call_ids=("spring.ai.tool.call.id",),
    identity=Identity(
        conversations=("spring.ai.chat.client.conversation.id",), agent_markers=(_KIND,), is_agent=_is_agent
    ),
    messages=Messages(family_markers=(_KIND,)),
)
