"""Spans of LiteLLM (litellm 1.106.2) by its own callback, around a loop of the application; the model is scripted.

python -m tests.captures.litellm_client OUT.json
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ["USE_OTEL_LITELLM_REQUEST_SPAN"] = "true"  # else it writes all model calls onto the span around them
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"

import litellm
from opentelemetry import trace

from tests.captures.client_loop import ANSWERS, functions, results_of
from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write


def main(model: ModelServer) -> None:
    tools = functions()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "find the orders"}]
    while True:
        response = litellm.completion(
            model="openai/gpt-4o", api_base=f"{model.url}/v1", api_key="none", messages=messages, tools=tools
        )
        answer = response.choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        messages += results_of(answer.tool_calls)
        if not answer.tool_calls:
            break
    time.sleep(2)  # the callback runs on a thread of its own


if __name__ == "__main__":
    exporter = record()
    litellm.callbacks = ["otel"]
    with trace.get_tracer("app").start_as_current_span("request"):
        main(ModelServer(ANSWERS))
    write(exporter, sys.argv[1])
