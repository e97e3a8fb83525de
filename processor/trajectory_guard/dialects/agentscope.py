"""AgentScope: semantic conventions; the result is the whole object around the text that the model reads.

The object has ids and times of its own, which are others in each call, and since version 2 the state in which the call
ended: spans end well whatever it is. Version 1 writes a repr, ``ToolResponse(content=[…], metadata=None, …)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.core.literals import parse_literal
from trajectory_guard.dialects.base import Dialect, RawCall, executes_tool, is_one_of, json_object, json_text, named_by
from trajectory_guard.dialects.span import SpanView, whole_text

_FAILED: Final = frozenset(("error", "denied", "interrupted"))
_BEGIN: Final = "ToolResponse(content="
_END: Final = ", metadata="
_MAX_CHARS: Final = 262_144


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    written = whole_text(raw.result)
    if written is None:
        return raw
    found = json_object(written)
    blocks = found.get("content") if "state" in found else _from_repr(written)
    if not isinstance(blocks, (list, tuple)):
        return raw
    texts = [one.get("text") if isinstance(one, Mapping) else None for one in blocks]
    if not all(isinstance(text, str) for text in texts):
        return raw
    return raw._replace(
        result={"result": "\n".join(map(str, texts)), "is_error": is_one_of(found.get("state"), _FAILED)}
    )


def _from_repr(written: str) -> Any:
    """The blocks of a ``ToolResponse``, None if the text is none."""
    text = written if len(written) <= _MAX_CHARS else ""
    text = json_text(text) or text
    if not text.startswith(_BEGIN):
        return None
    try:
        return parse_literal(text[len(_BEGIN) :].rpartition(_END)[0])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


AGENTSCOPE = Dialect(
    name="agentscope",
    matches=executes_tool,
    markers=("gen_ai.operation.name",),
    scopes=("agentscope",),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_adjust,
)
