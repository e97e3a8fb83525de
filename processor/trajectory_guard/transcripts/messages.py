"""Model spans: what was sent to a model, what it answered, and which tools it could call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.transcripts.flattened import unflatten
from trajectory_guard.transcripts.parts import message_items, read_messages
from trajectory_guard.transcripts.transcript import Message

_MODEL_OPERATIONS: Final = frozenset(
    ("chat", "generate_content", "text_completion", "completion", "generate", "message", "messages", "responses")
)
_OTHER_OPERATIONS: Final = frozenset(
    (
        "execute_tool", "invoke_agent", "create_agent", "invoke_workflow", "execute_task", "embeddings", "retrieval",
        "chain",
    )
)  # fmt: skip
_MESSAGE_KEYS: Final = (
    "gen_ai.output.messages", "gen_ai.input.messages", "gen_ai.completion.0.role", "gen_ai.completion.0.content",
    "gen_ai.prompt.0.role", "gen_ai.completion.0.tool_calls.0.name", "llm.input_messages.0.message.role",
    "llm.output_messages.0.message.role", "ai.response.toolCalls", "ai.prompt.messages",
)  # fmt: skip
_OUTPUTS: Final = (
    "gen_ai.output.messages", "llm.output_messages.", "gen_ai.completion.", "langfuse.observation.output",
    "gen_ai.completion", "output.value", "output", "response_data", "traceloop.entity.output", "mlflow.spanOutputs",
)  # fmt: skip
_INPUTS: Final = (
    "gen_ai.input.messages", "llm.input_messages.", "gen_ai.prompt.", "langfuse.observation.input", "gen_ai.prompt",
    "input.value", "input", "ai.prompt.messages", "request_data", "mlflow.spanInputs",
)  # fmt: skip
_TRANSCRIPTS: Final = (
    "gen_ai.output.messages", "pydantic_ai.all_messages", "all_messages_events", "crewai.crew.tasks_output",
    "output.value", "traceloop.entity.output", "langfuse.observation.output", "gen_ai.completion",
)  # fmt: skip
_OUTPUT_EVENTS: Final = frozenset(("gen_ai.choice", "gen_ai.content.completion"))
_INPUT_EVENTS: Final = frozenset(
    ("gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message", "gen_ai.content.prompt")
)
_OTHER_ROLES: Final = frozenset(("user", "tool", "system", "developer"))
MAX_TEXT_CHARS: Final = 4_000
"""Text of the model kept with a step, in characters."""


def is_model_span(span: SpanView) -> bool:
    """Whether a span is one call of a language model (not of an agent, a tool or an embedding)."""
    attributes = span.attributes
    if attributes.get("logfire.span_type") == "pending_span":
        return False
    operation = str(attributes.get("gen_ai.operation.name") or "")
    kind = attributes.get("openinference.span.kind")
    if operation in _MODEL_OPERATIONS or kind == "LLM" or attributes.get("langfuse.observation.type") == "generation":
        return True
    if operation in _OTHER_OPERATIONS or kind is not None or "langfuse.observation.type" in attributes:
        return False
    if attributes.get("langsmith.span.kind") == "llm" or attributes.get("llm.request.type") in ("chat", "completion"):
        return True
    if str(attributes.get("logfire.msg_template", "")).startswith(("Chat completion", "Responses API", "Message with")):
        return True
    return "traceloop.span.kind" not in attributes and any(key in attributes for key in _MESSAGE_KEYS)


def output_messages(span: SpanView) -> list[Message]:
    """The answer of the model in this span; empty if the span does not record it.

    Where the output repeats the conversation, the answer is what follows the last message that is not the model's.
    """
    messages = _best(_sources(span, _OUTPUTS, _OUTPUT_EVENTS))
    echoed = [place for place, message in enumerate(messages) if message.role in _OTHER_ROLES]
    return messages[echoed[-1] + 1 :] if echoed else messages


def input_messages(span: SpanView, last: int | None = None) -> list[Message]:
    """The input of the model in this span, oldest first, or only the ``last`` messages; empty if it is not recorded."""
    return _best(_sources(span, _INPUTS, _INPUT_EVENTS), last)


def input_items(span: SpanView) -> list[Any]:
    """The input messages of a model, undecoded: the first source that has any. For comparing histories."""
    for source in _sources(span, _INPUTS, _INPUT_EVENTS):
        items = message_items(source())
        if items:
            return items
    return []


def transcript_messages(span: SpanView) -> list[Message]:
    """The whole conversation where a span of an agent or workflow keeps it as its output."""
    return _best(_sources(span, _TRANSCRIPTS, frozenset()))


def _best(sources: Iterator[Callable[[], Any]], last: int | None = None) -> list[Message]:
    """The first source with calls (by name) or answers, else the first with any message."""
    told: list[Message] = []
    for source in sources:
        value = source()
        messages = read_messages(value if last is None else message_items(value)[-last:])
        if any(message.answers or any(call.name for call in message.calls) for message in messages):
            return messages
        if not told and any(message.text or message.calls for message in messages):
            told = messages
    return told


def _sources(span: SpanView, keys: tuple[str, ...], events: frozenset[str]) -> Iterator[Callable[[], Any]]:
    """Where messages may stand on a span, as functions that fetch the raw value."""
    attributes = span.attributes
    for key in keys:
        if key.endswith("."):
            if any(name.startswith((f"{key}0.", f"{key}1.")) for name in attributes):
                yield partial(unflatten, attributes, key)
        elif attributes.get(key) is not None:
            yield partial(attributes.get, key)
    if keys is _OUTPUTS and "ai.response.toolCalls" in attributes:
        yield partial(_vercel, attributes)
    if "events" in attributes:
        yield partial(_event_list, attributes["events"], keys is _OUTPUTS)
    if span.events:
        yield partial(_span_events, span, keys, events)


def _vercel(attributes: Mapping[str, Any]) -> list[Any]:
    text, calls = attributes.get("ai.response.text"), attributes["ai.response.toolCalls"]
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


def _span_events(span: SpanView, keys: tuple[str, ...], names: frozenset[str]) -> list[Any]:
    """Messages as span events: one event a message, or one event that holds them all."""
    found: list[Any] = []
    for event in span.events:
        whole = next((event.attributes[key] for key in keys if key in event.attributes), None)
        if whole is not None and event.name != "exception":
            found += message_items(whole)
        elif event.name in names:
            found.append(_event_body(event.name, event.attributes))
    return found


def _event_list(value: Any, outputs: bool) -> list[Any]:
    """Messages as a list of event bodies in one attribute (Pydantic AI 1.x)."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            return []
    bodies = [body for body in value if isinstance(body, Mapping)] if isinstance(value, (list, tuple)) else []
    named = [(str(body.get("event.name", "")), body) for body in bodies]
    return [_event_body(name, body) for name, body in named if (name in _OUTPUT_EVENTS) == outputs]


