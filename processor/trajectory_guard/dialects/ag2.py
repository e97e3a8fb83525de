"""AG2 from 1.0: semantic conventions; long results are cut off, and agents without a name are called unknown."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, RawCall, named_by
from trajectory_guard.dialects.span import CutOff, SpanView

_TYPE: Final = "ag2.span.type"
_CUT_OFF: Final = "ag2.tool.call.result.truncated"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "tool"


def _mark_cut_off(span: SpanView, raw: RawCall) -> RawCall:
    cut_off = isinstance(raw.result, str) and span.attributes.get(_CUT_OFF) is True
    return raw._replace(result=CutOff(raw.result)) if cut_off else raw


AG2 = Dialect(
    name="ag2",
    matches=_matches,
    markers=(_TYPE,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_mark_cut_off,
    identity=Identity(placeholders=("unknown",)),
    messages=Messages(family_markers=(_TYPE,)),
)
