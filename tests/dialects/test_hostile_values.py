"""Whatever an attribute holds, decoding it never raises, and an extracted step can always be compared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers import extract_step, span_view, tool_view
from trajectory_guard.dialects.span import SpanEvent
from trajectory_guard.spans.content import Decoded, Payload, decode_arguments, decode_result
from trajectory_guard.spans.extract import model_usage

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.binary(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
structures = st.sampled_from(
    ["{", "[", '"', "'", "}", "]", ":", ",", "1", "NaN", "null", "None", "content=", "Command(", "input_str", "kwargs",
     "args", "output", "\\", "\\ud800", "status='error'", "tool_call_id", "é", "\x00", " ", "b'x'", "1e999", "..."]
)  # fmt: skip
crooked = st.lists(structures, max_size=25).map("".join)

LITERALS = (
    "{1: 99999999999999999999999, 'a': 1}",
    "{(1, 2): 3}",
    "{b'k': 1}",
    "{'a': {1, 2}}",
    "{None: 1, 'x': 2}",
    "{'a': ...}",
    "{'a': 1j}",
    "{1.5: 'x', 'y': float}",
)
NESTED = (
    "[" * 10_000,
    "[" * 10_000 + "]" * 10_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    "{'a':" * 10_000,
    "(" * 10_000,
    "[{" * 5_000,
)
HUGE = (
    "x" * 1_000_000,
    '{"a": "' + "y" * 1_000_000 + '"}',
    "{'a': '" + "y" * 1_000_000 + "'}",
    "content='" + "\\" * 500_000,
)


def check(value: Any) -> None:
    """Decode ``value`` as arguments and as a result, alone and on a span."""
    assert isinstance(decode_arguments(value), Decoded)
    assert isinstance(decode_arguments(value, single=True), Decoded)
    payload = decode_result(value)
    assert isinstance(payload, Payload)
    assert payload.text is None or isinstance(payload.text, str)
    step = extract_step(tool_view(args=value, result=value))
    assert step is not None
    assert step.tool_args_hash is None or len(step.tool_args_hash) == 64


@given(any_text | crooked | values)
@example("\ud800")
@example('{"a": "\ud800"}')
@example(float("nan"))
@example(b"\xff\xfe")
@example('{"n": NaN, "i": -Infinity}')
def test_any_value_decodes(value: Any) -> None:
    check(value)


@given(values)
def test_any_json_text_decodes(value: Any) -> None:
    check(json.dumps(value, default=repr))
    check(json.dumps({"output": value, "kwargs": value}, default=repr))


@given(values)
def test_any_python_repr_decodes(value: Any) -> None:
    check(repr(value))
    check(f"content={value!r} name='x' tool_call_id='c'")


@pytest.mark.parametrize("text", LITERALS)
def test_python_reprs_that_json_cannot_write_decode(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", NESTED, ids=range(len(NESTED)))
def test_deep_nesting_decodes(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", HUGE, ids=range(len(HUGE)))
def test_a_megabyte_decodes(text: str) -> None:
    check(text)


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_a_map_value_nested_deeply_decodes(kind: type) -> None:
    value: Any = "x"
    for _ in range(10_000):
        value = {"a": value} if kind is dict else kind([value])
    check(value)


@given(st.dictionaries(st.sampled_from(sorted(
    ("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.agent.name", "error.type", "metadata", "session.id",
     "gen_ai.conversation.id", "tool.name", "openinference.span.kind", "traceloop.span.kind", "traceloop.entity.input", "mcp.method.name",
     "langfuse.observation.type", "langsmith.span.kind", "logfire.msg_template", "name", "gen_ai.usage.input_tokens", "gen_ai.usage.cost",
     "langfuse.observation.status_message", "traceloop.association.properties.langgraph_step")
)), values | st.sampled_from(["execute_tool", "tool", "TOOL", "AGENT", "chat", "task", "agent", "invoke_agent", "tools/call"])))  # fmt: skip
def test_any_attributes_on_a_span_are_read(attributes: dict[str, Any]) -> None:
    event = SpanEvent(
        "exception", {"exception.type": attributes.get("error.type"), "exception.message": attributes.get("metadata")}
    )
    span = span_view(attributes, events=[event])
    step, usage = extract_step(span, ancestors=[span]), model_usage(span)
    assert step is None or (step.tool_name and step.span_id == span.span_id)
    assert usage is None or isinstance(usage.tokens, int)
