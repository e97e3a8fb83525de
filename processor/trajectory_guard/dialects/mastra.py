"""Mastra: semantic conventions; values under names that look secret are hidden one by one."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Messages, RawCall, is_one_of, named_by
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "mastra.span.type"
_TOOLS: Final = ("tool_call", "mcp_tool_call", "provider_tool_call", "client_tool_call")
_HIDDEN: Final = '"[REDACTED]"'


def _matches(span: SpanView) -> bool:
    return is_one_of(span.attributes.get(_TYPE), _TOOLS)


def _drop_hidden(span: SpanView, raw: RawCall) -> RawCall:
    """Calls that differ in a hidden argument look alike: together, the arguments are unknown."""
    hidden = isinstance(raw.arguments, str) and _HIDDEN in raw.arguments
    return raw._replace(arguments=None) if hidden else raw


MASTRA = Dialect(
    name="mastra",
    matches=_matches,
    markers=(_TYPE,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ", "client_tool_call ")),
    arguments=("gen_ai.tool.call.arguments", "mastra.metadata.args"),
    adjust=_drop_hidden,
    messages=Messages(family_markers=(_TYPE,)),
)
