"""Spans of Semantic Kernel (semantic-kernel 1.45.0); the model is scripted.

python -m tests.captures.semantic_kernel_agent OUT.json [nocontent]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

_SWITCH = "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS"
os.environ[f"{_SWITCH}_SENSITIVE" if "nocontent" not in sys.argv[2:] else _SWITCH] = "true"

from openai import AsyncOpenAI  # noqa: E402  after the switch
from semantic_kernel.agents import ChatCompletionAgent  # noqa: E402
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion  # noqa: E402
from semantic_kernel.functions import kernel_function  # noqa: E402

from tests.captures.model_server import Answer, ModelServer  # noqa: E402
from tests.captures.otlp_file import record, write  # noqa: E402

ZOE = {"customer": "Zoë"}


class Shop:
    """Tools: the model calls them ``Shop-search_orders`` and the like."""

    @kernel_function
    def search_orders(self, customer: str) -> str:
        return json.dumps({"orders": [f"A-1 for {customer}"]}, ensure_ascii=False)

    @kernel_function
    def read_config(self, path: str) -> str:
        raise FileNotFoundError(f"no such file: {path}")

    @kernel_function
    def list_files(self, path: str) -> list[str]:
        return []

    @kernel_function
    def kb_search(self, query: str) -> str:
        return "No results found"

    @kernel_function
    def now(self) -> str:
        return "noon"


ANSWERS: list[Answer] = [
    [("call_1", "Shop-search_orders", ZOE)],
    [("call_2", "Shop-search_orders", ZOE)],
    [("call_3", "Shop-search_orders", ZOE)],
    [("call_4", "Shop-read_config", {"path": "/etc/app.yaml"})],
    [("call_5", "Shop-list_files", {"path": "/tmp"}), ("call_6", "Shop-kb_search", {"query": "refund"})],
    "first answer",
    [("call_10", "Shop-search_orders", ZOE)],
    [("call_7", "Shop-now", {})],
    [("call_8", "bob-bob", {"messages": "orders of Bob?"})],
    [("call_9", "Shop-search_orders", {"customer": "Bob"})],
    "bob found A-1",
    "second answer",
]
"""Semantic Kernel asks the model for calls five times at most."""


async def main(model: ModelServer) -> None:
    client = AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none")

    def agent(name: str, *plugins: Any) -> ChatCompletionAgent:
        service = OpenAIChatCompletion(ai_model_id="scripted-1", async_client=client)
        return ChatCompletionAgent(name=name, instructions="You help.", service=service, plugins=[*plugins])

    alice = agent("alice", Shop(), agent("bob", Shop()))
    thread = None
    for words in ("find the orders", "search again"):
        response = await alice.get_response(messages=words, thread=thread)
        thread = response.thread
        print(response)


if __name__ == "__main__":
    exporter = record()
    asyncio.run(main(ModelServer(ANSWERS)))
    write(exporter, sys.argv[1])
