"""OpenAI Agents, whichever instrumentation follows it; and OpenInference for JavaScript, which has its own ways."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, RawCall, named_by
from trajectory_guard.dialects.openinference import HANDOFF
from trajectory_guard.dialects.span import SpanView


def _awaits_approval(span: SpanView) -> bool:
    """A call that waits for approval has a finished span; every executed call has an output."""
    return span.status != "error" and "openai_agents" in span.scope


OPENAI_AGENTS = Dialect(
    name="openai_agents",
    awaits_approval=_awaits_approval,
    identity=Identity(placeholders=("OpenAI Agent",)),
)

_JS_SCOPE: Final = "@arizeai/openinference-instrumentation-openai-agents"
_named: Final = named_by("tool.name")
_REFUSED: Final = re.compile(r"Tool execution for (\S{1,200}) was manually rejected")


def _matches_js(span: SpanView) -> bool:
    return span.scope == _JS_SCOPE and span.attributes.get("openinference.span.kind") == "TOOL"


def _handed_to(span: SpanView) -> str | None:
    """A hand-off is written as a tool; names of tools have no blanks."""
    is_handoff = span.scope == _JS_SCOPE and span.name.startswith(HANDOFF)
    return span.name.removeprefix(HANDOFF) if is_handoff else None


def _tool_name_js(span: SpanView) -> str | None:
    return None if _handed_to(span) is not None else _named(span)


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    """A call has arguments, if only ``{}``. Without sensitive data they are left out and the result is an empty text.

    A refused call has no arguments either; its id stands in the status.
    """
    if raw.arguments is not None:
        return raw
    refused = _REFUSED.search(span.status_description or "")
    return RawCall(raw.call_id or (refused and refused[1]), None, raw.result or None)


OPENAI_AGENTS_JS = Dialect(
    name="openinference",
    matches=_matches_js,
    markers=("tool.name",),
    scopes=(_JS_SCOPE,),
    tool_name=_tool_name_js,
    arguments=("input.value",),
    results=("output.value",),
    adjust=_adjust,
    identity=Identity(handed_to=_handed_to, handoff_markers=("tool.name",)),
)
