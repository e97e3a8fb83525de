"""Spans of Agno (agno 3.1.10) under OpenLLMetry (opentelemetry-instrumentation-agno 0.62.4); the model is scripted.

python -m tests.captures.agno_agent OUT.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.function import ToolResult
from opentelemetry.instrumentation.agno import AgnoInstrumentor

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, list_files, now, read_config


def search_orders(customer: str) -> dict[str, Any]:
    """Search."""
    return {"orders": [17], "customer": customer}


def quote(text: str) -> str:
    """Say it in both kinds of quotes."""
    return f'it\'s "{text}" error=None updated_session_state={{}}\nthe end'


def show(name: str) -> ToolResult:
    """Show a picture."""
    return ToolResult(content=f"a picture of {name}'s cat")


def read_log(path: str) -> Iterator[str]:
    """Read line by line."""
    yield from (f"{path}: line {number}\n" for number in range(3))


def touch(path: str) -> None:
    """Do it."""


ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "read_config", {"path": "/etc/app.yaml"})],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "kb_search", {"query": "refund"})],
    [("call_6", "quote", {"text": "stop"})],
    [("call_7", "show", {"name": "Zoë"})],
    [("call_8", "read_log", {"path": "/var/log"})],
    [("call_9", "touch", {"path": "a"})],
    [("call_10", "now", {})],
    [("call_11", "search_orders", json.loads('{"client": 7}'))],
    "done",
]
TOOLS = [search_orders, read_config, list_files, kb_search, quote, show, read_log, touch, now]

if __name__ == "__main__":
    exporter = record()
    AgnoInstrumentor().instrument()
    model = ModelServer(ANSWERS)
    chat = OpenAIChat(id="scripted-1", api_key="none", base_url=f"{model.url}/v1")
    print(Agent(name="alice", model=chat, tools=TOOLS, telemetry=False).run("find the orders").content)
    write(exporter, sys.argv[1])
