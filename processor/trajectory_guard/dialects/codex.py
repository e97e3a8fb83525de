"""OpenAI Codex CLI: a span a tool call, without content.

How a call ended stands in an event of the span below it, which ends first and has no attribute of its own: unless a
call was aborted, its outcome is unknown.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, named_by
from trajectory_guard.dialects.span import SpanView

_PHASE: Final = "codex.tool.phase"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_PHASE) == "dispatch"


def _failed(span: SpanView) -> bool:
    return span.attributes.get("aborted") is True


CODEX = Dialect(
    name="codex",
    matches=_matches,
    markers=(_PHASE,),
    tool_name=named_by("tool_name"),
    call_ids=("call_id",),
    failed=_failed,
)
