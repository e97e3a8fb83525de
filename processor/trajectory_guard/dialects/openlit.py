"""OpenLIT: semantic conventions with Python reprs, and a run id in place of the call id where a call failed."""

from __future__ import annotations

from uuid import UUID

from trajectory_guard.dialects.base import Dialect, Messages, RawCall, named_by
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


OPENLIT = Dialect(
    name="openlit",
    matches=_matches,
    markers=("gen_ai.operation.name",),
    scopes=("openlit",),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_drop_run_id,
    messages=Messages(in_family=_in_family),
)
