"""Model spans: the messages sent to a model, its answer, and the tools it could call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import json_object
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, MessageKeys, is_copy
from trajectory_guard.spans.content import is_object_repr
from trajectory_guard.transcripts.flattened import first_place, unflatten
from trajectory_guard.transcripts.parts import message_items, read_messages
from trajectory_guard.transcripts.transcript import Message

_OTHER_ROLES: Final = frozenset(("user", "tool", "system", "developer"))
MAX_TEXT_CHARS: Final = 4_000
"""Text of the model kept with a step, in characters."""


def is_model_span(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Whether a span is one call of a language model (not of an agent, a tool or an embedding).

    Rows that distinguish kinds of spans are consulted first: one True decides, then one False; then the weaker signs.
    """
    if is_copy(span, table):
        return False
    for tests in (table.call_tests, table.weak_call_tests):
        opinions = [test(span) for test in tests]
        if True in opinions or False in opinions:
            return True in opinions
    return not table.model_markers.isdisjoint(span.attributes)


def output_messages(span: SpanView, table: DialectTable = DIALECTS) -> list[Message]:
    """The model's answer in this span; empty if the span does not show it.

    Where the output repeats the conversation, the answer is what follows the last message that is not the model's.
    """
    messages = _best(_sources(span, table.outputs, table))
    echoed = [place for place, message in enumerate(messages) if message.role in _OTHER_ROLES]
    return messages[echoed[-1] + 1 :] if echoed else messages


def input_messages(span: SpanView, last: int | None = None, table: DialectTable = DIALECTS) -> list[Message]:
    """The messages sent to the model in this span, oldest first, or only the ``last`` ones; empty if not captured."""
    return _best(_sources(span, table.inputs, table), last)


def input_items(span: SpanView, table: DialectTable = DIALECTS) -> list[Any]:
    """The messages sent to a model, undecoded: the first source that has any. For comparing histories."""
    for source in _sources(span, table.inputs, table):
        items = message_items(source())
        if items:
            return items
    return []


def lost_messages(span: SpanView, table: DialectTable = DIALECTS) -> int | None:
    """Number of messages that are missing before those of ``input_items``; None if the newest ones may be missing.

    Where each message has attributes of its own, a limit on the number of attributes takes some away: the first ones in
    Python, the last ones elsewhere.
    """
    attributes = span.attributes
    for key in table.message_keys(table.inputs, attributes):
        if not key.endswith("."):
            if key in attributes:
                return 0
        elif (first := first_place(attributes, key)) is not None:
            return first or (None if span.dropped and span.resource.get(_LANGUAGE) != "python" else 0)
    return 0


_LANGUAGE: Final = "telemetry.sdk.language"


