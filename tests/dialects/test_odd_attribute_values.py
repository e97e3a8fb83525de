"""A sender may write any attribute with any type. None costs the span: a text is expected, and all else is no text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.helpers import capture, capture_names, one_in, span_view
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanEvent, SpanView
from trajectory_guard.dialects.table import DIALECTS, Dialect
from trajectory_guard.integrations.langfuse.scores import session_of
from trajectory_guard.spans.extract import model_name, model_usage, requested_model, response_id
from trajectory_guard.spans.identity import all_conversation_ids, batch_and_task, conversation_id, instance_of
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard.transcripts.messages import (
    call_ids_in,
    defined_tools,
    input_messages,
    is_model_span,
    output_messages,
    transcript_messages,
)

ODD: dict[str, Any] = {
    "list": ["tool", "agent"],
    "list of lists": [["tool"], {"a": []}],
    "dict": {"type": "tool", "usage": []},
    "nested": {"a": [{"b": None}], "name": ["tool"]},
    "bytes": b"\xff\x00tool",
    "none": None,
    "huge": 10**5_000,
    "nan": math.nan,
    "infinite": -math.inf,
    "true": True,
    "list in JSON": '[["tool"], 1]',
    "objects in JSON": '{"state": ["error"], "content": [{"text": 1}], "status": {}, "usage": [], "kwargs": 1, "type": []}',
}
READ: set[str] = set()
"""All keys that any row has asked a span for."""


class Watched(dict[str, Any]):
    """Attributes that write down which of them are asked for."""

    def get(self, key: str, default: Any = None) -> Any:
        READ.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        READ.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        READ.add(str(key))
        return super().__contains__(key)


def read(span: SpanView) -> list[StepRecord]:
    """Everything that is ever read of a span, a tool call below it included. Returns their steps."""
    attributes = span.attributes
    below = span._replace(
        attributes={"gen_ai.operation.name": "execute_tool"}, span_id="c" * 16, parent_id=span.span_id
    )
    steps = extract_steps([span, below])
    for one in (model_usage, model_name, requested_model, response_id, is_model_span, output_messages, input_messages,
                transcript_messages, call_ids_in, defined_tools):  # fmt: skip
        one(span)
    conversation_id(attributes, DIALECTS)
    all_conversation_ids(attributes)
    batch_and_task(span, DIALECTS.key_set(attributes), {})
    instance_of(span, [below], DIALECTS)
    session_of([attributes])
    return steps


def functions(row: Dialect) -> Iterator[Callable[[SpanView], Any]]:
    """The functions that a row asks of a span, whatever the others say."""
    asked = (
        row.matches, row.tool_name, row.empty_result, row.succeeded, row.failed, row.awaits_approval, row.deferred,
        row.identity.wrapped_metadata, row.identity.is_agent, row.identity.no_agent, row.identity.agent_name,
        row.identity.agent_by_span_name, row.identity.handed_to, row.models.is_call, row.models.may_be_call,
        row.models.has_usage, row.models.usage, row.messages.in_family,
    )  # fmt: skip
    return (one for one in asked if one is not None)


@cache
def kinds() -> tuple[SpanView, ...]:
    """A span of each kind in the captures: of one scope, with the same names of attributes and of events."""
    found: dict[Any, SpanView] = {}
    for name in capture_names():
        for span in capture(name):
            kind = (span.scope, frozenset(span.attributes), tuple(event.name for event in span.events)[:3])
            found.setdefault(kind, span)
    return tuple(found.values())


@cache
def keys() -> tuple[str, ...]:
    """All keys that any row reads: those of the table, and those that its functions ask the spans of the captures for."""
    for span in kinds():
        watched = span._replace(attributes=Watched(span.attributes))
        for row in DIALECTS:
            for function in functions(row):
                function(watched)
        read(watched)
    return tuple(sorted(READ | DIALECTS._asked | DIALECTS.interesting | DIALECTS.name_keys))


@pytest.mark.parametrize("name", ODD)
def test_no_row_raises_for_an_attribute_of_any_type(name: str) -> None:
    """Each function of each row, for each key alone and for all together."""
    assert {"mastra.span.type", "genkit:metadata:subtype", "agentops.span.kind", "ai.operationId"} <= set(keys())
    value, scopes = ODD[name], {scope for row in DIALECTS for scope in (*row.scopes, "")}
    event = SpanEvent("exception", {"exception.type": value, "exception.message": value})
    every = dict.fromkeys(keys(), value)
    for row in DIALECTS:
        for function in functions(row):
            for attributes in (every, *({key: value} for key in keys())):
                function(span_view(attributes, scope=row.scopes[0] if row.scopes else "", events=[event]))
    for scope in scopes:
        read(span_view(every, scope=scope, events=[event], status="error"))


@pytest.mark.parametrize("at", one_in(8, range(16)))
def test_an_attribute_of_any_type_costs_no_span(at: int) -> None:
    """The spans of the captures, an attribute of each replaced: the other attributes lead to what reads it."""
    wanted = set(keys())
    for span in kinds()[at::16]:
        for key in wanted.intersection(span.attributes):
            for value in ODD.values():
                steps = read(span._replace(attributes={**span.attributes, key: value}))
                assert all(isinstance(step.tool_name, str) and step.tool_name for step in steps)
