"""Logfire's OpenAI Agents integration: function spans told by their message template."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, RawCall, named_by
from trajectory_guard.dialects.span import SpanView


def _matches(span: SpanView) -> bool:
    return span.attributes.get("logfire.msg_template") == "Function: {name}"


def _drop_nulls(span: SpanView, raw: RawCall) -> RawCall:
    """``null`` is how Logfire writes what it did not capture."""
    return RawCall(raw.call_id, *(None if value == "null" else value for value in (raw.arguments, raw.result)))


LOGFIRE = Dialect(
    name="logfire",
    matches=_matches,
    markers=("logfire.msg_template",),
    tool_name=named_by("name"),
    arguments=("input",),
    results=("output",),
    adjust=_drop_nulls,
)
