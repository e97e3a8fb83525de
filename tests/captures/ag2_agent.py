"""Spans of AG2 (ag2 1.2.1) by its own middleware; the model is scripted.

python -m tests.captures.ag2_agent OUT.json
"""

from __future__ import annotations

import asyncio
import json
import sys

from ag2 import Agent, tool
from ag2.config import OpenAIConfig
from ag2.middleware.builtin.telemetry import TelemetryMiddleware

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write


@tool
def search_orders(customer: str) -> str:
    """Search."""
    return json.dumps({"orders": [f"A-1 for {customer}"]}, ensure_ascii=False)


@tool
def read_config(path: str) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


@tool
def list_files(path: str) -> list[str]:
    """List."""
    return []


@tool
def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


@tool
def read_log() -> str:
    """Read more than a span holds."""
    return "waiting\n" * 2_000


ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "read_config", {"path": "/etc/app.yaml"})],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    [("call_7", "no_such_tool", {"a": 1})],
    [("call_8", "read_log", {})],
    "first answer",
    [("call_10", "search_orders", ZOE)],
    "second answer",
]


async def main(model: ModelServer) -> None:
    agent = Agent(
        "alice", prompt="You help.", tools=[search_orders, read_config, list_files, kb_search, read_log],
        config=OpenAIConfig(model="scripted-1", api_key="none", base_url=f"{model.url}/v1"),
        middleware=[TelemetryMiddleware(agent_name="alice", max_tool_result_chars=1_000)],
    )  # fmt: skip
    reply = await agent.ask("find the orders")
    reply = await reply.ask("search again")
    print(reply.body)


if __name__ == "__main__":
    exporter = record()
    asyncio.run(main(ModelServer(ANSWERS)))
    write(exporter, sys.argv[1])
