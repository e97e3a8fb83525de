"""Spans of a Groq client (groq 1.7.0) that streams, by openinference-instrumentation-groq 0.1.33, around a loop of the
application; the model is scripted.

python -m tests.captures.groq_client OUT.json
"""

from __future__ import annotations

import sys
from typing import Any

from groq import Groq
from openinference.instrumentation.groq import GroqInstrumentor
from opentelemetry import trace

from tests.captures.client_loop import ZOE, functions
from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write

ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "no_such_tool", {"path": "/etc/app.yaml"})],
    "first answer",
]
RESULTS = {"search_orders": '{"orders": ["A-1 for Zoë"]}', "list_files": "[]"}


def main(model: ModelServer) -> None:
    client = Groq(api_key="none", base_url=model.url)
    tools: Any = functions(RESULTS)
    messages: list[Any] = [{"role": "user", "content": "find the orders"}]
    while True:
        chunks = client.chat.completions.create(model="scripted-1", messages=messages, tools=tools, stream=True)
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        calls = [call.model_dump(exclude={"index"}) for delta in deltas for call in delta.tool_calls or ()]
        if not calls:
            break
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        for call in calls:
            result = RESULTS.get(call["function"]["name"], "not available")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    exporter = record()
    GroqInstrumentor().instrument()
    with trace.get_tracer("app").start_as_current_span("request"):
        main(ModelServer(ANSWERS))
    write(exporter, sys.argv[1])
