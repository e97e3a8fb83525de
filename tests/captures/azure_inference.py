"""Spans of Azure's inference client (azure-ai-inference 1.0.0b9) around a loop of the application; the model is scripted.

python -m tests.captures.azure_inference OUT.json
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED"] = "true"

from azure.ai.inference import ChatCompletionsClient
from azure.ai.inference.tracing import AIInferenceInstrumentor
from azure.core.credentials import AzureKeyCredential
from azure.core.settings import settings
from opentelemetry import trace

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write

ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "read_config", {"path": "/etc/app.yaml"})],
    "first answer",
]
RESULTS = {"search_orders": '{"orders": ["A-1 for Zoë"]}', "list_files": "[]", "read_config": "Error: no such file"}


def main(model: ModelServer) -> None:
    client = ChatCompletionsClient(endpoint=model.url, credential=AzureKeyCredential("none"))
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in RESULTS
    ]
    messages: list[Any] = [{"role": "user", "content": "find the orders"}]
    while True:
        answer = client.complete(messages=messages, tools=tools, model="scripted-1").choices[0].message
        messages.append(answer)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": RESULTS[call.function.name]}
            for call in answer.tool_calls or ()
        ]
        if not answer.tool_calls:
            break


if __name__ == "__main__":
    exporter = record()
    settings.tracing_implementation = "opentelemetry"
    AIInferenceInstrumentor().instrument()
    with trace.get_tracer("app").start_as_current_span("request"):
        main(ModelServer(ANSWERS))
    write(exporter, sys.argv[1])
