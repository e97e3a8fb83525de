"""Spans of the Claude Agent SDK (claude-agent-sdk 0.2.187 with Claude Code 2.1.330); the model is scripted.

    python -m tests.captures.claude_code OUT.json [detailed | openinference]

Claude Code sends its spans itself. ``detailed`` turns on the content of calls, which is off by default;
``openinference`` records the spans of openinference-instrumentation-claude-agent-sdk 0.1.22 instead.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    create_sdk_mcp_server,
    tool,
)

from tests.captures.model_server import Answer, ModelServer

DETAILED, OPENINFERENCE = ("detailed" in sys.argv[2:]), ("openinference" in sys.argv[2:])
SERVER = "mcp__shop__"
ZOE = {"customer": "Zoë"}
_PRIVATE = ("user.id", "terminal.type")
_PROMPTS = ("system_", "tools", "user_system_prompt")
"""Attributes with Claude Code's own prompts and reminders, which are left out of the file."""


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


@tool("search_orders", "a tool", {"customer": str})
async def search_orders(args: dict[str, Any]) -> dict[str, Any]:
    return text(json.dumps({"orders": [f"A-1 for {args['customer']}"]}, ensure_ascii=False))


@tool("read_config", "a tool", {"path": str})
async def read_config(args: dict[str, Any]) -> dict[str, Any]:
    raise FileNotFoundError(f"no such file: {args['path']}")


@tool("list_files", "a tool", {"path": str})
async def list_files(args: dict[str, Any]) -> dict[str, Any]:
    return text("[]")


@tool("kb_search", "a tool", {"query": str})
async def kb_search(args: dict[str, Any]) -> dict[str, Any]:
    return text("No results found")


@tool("delete_all", "a tool", {"scope": str})
async def delete_all(args: dict[str, Any]) -> dict[str, Any]:
    return text("deleted")


async def decide(name: str, arguments: dict[str, Any], context: Any) -> PermissionResultAllow | PermissionResultDeny:
    """A person who refuses one tool."""
    if name.endswith("delete_all"):
        return PermissionResultDeny(message="User denied the deletion")
    return PermissionResultAllow(updated_input=arguments)


ANSWERS: list[Answer] = [
    [("toolu_1", f"{SERVER}search_orders", ZOE)],
    [("toolu_2", f"{SERVER}search_orders", ZOE)],
    [("toolu_3", f"{SERVER}search_orders", ZOE)],
    [("toolu_4", f"{SERVER}read_config", {"path": "/etc/app.yaml"})],
    [("toolu_5", f"{SERVER}list_files", {"path": "/tmp"}), ("toolu_6", f"{SERVER}kb_search", {"query": "refund"})],
    [("toolu_7", "no_such_tool", {"a": 1})],
    [("toolu_8", "Bash", {"command": "echo noon", "description": "time"})],
    [("toolu_9", "Bash", {"command": "ls /nonexistent"})],
    "first answer",
    [("toolu_10", f"{SERVER}search_orders", ZOE)],
    [("toolu_11", f"{SERVER}delete_all", {"scope": "prod"})],
    "not deleted",
]


def variables(url: str, home: str) -> dict[str, str]:
    """Environment of Claude Code."""
    telemetry = {
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1", "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1", "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "200",
    }  # fmt: skip
    if DETAILED:
        telemetry |= {"ENABLE_BETA_TRACING_DETAILED": "1", "BETA_TRACING_ENDPOINT": url, "OTEL_LOG_TOOL_CONTENT": "1"}
        telemetry |= {"OTEL_LOG_TOOL_DETAILS": "1", "OTEL_LOG_USER_PROMPTS": "1"}
    private = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": home, "DISABLE_AUTOUPDATER": "1"}
    return private if OPENINFERENCE else {**private, **telemetry}


async def main(model: ModelServer, home: str) -> None:
    tools = [search_orders, read_config, list_files, kb_search, delete_all]
    options = ClaudeAgentOptions(
        mcp_servers={"shop": create_sdk_mcp_server("shop", "1.0", tools)}, can_use_tool=decide, cwd=home,
        model="scripted-1", setting_sources=[], env=variables(model.url, home),
        agents={"bob": AgentDefinition(description="finds orders", prompt="You find.")},
    )  # fmt: skip
    async with ClaudeSDKClient(options) as client:
        for words in ("find the orders", "search again and delete all"):
            await client.query(words)
            async for _ in client.receive_response():
                pass
        await asyncio.sleep(2)  # until its spans have been sent


def without_private(resource_spans: list[Any]) -> list[Any]:
    for resource in resource_spans:
        kept = [one for one in resource["resource"]["attributes"] if one["key"].startswith("service.")]
        resource["resource"]["attributes"] = kept
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            span["attributes"] = [
                one for one in span["attributes"] if one["key"] not in _PRIVATE and not one["key"].startswith(_PROMPTS)
            ]
            span["events"] = [one for one in span.get("events", ()) if one["name"] == "tool.output"]
    return resource_spans


if __name__ == "__main__":
    server = ModelServer(ANSWERS)
    with tempfile.TemporaryDirectory() as folder:
        if OPENINFERENCE:
            from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor

            from tests.captures.otlp_file import record, write

            exporter = record()
            ClaudeAgentSDKInstrumentor().instrument()
            asyncio.run(main(server, folder))
            write(exporter, sys.argv[1])
        else:
            asyncio.run(main(server, folder))
            spans = {"resourceSpans": without_private(server.resource_spans)}
            Path(sys.argv[1]).write_text(json.dumps(spans, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
