"""Inputs: attributes in the shapes that real instrumentations emit, step records and texts of stated size."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import ERROR, SUCCESS, StepRecord

ARGS_BYTES = 200
RESULT_BYTES = 500
TOOL = "search_orders"
Attributes = list[tuple[str, Any]]


class SpanShape(NamedTuple):
    """A span to be made: its attributes in the order they are set, and those of the live spans above it."""

    name: str
    attributes: Attributes
    above: tuple[tuple[str, Attributes], ...] = ()


def arguments(number: int) -> dict[str, Any]:
    """Distinct arguments of ``ARGS_BYTES`` as JSON."""
    value = {"customer": f"customer {number}", "limit": 25, "offset": number, "open": True, "note": ""}
    room = ARGS_BYTES - len(json.dumps(value))
    value["note"] = ("late deliveries in the northern region " * 5)[: room - 1] + "."
    return value


def answer(number: int) -> str:
    """A distinct answer of ``RESULT_BYTES``, JSON text."""
    orders = [
        {"id": 7_000_000 + 4 * number + at, "total": 9.5 + number, "state": "open", "items": ["lamp", "chair"]}
        for at in range(4)
    ]
    value: dict[str, Any] = {"customer": f"customer {number}", "orders": orders, "text": ""}
    value["text"] = ("Four orders are open for this customer; " * 9)[: RESULT_BYTES - len(json.dumps(value))]
    return json.dumps(value)


def semconv(conversation: str, number: int) -> SpanShape:
    """OpenTelemetry GenAI conventions, as Pydantic AI and hand-written spans have them."""
    identity: Attributes = [("gen_ai.agent.name", "support"), ("gen_ai.conversation.id", conversation)]
    attributes: Attributes = [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", TOOL),
        ("gen_ai.tool.type", "function"),
        ("gen_ai.tool.call.id", f"call_{conversation}_{number}"),
        *identity,
        ("gen_ai.tool.call.arguments", json.dumps(arguments(number))),
        ("gen_ai.tool.call.result", answer(number)),
    ]
    agent: Attributes = [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.provider.name", "openai"), *identity]
    return SpanShape(f"execute_tool {TOOL}", attributes, (("invoke_agent support", agent),))


def large(conversation: str, number: int) -> SpanShape:
    """As ``semconv``, with a result of 50 kB: a list of a hundred answers."""
    shape = semconv(conversation, number)
    *others, (key, _) = shape.attributes
    answers = ",".join(map(answer, range(100 * number, 100 * (number + 1))))
    return shape._replace(attributes=[*others, (key, f"[{answers}]")])


def same_call(conversation: str, number: int) -> SpanShape:
    """As ``semconv``, one call with one result, again and again."""
    shape = semconv(conversation, 0)
    return shape._replace(attributes=_with(shape, **{"gen_ai.tool.call.id": f"call_{conversation}_{number}"}))


def same_result(conversation: str, number: int) -> SpanShape:
    """As ``semconv``, another call each time and one result."""
    shape = semconv(conversation, number)
    return shape._replace(attributes=_with(shape, **{"gen_ai.tool.call.result": answer(0)}))


def failing(conversation: str, number: int, size: int) -> SpanShape:
    """As ``semconv``, another call each time, which fails with a new Python traceback of ``size`` characters."""
    shape = semconv(conversation, number)
    frames = (
        f'  File "/app/orders/{name}.py", line {7 * at + number}, in {name}_{at}\n    return {name}(request, {number})\n'
        for at, name in enumerate(("handle", "authorise", "load", "fetch", "decode") * (size // 200))
    )
    last = f"OrderServiceError: request {number} failed: the index 'orders' does not exist"
    text = f"Traceback (most recent call last):\n{''.join(frames)}"[: size - len(last) - 1] + f"\n{last}"
    changed = _with(shape, **{"gen_ai.tool.call.result": text})
    return shape._replace(attributes=[*changed, ("error.type", "OrderServiceError")])


def error_lines(conversation: str, number: int) -> SpanShape:
    """As ``semconv``, two calls in turns, whose results are 8 kB of lines that all look like the head of an error."""
    shape, line = semconv(conversation, number % 2), 'Error: File "x.py", line 3, in f\nTraceback\n'
    text = f"{line * (8_000 // len(line))}{number}"
    return shape._replace(attributes=_with(shape, **{"gen_ai.tool.call.result": text}))


def _with(shape: SpanShape, **values: str) -> Attributes:
    return [(key, values.get(key, value)) for key, value in shape.attributes]


def _langgraph_metadata(conversation: str, number: int) -> dict[str, Any]:
    namespace = "tools:d62d1bdd-18f6-31b9-cc38-39cdacb1dbd8"
    return {
        "ls_integration": "langchain_create_agent", "lc_agent_name": "support_agent", "thread_id": conversation,
        "langgraph_step": 2 * number, "langgraph_node": "tools", "langgraph_triggers": ["__pregel_push"],
        "langgraph_path": ["__pregel_push", 0, False], "langgraph_checkpoint_ns": namespace, "checkpoint_ns": namespace,
    }  # fmt: skip


def _properties(metadata: dict[str, Any], *names: str) -> Attributes:
    prefix = "traceloop.association.properties."
    values = {
        name: [str(item) for item in value] if isinstance(value, list) else value for name, value in metadata.items()
    }
    return [(prefix + name, values[name]) for name in names or values]


def openllmetry(conversation: str, number: int) -> SpanShape:
    """OpenLLMetry on LangGraph: wrapped input and output, each twice."""
    metadata, args = _langgraph_metadata(conversation, number), arguments(number)
    call = {"color": "green", "name": None, "tool_call_id": f"call_{conversation}_{number}"}
    given = json.dumps(
        {"input_str": str(args), "tags": ["seq:step:1"], "metadata": metadata, "inputs": args, "kwargs": call}
    )
    message = {
        "content": answer(number),
        "type": "tool",
        "name": TOOL,
        "tool_call_id": call["tool_call_id"],
        "status": "success",
    }
    wrapped = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": message,
    }
    returned = json.dumps({"output": wrapped, "kwargs": {"tags": ["seq:step:1"], "color": "green", "name": TOOL}})
    head: Attributes = [("traceloop.workflow.name", "support_agent"), ("traceloop.entity.path", "tools")]
    attributes: Attributes = [
        *head, *_properties(metadata), ("traceloop.span.kind", "tool"), ("traceloop.entity.name", TOOL),
        ("gen_ai.provider.name", "langgraph"), ("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", TOOL),
        ("gen_ai.tool.type", "function"), ("gen_ai.tool.description", "Search orders of a customer."),
        ("traceloop.entity.input", given), ("gen_ai.tool.call.arguments", given), ("gen_ai.task.status", "success"),
        ("traceloop.entity.output", returned), ("gen_ai.tool.call.result", returned),
    ]  # fmt: skip
    task: Attributes = [
        *head, *_properties(metadata), ("traceloop.span.kind", "task"), ("traceloop.entity.name", "tools"),
        ("gen_ai.operation.name", "execute_task"), ("gen_ai.task.name", "tools"), ("traceloop.entity.input", given),
    ]  # fmt: skip
    workflow: Attributes = [
        *head, *_properties(metadata, "lc_agent_name", "thread_id"), ("traceloop.span.kind", "workflow"),
        ("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "support_agent"),
    ]  # fmt: skip
    return SpanShape(
        f"execute_tool {TOOL}", attributes, (("support_agent.workflow", workflow), ("execute_task tools", task))
    )


def openinference(conversation: str, number: int) -> SpanShape:
    """OpenInference on LangGraph: message as output, identity in a JSON attribute."""
    given, metadata = json.dumps(arguments(number)), json.dumps(_langgraph_metadata(conversation, number))
    message = {
        "content": answer(number), "additional_kwargs": {}, "response_metadata": {}, "type": "tool", "name": TOOL,
        "id": None, "tool_call_id": f"call_{conversation}_{number}", "artifact": None, "status": "success",
    }  # fmt: skip
    identity: Attributes = [("session.id", conversation), ("metadata", metadata)]
    chain: Attributes = [
        ("input.value", given),
        ("input.mime_type", "application/json"),
        *identity,
        ("openinference.span.kind", "CHAIN"),
    ]
    attributes: Attributes = [
        ("input.value", given), ("input.mime_type", "application/json"),
        ("output.value", json.dumps({"type": "tool", "data": message})), ("output.mime_type", "application/json"),
        ("tool.name", TOOL), ("tool.description", "Search orders of a customer."), *identity,
        ("openinference.span.kind", "TOOL"),
    ]  # fmt: skip
    return SpanShape(TOOL, attributes, (("support_agent", chain), ("tools", chain)))


def chat(conversation: str, number: int) -> SpanShape:
    """A model call by the semantic conventions, with usage and without content."""
    attributes: Attributes = [
        ("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "openai"), ("gen_ai.request.model", "gpt-4o"),
        ("gen_ai.response.id", f"chatcmpl-{conversation}-{number}"), ("gen_ai.response.model", "gpt-4o-2024-08-06"),
        ("gen_ai.agent.name", "support"), ("gen_ai.conversation.id", conversation),
        ("gen_ai.usage.input_tokens", 1_000 + number), ("gen_ai.usage.output_tokens", 100),
    ]  # fmt: skip
    return SpanShape("chat gpt-4o", attributes)


def model_call(conversation: str, number: int, messages: int) -> SpanShape:
    """A model call by the semantic conventions whose span holds ``messages`` messages, and an answer that asks for a
    tool."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": f"Question {number}: where is my order?"}]}]
    for at in range(1, messages, 2):
        call = {"type": "tool_call", "id": f"c{at}", "name": TOOL, "arguments": arguments(at)}
        found = {"type": "tool_call_response", "id": f"c{at}", "result": answer(at)}
        asked += [{"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [found]}]
    newest = {"type": "tool_call", "id": f"c{messages + number}", "name": TOOL, "arguments": arguments(number)}
    said = {"type": "text", "content": f"I will look at order {number}."}
    attributes: Attributes = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "gpt-5"),
        ("gen_ai.conversation.id", conversation),
        ("gen_ai.usage.input_tokens", 900),
        ("gen_ai.usage.output_tokens", 40),
        ("gen_ai.input.messages", json.dumps(asked)),
        ("gen_ai.output.messages", json.dumps([{"role": "assistant", "parts": [said, newest]}])),
    ]
    return SpanShape("chat gpt-5", attributes, semconv(conversation, number).above)


