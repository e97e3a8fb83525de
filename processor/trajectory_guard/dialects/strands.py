"""Strands Agents: semantic conventions with their content in span events, and with the newest ones in attributes, too.

Results are lists of content blocks, ``[{"text": …}, {"json": …}]``. Spans are known by the time at which they began, as
an attribute: the scope of those of the TypeScript SDK, and of the first versions for Python, is the name of the
service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, RawCall, named_by
from trajectory_guard.dialects.span import SpanView

_OPERATION: Final = "gen_ai.operation.name"
_BEGAN: Final = "gen_ai.event.start_time"
_DEFAULT_NAME: Final = "Strands Agents"
_STATUS: Final = "gen_ai.tool.status"
_ANSWER: Final = "gen_ai.output.messages"


def _is_of_strands(span: SpanView) -> bool:
    return _BEGAN in span.attributes


def _matches(span: SpanView) -> bool:
    return _is_of_strands(span) and span.attributes.get(_OPERATION) == "execute_tool"


def _is_call(span: SpanView) -> bool | None:
    """Agents, swarms and cycles of the event loop repeat the messages of the model calls in them."""
    return span.attributes.get(_OPERATION) == "chat" if _is_of_strands(span) else None


def _is_abandoned(span: SpanView) -> bool:
    """A call that asks a person, or whose run was cancelled, ends without a status."""
    return _matches(span) and span.status != "error" and _STATUS not in span.attributes


def _empty_result(span: SpanView) -> bool:
    """OpenInference's processor writes content as attributes of its own; it leaves an empty result out."""
    return _is_of_openinference(span) and span.attributes.get(_STATUS) == "success"


def _is_of_openinference(span: SpanView) -> bool:
    return span.attributes.get("openinference.span.kind") == "TOOL"


def _all_arguments(span: SpanView, arguments: Any) -> Any:
    """All arguments of a call. OpenInference's processor shows the ``text`` of a tool that takes one as all input.

    Elsewhere ``tool.parameters`` may be the schema of the tool; here it is always the call's.
    """
    given = span.attributes.get("tool.parameters")
    return given if isinstance(given, str) and given[:1] == "{" and _is_of_openinference(span) else arguments


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    arguments, result = _all_arguments(span, raw.arguments), raw.result
    answer = span.attributes.get(_ANSWER)
    for event in span.events:
        if event.name == "gen_ai.tool.message" and arguments is None:
            arguments = event.attributes.get("content")
        elif event.name == "gen_ai.choice" and result is None:
            result = event.attributes.get("message")
        else:
            answer = event.attributes.get(_ANSWER, answer)
    return RawCall(raw.call_id, arguments, _text(result if result is not None else _response(answer)))


def _response(answer: Any) -> Any:
    """The result of a failed call, which only the messages of its span show."""
    try:
        return _decoded(answer)[0]["parts"][0]["response"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _text(result: Any) -> Any:
    """The blocks of a result, each as the text that the model saw; as found if they are no blocks."""
    try:
        blocks = _decoded(result)
    except (ValueError, RecursionError):
        return result
    if not isinstance(blocks, list) or not all(isinstance(one, Mapping) and len(one) == 1 for one in blocks):
        return result
    values = [value for one in blocks for value in one.values()]
    return "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values)


def _decoded(value: Any) -> Any:
    return parse_json(value) if isinstance(value, str) else value


STRANDS = Dialect(
    name="strands",
    matches=_matches,
    markers=(_BEGAN,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    empty_result=_empty_result,
    adjust=_adjust,
    failed_when={_STATUS: "error"},
    awaits_approval=_is_abandoned,
    identity=Identity(placeholders=(_DEFAULT_NAME,)),
    models=ModelCalls(is_call=_is_call, call_markers=(_BEGAN,)),
    messages=Messages(in_family=_is_of_strands),
)
