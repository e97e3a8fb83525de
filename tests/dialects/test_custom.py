"""A dialect nobody wrote code for: declared by attribute names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import extract_step, span_view
from trajectory_guard.dialects.custom import custom_dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard.transcripts.assemble import extract_steps

ACME = {
    "name": "acme",
    "match": {"acme.kind": "tool"},
    "tool_name": "acme.tool",
    "arguments": "acme.in",
    "result": ["acme.out", "acme.answer"],
    "call_id": "acme.call",
    "agent": "acme.who",
    "conversation": "acme.talk",
}


def acme_span(**extra: Any) -> SpanView:
    attributes = {
        "acme.kind": "tool",
        "acme.tool": "search",
        "acme.in": '{"q": 1}',
        "acme.answer": "found",
        "acme.call": "c1",
    }
    return span_view({**attributes, **extra}, "work", parent_id="c" * 16)


def parent(**attributes: Any) -> SpanView:
    return span_view(attributes, "agent", span_id="c" * 16, start=9.0, end=11.0)


def test_a_declared_dialect_reads_every_field() -> None:
    table = (custom_dialect(ACME), *DIALECTS)
    step = extract_step(acme_span(**{"acme.who": "alice", "acme.talk": "t-1"}), dialects=table)
    assert step is not None
    assert (step.tool_name, step.args, step.result, step.call_id) == ("search", {"q": 1}, "found", "c1")
    assert (step.agent_id, step.trajectory_id, step.dialect) == ("alice", "t-1", "acme")


def test_nobody_else_reads_it() -> None:
    assert extract_step(acme_span()) is None
    assert extract_steps([acme_span()]) == []


def test_agent_and_conversation_are_looked_for_above() -> None:
    spans = [acme_span(), parent(**{"acme.who": "alice", "acme.talk": "t-1"})]
    (step,) = extract_steps(spans, dialects=(custom_dialect(ACME), *DIALECTS))
    assert (step.agent_id, step.trajectory_id) == ("alice", "t-1")


def test_the_conversation_of_a_trace_is_found_on_any_span_of_it() -> None:
    beside = parent(**{"acme.talk": "t-1"})._replace(span_id="d" * 16)
    (step,) = extract_steps([beside, acme_span()], dialects=[custom_dialect(ACME), *DIALECTS])
    assert step.trajectory_id == "t-1"


def test_what_is_not_declared_is_looked_for_under_the_common_names() -> None:
    dialect = custom_dialect({"name": "acme", "match": {"acme.kind": "tool"}})
    span = acme_span(
        **{"gen_ai.tool.call.arguments": '{"x": 2}', "gen_ai.conversation.id": "conv", "gen_ai.agent.name": "bob"}
    )
    step = extract_step(span, dialects=(dialect,))
    assert step is not None
    assert (step.tool_name, step.args, step.trajectory_id, step.agent_id) == ("work", {"x": 2}, "conv", "bob")


def test_a_declared_dialect_is_asked_first_and_about_any_span() -> None:
    dialect = custom_dialect(
        {"name": "mine", "match": {"gen_ai.operation.name": "chat", "acme.tool": True}, "tool_name": "acme.tool"}
    )
    step = extract_step(acme_span(**{"gen_ai.operation.name": "chat"}), dialects=(dialect, *DIALECTS))
    assert step is not None
    assert step.dialect == "mine"


@pytest.mark.parametrize(
    ("match", "attributes", "matches"),
    [
        ({"k": True}, {"k": "x"}, True), ({"k": True}, {"k": 0}, True), ({"k": True}, {"k": False}, False), ({"k": True}, {}, False),
        ({"k": "x"}, {"k": "x"}, True), ({"k": "x"}, {"k": "y"}, False), ({"k": 3}, {"k": 3}, True), ({"k": 3}, {"k": [3]}, False),
        ({"k": "x", "l": True}, {"k": "x"}, False),
    ],
)  # fmt: skip
def test_all_declared_attributes_must_be_as_declared(
    match: dict[str, Any], attributes: dict[str, Any], matches: bool
) -> None:
    assert custom_dialect({"name": "a", "match": match}).matches(span_view(attributes)) is matches


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "d.name: expected a short name, got None"),
        ({"name": "  "}, "d.name: expected a short name, got '  '"),
        ({"match": None}, "d.match: expected at least one attribute"),
        ({"match": {}}, "d.match: expected at least one attribute"),
        ({"match": "acme.kind"}, "got 'acme.kind'"),
        ({"match": {"acme.kind": None}}, "d.match.acme.kind: expected a value or true, got None"),
        ({"match": {"acme.kind": False}}, "d.match.acme.kind: expected a value or true, got False"),
        ({"match": {7: "x"}}, "d.match: attribute names are text, got 7"),
        ({"arguments": 7}, "d.arguments: expected an attribute name, got 7"),
        ({"agent": []}, r"d.agent: expected an attribute name, got \[\]"),
        ({"result": ["a", ""]}, "d.result: expected an attribute name"),
        ({"argument": "x"}, "d: unknown key 'argument'; did you mean 'arguments'?"),
        ({"zzz": "x"}, "d: unknown key 'zzz'; known: name, match"),
    ],
)  # fmt: skip
def test_errors_name_key_and_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        custom_dialect({**ACME, **change}, where="d")


def test_something_else_than_a_mapping_is_refused() -> None:
    with pytest.raises(ValueError, match=r'expected a mapping such as \{"name": "acme"'):
        custom_dialect("acme")  # type: ignore[arg-type]
