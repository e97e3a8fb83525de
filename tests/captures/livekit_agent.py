"""Spans of LiveKit Agents (livekit-agents 1.8.9, livekit-plugins-openai 1.8.9); the model is scripted, users write.

python -m tests.captures.livekit_agent OUT.json
"""

from __future__ import annotations

import asyncio
import json
import sys

from livekit.agents import Agent, AgentSession, function_tool, telemetry
from livekit.plugins import openai
from opentelemetry import trace

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write


@function_tool
async def search_orders(customer: str) -> str:
    """Search."""
    return json.dumps({"orders": [f"A-1 for {customer}"]}, ensure_ascii=False)


@function_tool
async def read_config(path: str) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


@function_tool
async def list_files(path: str) -> list[str]:
    """List."""
    return []


@function_tool
async def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


class Bob(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="You find.", tools=[search_orders])


@function_tool
async def call_bob() -> tuple[Agent, str]:
    """Hand over."""
    return Bob(), "handed over"


ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    "first answer",
    [("call_4", "read_config", {"path": "/etc/app.yaml"})],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    [("call_7", "no_such_tool", {"a": 1})],
    "second answer",
    [("call_8", "call_bob", {})],
    "here is Bob",
    [("call_9", "search_orders", {"customer": "Bob"})],
    "bob found A-1",
]


async def main(model: ModelServer) -> None:
    llm = openai.LLM(model="scripted-1", api_key="none", base_url=f"{model.url}/v1")
    tools = [search_orders, read_config, list_files, kb_search, call_bob]
    async with AgentSession(llm=llm, max_tool_steps=5) as session:
        await session.start(Agent(instructions="You help.", tools=tools))
        for words in ("find the orders", "read the configuration", "who is Bob?", "orders of Bob?"):
            await session.run(user_input=words)


if __name__ == "__main__":
    exporter = record()
    telemetry.set_tracer_provider(trace.get_tracer_provider())
    asyncio.run(main(ModelServer(ANSWERS)))
    write(exporter, sys.argv[1])
