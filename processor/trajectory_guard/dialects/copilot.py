"""GitHub Copilot CLI: semantic conventions, and the exit code of a command beside a span that ends well."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.dialects.base import Dialect, RawCall, executes_tool, named_by
from trajectory_guard.dialects.span import SpanView, whole_text

_SCOPE: Final = "github.copilot"
_EXIT: Final = "process.exit.code"
_SHELL: Final = re.compile(r"<shellId: [\w-]{1,40} completed with exit code (-?\d{1,9})>\s{0,9}\Z")
"""The last line of a result. The shell's number is another one in each call."""


def _failed(span: SpanView) -> bool:
    return span.attributes.get(_EXIT) not in (None, 0, "0")


def _adjust(span: SpanView, raw: RawCall) -> RawCall:
    result = whole_text(raw.result)
    if result is None or _EXIT not in span.attributes:
        return raw
    result = _SHELL.sub(r"<exited with code \1>", result)
    return raw._replace(result={"result": result, "is_error": True} if _failed(span) else result)


COPILOT = Dialect(
    name="copilot",
    matches=executes_tool,
    markers=("gen_ai.operation.name",),
    scopes=(_SCOPE,),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    adjust=_adjust,
    failed=_failed,
)
