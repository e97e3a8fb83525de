"""Spans of the OpenAI Agents SDK (openai-agents 0.24.0) by Logfire (logfire 5.4.0), two runs without a group; the model
is scripted.

python -m tests.captures.openai_agents_logfire OUT.json
"""

# no postponed annotations: the framework reads the types of the tools

import asyncio
import json
import sys
from pathlib import Path

import logfire
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import write
from tests.captures.shop import kb_search, list_files, now, read_config

SEARCH: list[Answer] = [[("call_1", "kb_search", {"query": "refund"})], "nothing found"]
OTHERS: list[Answer] = [
    [("call_2", "kb_search", {"query": "refund"})],
    [("call_3", "read_config", {"path": "/etc/app.yaml"})],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "now", {})],
    "done",
]


async def main(model: ModelServer) -> None:
    client = AsyncOpenAI(api_key="none", base_url=f"{model.url}/v1")
    tools = [function_tool(tool) for tool in (kb_search, read_config, list_files, now)]
    alice = Agent(name="alice", model=OpenAIChatCompletionsModel("scripted-1", client), tools=[*tools])
    for text in ("a first customer", "a second customer"):
        await Runner.run(alice, text)


def anonymise(file: Path) -> None:
    """Leave out what Logfire writes of the machine: its resource, and where in the sources a span was started."""
    request = json.loads(file.read_text(encoding="utf-8"))
    for resource_spans in request["resourceSpans"]:
        resource_spans["resource"] = {"attributes": [{"key": "service.name", "value": {"stringValue": "capture-app"}}]}
        for span in (span for scope in resource_spans["scopeSpans"] for span in scope["spans"]):
            span["attributes"] = [one for one in span["attributes"] if not one["key"].startswith("code.")]
    file.write_text(json.dumps(request, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    exporter = InMemorySpanExporter()
    logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(exporter)])
    logfire.instrument_openai_agents()
    asyncio.run(main(ModelServer(SEARCH + OTHERS)))
    logfire.force_flush()
    write(exporter, sys.argv[1])
    anonymise(Path(sys.argv[1]))