def http(conversation: str, number: int) -> SpanShape:
    """An HTTP client span, as most spans of an application are: ten attributes, none of them ours."""
    attributes: Attributes = [
        ("http.request.method", "GET"), ("url.full", f"https://api.example.com/v1/orders/{number}?expand=items"),
        ("url.scheme", "https"), ("server.address", "api.example.com"), ("server.port", 443),
        ("network.protocol.name", "http"), ("network.protocol.version", "1.1"), ("user_agent.original", "httpx/0.28.1"),
        ("http.response.status_code", 200), ("http.response.body.size", 5_120),
    ]  # fmt: skip
    return SpanShape("GET", attributes)


# --- step records --------------------------------------------------------------------------------------------


def step(index: int, *, number: int, outcome: str = SUCCESS, result: str | None = None, **fields: Any) -> StepRecord:
    """The step at ``index``; ``number`` tells calls and answers apart."""
    args = fields.pop("args", None) or arguments(number)
    text = answer(number) if result is None else result
    values: dict[str, Any] = {
        "step_id": f"{index + 1:016x}", "trajectory_id": "bench", "tool_name": TOOL, "outcome_type": outcome,
        "agent_id": "support", "timestamp": 1.0 + index, "duration": 0.2, "args": args, "result": text, **fields,
    }  # fmt: skip
    values["tool_args_hash"] = args_hash(args)
    values.setdefault("state_snapshot_hash", result_hash(outcome, text))
    return StepRecord(**values)


def healthy(index: int) -> StepRecord:
    """A new call with a new answer. Its number is never round where ``index`` is: most answers begin like the last."""
    return step(index, number=index + 1_055)


def repeated(index: int) -> StepRecord:
    """The same call, the same answer."""
    return step(index, number=0)


def reworded(index: int) -> StepRecord:
    """One of ten wordings of a request that fails with one and the same error."""
    words = ("open orders", "pending orders", "unfinished orders", "orders still open", "outstanding orders")
    args = {"query": f"{words[index % 5]} of the customer Smith{' please' * (index % 2)}", "limit": 25}
    text = f"OrderServiceError: request {index} failed: the index 'orders' does not exist"
    return step(index, number=index, args=args, outcome=ERROR, result=text)
