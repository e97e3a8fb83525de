"""Claude Code and the Claude Agent SDK, which runs it: spans of its own with parts of the semantic conventions.

Arguments and results are texts with a heading (``ENABLE_BETA_TRACING_DETAILED``); results alone stand in an event
(``OTEL_LOG_TOOL_CONTENT``). How a call ended stands on a span below it; here, only a call that succeeded has a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, Messages, ModelCalls, RawCall, RawUsage, first, named_by
from trajectory_guard.dialects.span import SpanView

_SCOPE: Final = "com.anthropic.claude_code.tracing"
_TYPE: Final = "span.type"
_INPUT: Final = "tool_input"
_RESULT: Final = "new_context"
_COMMAND: Final = "full_command"
_TOKENS: Final = "input_tokens"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "tool"


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    command = span.attributes.get(_COMMAND)
    arguments = _below_heading(raw.arguments, "[TOOL INPUT")
    if arguments is None and command is not None:
        arguments = {"command": command}  # of the shell alone, these are all that make a difference
    shown: Mapping[str, Any] = next((one.attributes for one in span.events if one.name == "tool.output"), {})
    result = shown.get("output", _below_heading(raw.result, "[TOOL RESULT"))
    return RawCall(raw.call_id, arguments, first(shown, ("content", "diff")) if result is None else result)


def _below_heading(text: Any, heading: str) -> Any:
    """``[TOOL INPUT: Read]``, and the value on the next line."""
    return text.partition("\n")[2] if isinstance(text, str) and text.startswith(heading) else text


def _failed(span: SpanView) -> bool:
    return _INPUT in span.attributes and _RESULT not in span.attributes


def _is_call(span: SpanView) -> bool | None:
    return span.attributes.get(_TYPE) == "llm_request" if span.scope == _SCOPE else None


def _usage(span: SpanView) -> RawUsage:
    """Tokens read from a cache, or written to it, are counted separately."""
    attributes = span.attributes
    sent = [attributes.get(key) for key in (_TOKENS, "cache_read_tokens", "cache_creation_tokens")]
    return RawUsage(sum(one for one in sent if isinstance(one, (int, float))), attributes.get("output_tokens"))


CLAUDE_CODE = Dialect(
    name="claude_code",
    matches=_matches,
    markers=(_TYPE,),
    scopes=(_SCOPE,),
    tool_name=named_by("tool_name", "gen_ai.tool.name"),
    arguments=(_INPUT,),
    results=(_RESULT,),
    adjust=_adjust,
    failed=_failed,
    models=ModelCalls(is_call=_is_call, call_markers=(_TYPE,), usage_markers=(_TOKENS,), usage=_usage),
    messages=Messages(in_family=lambda span: span.scope == _SCOPE),
)
