"""Spans of BeeAI (beeai-framework 0.1.85) by openinference-instrumentation-beeai 0.1.30; the model is scripted.

python -m tests.captures.beeai_agents OUT.json
"""

from __future__ import annotations

import asyncio
import json
import sys

from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.tools import tool
from openinference.instrumentation.beeai import BeeAIInstrumentor

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
def list_files(path: str) -> str:
    """List."""
    return "[]"


@tool
def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_4", "read_config", {"path": "/etc/app.yaml"})],
    [("call_2", "search_orders", {"customer": "Ann"})],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    [("call_7", "now", {})],
    [("call_8", "final_answer", {"response": "first answer"})],
    [("call_10", "search_orders", ZOE)],
    [("call_11", "final_answer", {"response": "second answer"})],
]
"""BeeAI itself takes back a call that repeats an earlier one."""


async def main(model: ModelServer) -> None:
    llm = OpenAIChatModel("scripted-1", api_key="none", base_url=f"{model.url}/v1", stream=False)
    llm.allow_parallel_tool_calls = True
    agent = RequirementAgent(
        name="alice",
        llm=llm,
        memory=UnconstrainedMemory(),
        tools=[search_orders, read_config, list_files, kb_search, now],
    )
    for words in ("find the orders", "search again"):
        print((await agent.run(words)).last_message.text)


if __name__ == "__main__":
    exporter = record()
    BeeAIInstrumentor().instrument()
    asyncio.run(main(ModelServer(ANSWERS)))
    write(exporter, sys.argv[1])
