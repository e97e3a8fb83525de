"""Spans of a Bedrock client (boto3 1.44.5, Converse) around a loop of the application, by OpenLLMetry
(opentelemetry-instrumentation-bedrock 0.62.4) or OpenInference (openinference-instrumentation-bedrock 0.1.61), and of
an agent of Bedrock (InvokeAgent) by OpenInference; the model is scripted.

python -m tests.captures.bedrock_client OUT.json traceloop|openinference|agent
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none", AWS_DEFAULT_REGION="us-east-1")

import boto3
from opentelemetry import trace

from tests.captures.bedrock_server import BedrockServer
from tests.captures.otlp_file import record, write

ZOE = {"customer": "Zoë"}
ORDERS = '{"orders": ["A-1 for Zoë"]}'
MODEL = "anthropic.claude-3-5-sonnet-20240620-v1:0"
ANSWERS: list[Any] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "no_such_tool", {"path": "/etc/app.yaml"})],
    "first answer",
]
RESULTS: dict[str, Any] = {"search_orders": {"json": json.loads(ORDERS)}, "list_files": {"json": {"files": []}}}


def converse(model: BedrockServer) -> None:
    client = boto3.client("bedrock-runtime", endpoint_url=model.url)
    tools = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in RESULTS]
    messages: list[Any] = [{"role": "user", "content": [{"text": "find the orders"}]}]
    while True:
        answer = client.converse(modelId=MODEL, messages=messages, toolConfig={"tools": tools})["output"]["message"]
        messages.append(answer)
        results = [
            {"toolUseId": call["toolUseId"], "content": [RESULTS.get(call["name"], {"text": "not available"})]}
            for call in (block["toolUse"] for block in answer["content"] if "toolUse" in block)
        ]
        if not results:
            break
        messages.append({"role": "user", "content": [{"toolResult": result} for result in results]})


Event = tuple[str, dict[str, Any]]
CALLER = [{"agentAliasArn": "arn:aws:bedrock:us-east-1:1:agent-alias/A/A"}]


def trace_event(kind: str, number: int, body: dict[str, Any], **fields: Any) -> Event:
    """An event of the trace of an agent."""
    trace_id = f"{fields.get('collaboratorName', 'alice')}-{number}"
    return "trace", {**fields, "trace": {"orchestrationTrace": {kind: {"traceId": trace_id, **body}}}}


def asked(number: int, content: dict[str, Any], **fields: Any) -> Iterator[Event]:
    """A call of the agent's model."""
    request = {"system": "You help.", "messages": [{"role": "user", "content": "[{text=find the orders, type=text}]"}]}
    body = {"type": "ORCHESTRATION", "text": json.dumps(request), "foundationModel": MODEL}
    yield trace_event("modelInvocationInput", number, body, **fields)
    usage = {"usage": {"inputTokens": 10, "outputTokens": 5}}
    answer = {"content": json.dumps({"role": "assistant", "content": [content]})}
    yield trace_event("modelInvocationOutput", number, {"metadata": usage, "rawResponse": answer}, **fields)


def called(number: int, function: str, arguments: dict[str, str], result: str, **fields: Any) -> Iterator[Event]:
    """A function of an action group."""
    use = {"type": "tool_use", "name": f"Shop__{function}", "id": f"tooluse_{number}", "input": arguments}
    yield from asked(number, use, **fields)
    parameters = [{"name": name, "type": "string", "value": value} for name, value in arguments.items()]
    action = {"actionGroupName": "Shop", "function": function, "parameters": parameters, "executionType": "LAMBDA"}
    body = {"invocationType": "ACTION_GROUP", "actionGroupInvocationInput": action}
    yield trace_event("invocationInput", number, body, **fields)
    body = {"type": "ACTION_GROUP", "actionGroupInvocationOutput": {"text": result}}
    yield trace_event("observation", number, body, **fields)


def answered(number: int, text: str, **fields: Any) -> Iterator[Event]:
    yield from asked(number, {"type": "text", "text": text}, **fields)
    yield trace_event("observation", number, {"type": "FINISH", "finalResponse": {"text": text}}, **fields)


def delegated(number: int) -> Iterator[Event]:
    """Another agent is asked, and calls a tool of its own."""
    call = {"agentCollaboratorName": "bob", "input": {"type": "TEXT", "text": "orders of Bob?"}}
    body = {"invocationType": "AGENT_COLLABORATOR", "agentCollaboratorInvocationInput": call}
    yield trace_event("invocationInput", number, body)
    fields = {"collaboratorName": "bob", "callerChain": [*CALLER, {"agentAliasArn": "B"}]}
    yield from called(1, "search_orders", {"customer": "Bob"}, '{"orders": ["A-1 for Bob"]}', **fields)
    yield from answered(2, "bob found A-1", **fields)
    output = {"agentCollaboratorName": "bob", "output": {"type": "TEXT", "text": "bob found A-1"}}
    yield trace_event(
        "observation", number, {"type": "AGENT_COLLABORATOR", "agentCollaboratorInvocationOutput": output}
    )


def said(text: str) -> Event:
    return "chunk", {"bytes": base64.b64encode(text.encode()).decode()}


TURNS: list[list[Event]] = [
    [
        *called(1, "search_orders", ZOE, ORDERS),
        *called(2, "search_orders", ZOE, ORDERS),
        *called(3, "search_orders", ZOE, ORDERS),
        *called(4, "list_files", {"path": "/tmp"}, "[]"),
        *answered(5, "first answer"),
        said("first answer"),
    ],
    [*delegated(1), *answered(2, "second answer"), said("second answer")],
]


def invoke_agent(model: BedrockServer) -> None:
    client = boto3.client("bedrock-agent-runtime", endpoint_url=model.url)
    for words in ("find the orders", "ask bob"):
        names = {"agentId": "AGENT1", "agentAliasId": "ALIAS1", "sessionId": "chat-7"}
        for event in client.invoke_agent(**names, enableTrace=True, inputText=words)["completion"]:
            print(event.get("chunk", ""), end="")


if __name__ == "__main__":
    if sys.argv[2] == "traceloop":
        from opentelemetry.instrumentation.bedrock import BedrockInstrumentor
    else:
        from openinference.instrumentation.bedrock import BedrockInstrumentor
    exporter = record()
    BedrockInstrumentor().instrument()
    if sys.argv[2] == "agent":
        from openinference.instrumentation import using_session

        with using_session("chat-7"):
            invoke_agent(BedrockServer([*TURNS]))
    else:
        with trace.get_tracer("app").start_as_current_span("request"):
            converse(BedrockServer([*ANSWERS]))
    write(exporter, sys.argv[1])
