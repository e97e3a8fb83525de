"""Model Context Protocol: ``tools/call`` spans of clients and servers.

They carry a call only where no framework span around them does; the extractor drops them otherwise. The SDK's client
writes the method and the request's number alone, and the tool into the span's name: ``MCP send tools/call search``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, Messages, named_by
from trajectory_guard.dialects.span import SpanView

_named: Final = named_by("gen_ai.tool.name", "mcp.tool.name")
_CALLING: Final = "tools/call "
_METHOD: Final = "mcp.method.name"
_SCOPE: Final = ".mcp.instrumentation"
_KIND: Final = "traceloop.span.kind"
SERVER_SPAN: Final = "mcp.server"
"""Name of the span that OpenLLMetry writes around a call on the side of the server."""


def is_transport(span: SpanView) -> bool:
    """Whether a span is of the protocol that carries a call: the call is made by the tool span around it."""
    return _METHOD in span.attributes or span.scope.endswith((_SCOPE, ".mcp"))


def is_served(span: SpanView, above: Sequence[SpanView]) -> bool:
    """Whether a server, whose span this is, writes down a call of a client that does so itself: in one process.

    OpenLLMetry keeps a span around a client's session. The server starts within it, so that its spans stand below the
    session and not below the calls.
    """
    sessions = (one for one in above if one.attributes.get(_KIND) == "session")
    return is_transport(span) and any(one.scope.endswith(_SCOPE) for one in sessions)


def _tool_name(span: SpanView) -> str | None:
    """From an attribute, else from the span's name after the method, whatever the SDK writes before it."""
    name = _named(span)
    if name is None or name != span.name:
        return name
    return name.partition(_CALLING)[2].strip() or name


def _matches(span: SpanView) -> bool:
    return span.attributes.get("mcp.method.name") == "tools/call"


def _is_other_method(method: Any) -> bool:
    return bool(method != "tools/call")


MCP = Dialect(
    name="mcp",
    matches=_matches,
    markers=("mcp.method.name",),
    tool_name=_tool_name,
    arguments=("gen_ai.tool.call.arguments", "mcp.request.argument"),
    not_a_tool={"mcp.method.name": _is_other_method},
    messages=Messages(no_transcript=("mcp.method.name",)),
)
