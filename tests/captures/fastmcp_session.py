"""Spans of calls to an MCP server in the same process, through a session that is open before the agent starts.

    python -m tests.captures.fastmcp_session OUT.json [traceloop]

FastMCP emits spans from version 3 on. ``traceloop`` adds those of opentelemetry-instrumentation-mcp 0.62.4, which follows
mcp up to 1. Run with fastmcp 4.2.3 and mcp 2.3.0 without it, and with fastmcp 3.4.11 and 2.14.7, both on mcp 1.30.0.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from opentelemetry import trace

from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, read_config


def refund(order: str) -> str:
    """Refund."""
    raise ToolError(f"order {order} is too old")


def touch(path: str) -> None:
    """Touch."""


CALLS = (
    ("kb_search", {"query": "refund"}),
    ("kb_search", {"query": "refund"}),
    ("read_config", {"path": "/etc/app.yaml"}),
    ("refund", {"order": "A-1"}),
    ("touch", {"path": "/tmp/a"}),
    ("no_such_tool", {"a": 1}),
)
ALICE = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "alice",
    "gen_ai.conversation.id": "chat-7",
}


async def main() -> None:
    server = FastMCP("shop")
    for one in (kb_search, read_config, refund, touch):
        server.tool(one)
    async with Client(server) as client:
        with trace.get_tracer("app").start_as_current_span("invoke_agent alice", attributes=ALICE):
            for name, arguments in CALLS:
                await client.call_tool(name, arguments, raise_on_error=False)


if __name__ == "__main__":
    exporter = record()
    if "traceloop" in sys.argv:
        from opentelemetry.instrumentation.mcp import McpInstrumentor

        McpInstrumentor().instrument()
    asyncio.run(main())
    write(exporter, sys.argv[1])
