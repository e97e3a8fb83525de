"""Spans of the OpenAI Agents SDK (openai-agents 0.24.0) by openinference-instrumentation-openai-agents 2.6.0, with the tools
of an MCP server (fastmcp 4.2.3 on mcp 2.3.0), of which one raises; the model is scripted.

    python -m tests.captures.openai_agents_mcp OUT.json
"""

from __future__ import annotations

import asyncio
import os
import sys

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, read_config

ANSWERS: list[Answer] = [
    [("call_1", "kb_search", {"query": "refund"}), ("call_2", "kb_search", {"query": "returns"})],
    [("call_3", "read_config", {"path": "/etc/app.yaml"})],
    "done",
]


def serve() -> None:
    """Be the server, on standard input and output."""
    from fastmcp import FastMCP

    server = FastMCP("shop")
    for one in (kb_search, read_config):
        server.tool(one)
    server.run(show_banner=False)


async def main(model: ModelServer) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner
    from agents.mcp import MCPServerStdio
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="none", base_url=f"{model.url}/v1")
    params = {
        "command": sys.executable,
        "args": ["-m", "tests.captures.openai_agents_mcp", "serve"],
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }
    async with MCPServerStdio(params=params, client_session_timeout_seconds=60) as shop:
        alice = Agent(name="alice", model=OpenAIChatCompletionsModel("scripted-1", client), mcp_servers=[shop])
        await Runner.run(alice, "a customer")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        exporter = record()
        OpenAIAgentsInstrumentor().instrument()
        asyncio.run(main(ModelServer(ANSWERS)))
        write(exporter, sys.argv[1])