def _event_body(name: str, body: Mapping[str, Any]) -> Any:
    if "message" in body:
        message = body["message"]
        return {"role": "assistant", **message} if isinstance(message, Mapping) else message
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    return {"role": "assistant" if role == "choice" else role, **body}


_ID_IN_TEXT: Final = re.compile(
    r'"(?:id|call_id|tool_call_id|toolCallId|tool_use_id|toolUseId)\\*":\s*\\*"([^"\\]{1,200})'
)
_TAIL_CHARS: Final = 40_000


def ids_told(span: SpanView) -> set[str] | None:
    """Call ids that the end of a span's input may mention, found without decoding it; None if that is impossible."""
    found: set[str] = set()
    for key, value in span.attributes.items():
        if key in _INPUTS:
            if not isinstance(value, str):
                return None
            found.update(_ID_IN_TEXT.findall(value, max(0, len(value) - _TAIL_CHARS)))
        elif key.endswith(("tool_call_id", "tool_call.id")) and isinstance(value, str):
            found.add(value)
    return None if span.events else found


def text_of(messages: list[Message]) -> str | None:
    """The model's own words in an answer, shortened to ``MAX_TEXT_CHARS``; None if there are none."""
    text = "\n".join(message.text for message in messages if message.text).strip()
    return text[:MAX_TEXT_CHARS] or None


# --- tools the model could call ------------------------------------------------------------------------------


def defined_tools(span: SpanView) -> dict[str, bool] | None:
    """Names of the tools offered to the model, and whether a person must approve each; None if the span lists none."""
    attributes = span.attributes
    listed: list[Any] = []
    for key in ("model_request_parameters", "gen_ai.tool.definitions"):
        listed += _tool_list(attributes.get(key))
    if not listed:
        listed = [_tool_list(tool.get("json_schema")) for tool in unflatten(attributes, "llm.tools.") if _is_tool(tool)]
        listed = [tool for tools in listed for tool in tools] + unflatten(attributes, "llm.request.functions.")
    found: dict[str, bool] = {}
    for tool in listed:
        inner = tool.get("function") if isinstance(tool, Mapping) else None
        name = (inner if isinstance(inner, Mapping) else tool).get("name") if isinstance(tool, Mapping) else None
        if isinstance(name, str):
            found[name] = found.get(name, False) or _needs_approval(tool)
    return found or None


def _is_tool(value: Any) -> bool:
    return isinstance(value, Mapping) and "json_schema" in value


def _tool_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            return []
    if isinstance(value, Mapping):
        tools = value.get("function_tools", [value])
        return tools if isinstance(tools, list) else []
    return list(value) if isinstance(value, (list, tuple)) else []


def _needs_approval(tool: Mapping[str, Any]) -> bool:
    return tool.get("kind") == "unapproved" or any(
        tool.get(key) is True for key in ("requires_confirmation", "requires_approval", "needs_approval")
    )
