"""TanStack AI: semantic conventions, with arguments and result of a tool as one message each.

The result of a call that failed is written as ``null``; its error stands in the status.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import Dialect, Identity, Messages, RawCall, named_by
from trajectory_guard.dialects.span import SpanView

_OUTCOME: Final = "tanstack.ai.tool.outcome"
_FAILED: Final = "error"
_ITERATIONS: Final = "tanstack.ai.iterations"


def _matches(span: SpanView) -> bool:
    return _OUTCOME in span.attributes


def _unwrap(span: SpanView, raw: RawCall) -> RawCall:
    result = _content(raw.result)
    if result == "null" and span.attributes[_OUTCOME] == _FAILED:
        result = None
    return raw._replace(arguments=_content(raw.arguments), result=result)


def _content(written: Any) -> Any:
    """The content of the only message; as found if it is none."""
    try:
        (message,) = parse_json(written) if isinstance(written, str) else written
        return message["content"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return written


def _is_agent(span: SpanView) -> bool:
    """One call of ``chat()``, with all model and tool calls until the answer."""
    return _ITERATIONS in span.attributes


TANSTACK = Dialect(
    name="tanstack",
    matches=_matches,
    markers=(_OUTCOME,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    arguments=("gen_ai.input.messages",),
    results=("gen_ai.output.messages",),
    adjust=_unwrap,
    failed_when={_OUTCOME: _FAILED},
    identity=Identity(agent_markers=(_ITERATIONS,), is_agent=_is_agent),
    messages=Messages(family_markers=("tanstack.ai.iteration", _ITERATIONS)),
)
