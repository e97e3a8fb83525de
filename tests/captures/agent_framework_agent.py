"""Spans of Microsoft Agent Framework (agent-framework-core 1.23.0), which it emits by itself, of a streamed run with
parallel calls; the model is scripted.

python -m tests.captures.agent_framework_agent OUT.json
"""

# no postponed annotations: the framework reads the types of the tools

import asyncio
import sys

from agent_framework import Agent
from agent_framework.observability import enable_instrumentation
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, list_files, now, read_config

ANSWERS: list[Answer] = [
    [("call_1", "now", {})],
    [("call_2", "kb_search", {"query": "refund"}), ("call_3", "list_files", {"path": "/tmp"}), ("call_4", "now", {})],
    [("call_5", "read_config", {"path": "/etc/app.yaml"})],
    "the answer",
]


async def main(model: ModelServer) -> None:
    client = AsyncOpenAI(api_key="none", base_url=f"{model.url}/v1")
    chat = OpenAIChatCompletionClient(model="scripted-1", async_client=client)
    alice = Agent(chat, name="alice", tools=[kb_search, list_files, now, read_config])
    async for _ in alice.run("find the refund", stream=True):
        pass


if __name__ == "__main__":
    exporter = record()
    enable_instrumentation(enable_sensitive_data=True)
    asyncio.run(main(ModelServer(ANSWERS)))
    write(exporter, sys.argv[1])
