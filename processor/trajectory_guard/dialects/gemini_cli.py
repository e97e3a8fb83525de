"""Gemini CLI: tool spans whose content stands where that of models does, as the request and the response of a call.

``tool_call`` is the operation of a call, ``schedule_tool_calls`` that of all calls of a turn, ``llm_call`` of a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, ModelCalls, RawCall, json_object, named_by
from trajectory_guard.dialects.span import SpanView

_SCOPE: Final = "gemini-cli"
_OPERATION: Final = "gen_ai.operation.name"
_CALL_ID: Final = "gen_ai.tool.call_id"
_GROUP: Final = re.compile(r"\nProcess Group PGID: \d{1,20}")
"""A line of the result of each command, with a number of the system."""


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_OPERATION) == "tool_call"


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    request, ended = (json_object(span.attributes.get(f"gen_ai.{end}.messages")) for end in ("input", "output"))
    given, response = request.get("args"), ended.get("response")
    if not isinstance(response, Mapping):
        return RawCall(raw.call_id, given)
    data = response.get("data")
    failed = ended.get("status") != "success" or (isinstance(data, Mapping) and data.get("isError") is True)
    text = _text(response.get("responseParts"))
    return RawCall(raw.call_id, given, {"result": text, "is_error": failed} if text is not None else None)


def _failed(span: SpanView) -> bool:
    status = json_object(span.attributes.get("gen_ai.output.messages")).get("status")
    return status is not None and status != "success"


def _text(parts: Any) -> Any:
    """What the model read: output or error of the one function that answered; None if it is something else."""
    for part in parts if isinstance(parts, list) else ():
        answer = part.get("functionResponse") if isinstance(part, Mapping) else None
        found = answer.get("response") if isinstance(answer, Mapping) else None
        if isinstance(found, Mapping):
            text = found.get("output", found.get("error", found))
            return _GROUP.sub("", text) if isinstance(text, str) else text
    return None


def _is_call(span: SpanView) -> bool | None:
    return span.attributes.get(_OPERATION) == "llm_call" if span.scope == _SCOPE else None


GEMINI_CLI = Dialect(
    name="gemini_cli",
    matches=_matches,
    markers=(_CALL_ID,),
    scopes=(_SCOPE,),
    tool_name=named_by("gen_ai.tool.name"),
    call_ids=(_CALL_ID,),
    adjust=_adjust,
    failed=_failed,
    models=ModelCalls(is_call=_is_call, call_markers=(_OPERATION,)),
)
