"""Spans of Laminar (lmnr 0.8.2) around agents by hand on the OpenAI client; the model is scripted.

python -m tests.captures.laminar_agent OUT.json [nocontent]
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from lmnr import Laminar, observe
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.captures import shop
from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import write

ZOE = {"customer": "Zoë"}
CONFIG = {"path": "/etc/app.yaml"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "read_config", CONFIG)],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    [("call_7", "touch", {"path": "/tmp/a"}), ("call_8", "now", {})],
    [("call_9", "ask_bob", {"question": "orders of Bob?"})],
    [("call_10", "search_orders", {"customer": "Bob"})],
    "bob found A-1",
    "first answer",
]
MODEL = ModelServer(ANSWERS)
HIDDEN = "nocontent" in sys.argv[2:]
exporter = InMemorySpanExporter()
Laminar.initialize(project_api_key="none", base_url="http://127.0.0.1", http_port=1, grpc_port=1)
provider: Any = trace.get_tracer_provider()  # Laminar makes one of its own the global one, if there is none
provider.add_span_processor(SimpleSpanProcessor(exporter))
client = OpenAI(api_key="none", base_url=f"{MODEL.url}/v1")


def tool(function: Any) -> Any:
    return observe(span_type="TOOL", ignore_input=HIDDEN, ignore_output=HIDDEN)(function)


@tool
def search_orders(customer: str) -> dict[str, list[str]]:
    return {"orders": [f"A-1 for {customer}"]}


@tool
def touch(path: str) -> None:
    pass


@tool
def ask_bob(question: str) -> str:
    return bob(question)


SHARED = [tool(one) for one in (shop.read_config, shop.list_files, shop.kb_search, shop.now)]
TOOLS = {one.__name__: one for one in (search_orders, touch, ask_bob, *SHARED)}


def run(words: str) -> str:
    messages: list[Any] = [{"role": "user", "content": words}]
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in TOOLS]
    while True:
        response = client.chat.completions.create(model="scripted-1", messages=messages, tools=tools)
        answer = response.choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls or ():
            try:
                result = json.dumps(TOOLS[call.function.name](**json.loads(call.function.arguments)))
            except FileNotFoundError as error:
                result = f"Error: {error}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not answer.tool_calls:
            return str(answer.content)


bob = observe(name="bob")(run)


@observe(name="alice", session_id="chat-7")
def alice(words: str) -> str:
    return run(words)


if __name__ == "__main__":
    print(alice("find the orders"))
    write(exporter, sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # Laminar would wait for its own service