def may_show_input(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Whether a span has any key or event of messages, as most spans that show only what a call cost have not.

    The one look that such a span costs: without it, neither a user message nor the step of a model call is in it.
    """
    return table.has_input_keys(span.attributes) or bool(span.events)


def shows_input(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Whether a span has a place where messages sent to a model may stand: many spans show only what a call cost."""
    return next(_sources(span, table.inputs, table), None) is not None


def transcript_messages(span: SpanView, table: DialectTable = DIALECTS) -> list[Message]:
    """The whole conversation where a span of an agent or workflow keeps it as its output."""
    return _best(_sources(span, table.transcripts, table))


def _best(sources: Iterator[Callable[[], Any]], last: int | None = None) -> list[Message]:
    """The first source that shows calls (by name) or their results, else the first that shows anything."""
    fallback: list[Message] = []
    for source in sources:
        value = source()
        messages = read_messages(value if last is None else message_items(value)[-last:])
        if any(message.results or any(call.name for call in message.calls) for message in messages):
            return messages
        if not fallback and any(message.text or message.calls for message in messages):
            fallback = messages
    return fallback


def _sources(span: SpanView, wanted: MessageKeys, table: DialectTable) -> Iterator[Callable[[], Any]]:
    """Where messages may stand on a span, as functions that fetch the raw value."""
    attributes = span.attributes
    for key in table.message_keys(wanted, attributes):
        if key.endswith("."):
            if first_place(attributes, key) is not None:
                yield partial(unflatten, attributes, key)
        elif (value := attributes.get(key)) is not None and not (isinstance(value, str) and is_object_repr(value)):
            yield partial(attributes.get, key)
    for assemble in wanted.assemble:
        yield partial(assemble, attributes)
    for key in table.event_lists:
        if key in attributes:
            yield partial(_event_list, attributes[key], wanted.of_model, table.outputs.events)
    if span.events:
        yield partial(_span_events, span, wanted)


_EVENT_CONTENT: Final = "gen_ai.event.content"
"""The body of an event as JSON (Azure)."""


def _span_events(span: SpanView, wanted: MessageKeys) -> list[Any]:
    """Messages as span events: one event a message, or one event that holds them all."""
    found: list[Any] = []
    for event in span.events:
        whole = next((event.attributes[key] for key in wanted.keys if key in event.attributes), None)
        if whole is not None and event.name != "exception":
            found += message_items(whole)
        elif event.name in wanted.events:
            whole = event.attributes.get(_EVENT_CONTENT)
            found.append(_event_body(event.name, event.attributes if whole is None else json_object(whole)))
    return found


def _event_list(value: Any, of_model: bool, output_events: frozenset[str]) -> list[Any]:
    """Messages as a list of event bodies in one attribute. ``output_events`` are names of events of the model."""
    value = _decoded(value)
    bodies = [body for body in value if isinstance(body, Mapping)] if isinstance(value, (list, tuple)) else []
    named = [(str(body.get("event.name", "")), body) for body in bodies]
    return [_event_body(name, body) for name, body in named if (name in output_events) == of_model]


def _decoded(value: Any) -> Any:
    """The value of a text that is JSON, None for another text; other values as they are."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except (ValueError, RecursionError):
        return None


def _event_body(name: str, body: Mapping[str, Any]) -> Any:
    if "message" in body:
        message = body["message"]
        return {"role": "assistant", **message} if isinstance(message, Mapping) else message
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    message = {"role": "assistant" if role == "choice" else role, **body}
    return {**message, "content": _blocks(body["content"])} if "content" in body else message


def _blocks(content: Any) -> Any:
    """Content that is a list of blocks (text, call, result), written as JSON because an event holds text only."""
    if not isinstance(content, str) or not content.startswith(_BLOCKS):
        return content
    try:
        return parse_json(content)
    except (ValueError, RecursionError):
        return content


_BLOCKS: Final = ('[{"text":', '[{"toolUse":', '[{"toolResult":')

_ID_IN_TEXT: Final = re.compile(
    r'"(?:id|call_id|tool_call_id|toolCallId|tool_use_id|toolUseId|ref)\\*":\s*\\*"([^"\\]{1,200})'
)
_TAIL_CHARS: Final = 40_000


def call_ids_in(span: SpanView, table: DialectTable = DIALECTS) -> set[str] | None:
    """Call ids that the end of a span's input may mention, found without decoding it; None if that cannot be said."""
    found: set[str] = set()
    for key, value in span.attributes.items():
        if key in table.inputs.keys:
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


def defined_tools(span: SpanView, table: DialectTable = DIALECTS) -> dict[str, bool] | None:
    """Names of the tools offered to the model, and whether a person must approve each; None if the span lists none."""
    attributes = span.attributes
    listed = [tool for key in table.tools if not key.endswith(".") for tool in _tool_list(attributes.get(key))]
    if not listed:
        spread = [tool for key in table.tools if key.endswith(".") for tool in unflatten(attributes, key)]
        listed = [tool for one in spread for tool in _with_schema(one)]
    found: dict[str, bool] = {}
    for tool in listed:
        inner = (tool.get("function") or tool.get("toolSpec")) if isinstance(tool, Mapping) else None
        name = (inner if isinstance(inner, Mapping) else tool).get("name") if isinstance(tool, Mapping) else None
        if isinstance(name, str):
            found[name] = found.get(name, False) or _needs_approval(tool)
    return found or None


def _with_schema(tool: Any) -> list[Any]:
    """A tool that is spread over attributes; the whole definition may stand in one of them, as JSON."""
    return _tool_list(tool["json_schema"]) if isinstance(tool, Mapping) and "json_schema" in tool else [tool]


def _tool_list(value: Any) -> list[Any]:
    value = _decoded(value)
    if isinstance(value, Mapping):
        tools = value.get("function_tools", value.get("tools", [value]))
        return tools if isinstance(tools, list) else []
    listed = value if isinstance(value, (list, tuple)) else ()
    return [tool for one in listed for tool in (_tool_list(one) if isinstance(one, str) else (one,))]


def _needs_approval(tool: Mapping[str, Any]) -> bool:
    return tool.get("kind") == "unapproved" or any(
        tool.get(key) is True for key in ("requires_confirmation", "requires_approval", "needs_approval")
    )
