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

from tests.captures.client_loop import ANSWERS, functions, results_of
from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write


def main(model: ModelServer) -> None:
    client = ChatCompletionsClient(endpoint=model.url, credential=AzureKeyCredential("none"))
    tools: Any = functions()
    messages: list[Any] = [{"role": "user", "content": "find the orders"}]
    while True:
        answer = client.complete(messages=messages, tools=tools, model="scripted-1").choices[0].message
        messages.append(answer)
        messages += results_of(answer.tool_calls)
        if not answer.tool_calls:
            break


if __name__ == "__main__":
    exporter = record()
    settings.tracing_implementation = "opentelemetry"
    AIInferenceInstrumentor().instrument()
    with trace.get_tracer("app").start_as_current_span("request"):
        main(ModelServer(ANSWERS))
    write(exporter, sys.argv[1])
