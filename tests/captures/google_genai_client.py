"""Spans of the Google GenAI client with automatic function calling, by the official instrumentation
(opentelemetry-instrumentation-google-genai 1.3b0, which follows google-genai below 3; 1.60.0 calls tools within one model
call, 2.34.0 between them), and, with google-genai 3.4.0 as with 2.34.0, OpenInference
(openinference-instrumentation-google-genai 1.4.14) or OpenLLMetry (opentelemetry-instrumentation-google-generativeai
0.62.4); the model is scripted.

python -m tests.captures.google_genai_client OUT.json official|openinference|traceloop
"""

# no postponed annotations: the client reads the types of the tools

import json
import os
import sys
from typing import Any

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"

from google import genai
from google.genai import types
from opentelemetry import trace

from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, list_files, now, read_config

ZOE = {"customer": "Zoë"}
ANSWERS: list[Any] = [
    [("search_orders", ZOE)],
    [("search_orders", ZOE)],
    [("search_orders", ZOE)],
    [("read_config", {"path": "/etc/app.yaml"})],
    [("list_files", {"path": "/tmp"}), ("kb_search", {"query": "refund"})],
    [("now", {})],
    "first answer",
    [("search_orders", ZOE)],
    "second answer",
]


class Gemini(ModelServer):
    """The Gemini API; calls are (tool, arguments)."""

    def respond(self, path: str, request: dict[str, Any]) -> tuple[str, str]:
        answer = self.answers.pop(0)
        parts: Any = (
            [{"text": answer}]
            if isinstance(answer, str)
            else [{"functionCall": {"name": name, "args": args}} for name, args in answer]
        )
        response = {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            "modelVersion": "scripted-1",
            "responseId": f"response-{len(self.answers)}",
        }
        return "application/json", json.dumps(response)


def search_orders(customer: str) -> dict[str, list[str]]:
    return {"orders": [f"A-1 for {customer}"]}


def main(url: str) -> None:
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    tools: Any = [search_orders, read_config, list_files, kb_search, now]
    chat = client.chats.create(model="scripted-1", config=types.GenerateContentConfig(tools=tools))
    for words in ("find the orders", "search again"):
        print(chat.send_message(words).text)


if __name__ == "__main__":
    exporter = record()
    if sys.argv[2] == "official":
        from opentelemetry.instrumentation.google_genai import GoogleGenAiSdkInstrumentor

        GoogleGenAiSdkInstrumentor().instrument()
    elif sys.argv[2] == "openinference":
        from openinference.instrumentation.google_genai import GoogleGenAIInstrumentor

        GoogleGenAIInstrumentor().instrument()
    else:
        from opentelemetry.instrumentation.google_generativeai import GoogleGenerativeAiInstrumentor

        GoogleGenerativeAiInstrumentor().instrument()
    with trace.get_tracer("app").start_as_current_span("request"):
        main(Gemini(ANSWERS).url)
    write(exporter, sys.argv[1])
