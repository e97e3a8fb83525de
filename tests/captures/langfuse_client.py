"""Spans of an OpenAI client (openai 2.54.0) by Langfuse's wrapper of it (langfuse 5.0.4), around a loop of the
application; the model is scripted.

python -m tests.captures.langfuse_client OUT.json
"""

from __future__ import annotations

import sys
from typing import Any

from langfuse import Langfuse
from langfuse.openai import OpenAI
from opentelemetry import trace

from tests.captures.client_loop import ANSWERS, functions, results_of
from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write


def main(model: ModelServer) -> None:
    client = OpenAI(api_key="none", base_url=f"{model.url}/v1")
    tools: Any = functions()
    messages: list[Any] = [{"role": "user", "content": "find the orders"}]
    while True:
        answer = client.chat.completions.create(model="scripted-1", messages=messages, tools=tools).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        messages += results_of(answer.tool_calls)
        if not answer.tool_calls:
            break


if __name__ == "__main__":
    exporter = record()
    provider: Any = trace.get_tracer_provider()
    nowhere = "http://127.0.0.1:9"
    Langfuse(public_key="pk-lf-x", secret_key="sk-lf-x", base_url=nowhere, timeout=1, tracer_provider=provider)
    with trace.get_tracer("app").start_as_current_span("request"):
        main(ModelServer(ANSWERS))
    write(exporter, sys.argv[1])
