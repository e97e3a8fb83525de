"""Sentry for JavaScript, which wraps the Vercel AI SDK: semantic conventions, with arguments and result under names of
its own. The result stands within the message that hands it to the model.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import Dialect, Identity, RawCall, executes_tool, named_by
from trajectory_guard.dialects.span import SpanView

_ARGUMENTS: Final = "gen_ai.tool.input"
_RESULT: Final = "gen_ai.tool.output"
_MESSAGE: Final = '{"type":"tool-result"'


def _unwrap(span: SpanView, raw: RawCall) -> RawCall:
    if not (isinstance(raw.result, str) and raw.result.startswith(_MESSAGE)):
        return raw
    try:
        message = parse_json(raw.result)
        return raw._replace(result=message["output"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return raw


SENTRY: Final = Dialect(
    name="sentry",
    matches=executes_tool,
    markers=(_ARGUMENTS, _RESULT),
    scopes=("@sentry/",),
    tool_name=named_by("gen_ai.tool.name", prefixes=("execute_tool ",)),
    arguments=(_ARGUMENTS,),
    results=(_RESULT,),
    adjust=_unwrap,
    identity=Identity(agents=("gen_ai.function_id",)),
)
