"""Spans of a client of OpenAI's Responses API (openai 3.54.0), around a loop of the application, in which each request
continues the response before (``previous_response_id``): by the instrumentation of Azure AI Foundry (azure-ai-projects
2.10.0) or OpenInference (openinference-instrumentation-openai 0.1.66); the model is scripted.

python -m tests.captures.responses_client OUT.json azure|openinference
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["AZURE_EXPERIMENTAL_ENABLE_GENAI_TRACING"] = "true"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"

from openai import OpenAI
from opentelemetry import trace

from tests.captures.client_loop import ANSWERS, RESULTS
from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write


class Responses(ModelServer):
    def respond(self, path: str, request: dict[str, Any]) -> tuple[str, str]:
        answer = self.answers.pop(0)
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output = (
            [{**message, "content": [{"type": "output_text", "text": answer, "annotations": []}]}]
            if isinstance(answer, str)
            else [
                {
                    "type": "function_call",
                    "id": f"fc_{one}",
                    "call_id": one,
                    "name": name,
                    "arguments": json.dumps(args),
                }
                for one, name, args in answer
            ]
        )
        body = {
            "id": f"resp_{len(self.answers)}", "object": "response", "created_at": 1, "model": request["model"],
            "status": "completed", "error": None, "output": output, "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": [], "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }  # fmt: skip
        return "application/json", json.dumps(body)


def instrument(kind: str) -> None:
    if kind == "azure":
        from azure.ai.projects.telemetry import AIProjectInstrumentor
        from azure.core.settings import settings

        settings.tracing_implementation = "opentelemetry"
        AIProjectInstrumentor().instrument()
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument()


def main(model: ModelServer) -> None:
    client = OpenAI(api_key="none", base_url=f"{model.url}/v1")
    tools: Any = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in RESULTS]
    asked: Any = [{"role": "user", "content": "find the orders"}]
    before: Any = {}
    while asked:
        response = client.responses.create(model="scripted-1", input=asked, tools=tools, **before)
        before = {"previous_response_id": response.id}
        asked = [
            {"type": "function_call_output", "call_id": call.call_id, "output": RESULTS[call.name]}
            for call in response.output
            if call.type == "function_call"
        ]


if __name__ == "__main__":
    exporter = record()
    instrument(sys.argv[2])
    with trace.get_tracer("app").start_as_current_span("request"):
        main(Responses(ANSWERS))
    write(exporter, sys.argv[1])
