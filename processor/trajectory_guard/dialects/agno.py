"""Agno under OpenLLMetry: the result of a tool is the repr of Agno's own object around it, and every span ends OK.

``status='failure' result=None error='no such file' updated_session_state=None images=None …``
"""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.literals import parse_literal
from trajectory_guard.dialects.base import Dialect, RawCall, named_by
from trajectory_guard.dialects.span import SpanView, whole_text

_SCOPE: Final = "opentelemetry.instrumentation.agno"
_FAILED: Final = "status='failure' result=None error="
_SUCCEEDED: Final = "status='success' result="
_FIELDS: Final = " updated_session_state="
_NO_ERROR: Final = " error=None"
_IN_TOOL_RESULT: Final = re.compile(
    r"\AToolResult\(content=(?P<text>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")", re.DOTALL
)


def _matches(span: SpanView) -> bool:
    return span.attributes.get("traceloop.span.kind") == "tool"


def _opened(span: SpanView, raw: RawCall) -> RawCall:
    """What the tool returned, or the text of its exception, without the object around it."""
    written = whole_text(raw.result)
    if written is None:
        return raw
    if written.startswith(_FAILED):
        text = _text(_before_fields(written[len(_FAILED) :]))
        return raw._replace(result={"result": text, "is_error": True})
    if not written.startswith(_SUCCEEDED):
        return raw
    shown = _before_fields(written[len(_SUCCEEDED) :]).removesuffix(_NO_ERROR)
    return raw._replace(result={"result": _text(shown)})


def _before_fields(shown: str) -> str:
    """Without the fields behind result and error, which the first versions do not have."""
    before, found, _ = shown.rpartition(_FIELDS)
    return before if found else shown


def _text(shown: str) -> str:
    """The text behind a repr; that of any other value is what the model reads."""
    message = _IN_TOOL_RESULT.match(shown)
    quoted = message["text"] if message is not None else shown
    if quoted[:1] not in ("'", '"'):
        return shown
    try:
        return str(parse_literal(quoted))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return shown


AGNO = Dialect(
    name="openllmetry",
    matches=_matches,
    markers=("traceloop.span.kind",),
    scopes=(_SCOPE,),
    tool_name=named_by("gen_ai.tool.name", "traceloop.entity.name", suffixes=(".tool",)),
    arguments=("traceloop.entity.input",),
    results=("traceloop.entity.output",),
    empty_arguments=True,
    adjust=_opened,
)
