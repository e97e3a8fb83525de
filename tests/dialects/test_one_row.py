"""One row is all it takes to read a vendor: its tool calls, agents, conversations, usage and messages."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PACKAGE, extract_step, span_view
from trajectory_guard.core.steps import ModelTokens, StepRecord, Usage
from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, named_by
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, table_of
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.transcripts.asked import asked_in
from trajectory_guard.transcripts.assemble import extract_steps

ACME = Dialect(
    name="acme",
    matches=lambda span: span.attributes.get("acme.kind") == "tool",
    markers=("acme.kind",),
    tool_name=named_by("acme.tool"),
    arguments=("acme.in",),
    results=("acme.out",),
    call_ids=("acme.call",),
    failed_when={"acme.level": "bad"},
    identity=Identity(
        conversations=("acme.talk",),
        agent_markers=("acme.kind",),
        is_agent=lambda span: span.attributes.get("acme.kind") == "agent",
        agent_name=lambda span: span.name if span.attributes.get("acme.kind") == "agent" else None,
    ),
    models=ModelCalls(
        is_call=lambda span: span.attributes.get("acme.kind") == "model" if "acme.kind" in span.attributes else None,
        usage_markers=("acme.tokens.in",),
        input_tokens=("acme.tokens.in",),
        output_tokens=("acme.tokens.out",),
        names=("acme.model",),
    ),
    messages=Messages(
        inputs=("acme.sent",), outputs=("acme.answered",), tools=("acme.tools",), family_markers=("acme.kind",)
    ),
)
TABLE = (ACME, *DIALECTS)
QUESTION = {"role": "user", "content": "when are you open?"}
AGENT = span_view({"acme.kind": "agent", "acme.talk": "t-1"}, "alice", span_id="1" * 16, start=0.0, end=9.0)


def call(name: str, call_id: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": '{"q": 1}'}}


def model(number: int, sent: list[dict[str, Any]], answered: dict[str, Any]) -> SpanView:
    """A model call of the vendor, which ends before the tool call of that number."""
    attributes = {
        "acme.kind": "model", "acme.model": "small", "acme.tokens.in": 100, "acme.tokens.out": 20,
        "acme.sent": json.dumps(sent), "acme.answered": json.dumps(answered), "acme.tools": '[{"name": "search"}]',
    }  # fmt: skip
    start = float(number)
    return span_view(attributes, "model", span_id=f"{number:016d}", parent_id="1" * 16, start=start, end=start + 0.2)


def tool(**extra: Any) -> SpanView:
    attributes = {"acme.kind": "tool", "acme.tool": "search", "acme.in": '{"q": 1}', "acme.out": "at nine", "acme.call": "c1"}  # fmt: skip
    return span_view({**attributes, **extra}, "work", span_id="5" * 16, parent_id="1" * 16, start=2.5, end=2.6)


ASKING = model(2, [QUESTION], {"role": "assistant", "tool_calls": [call("search", "c1"), call("sing", "c2")]})
REFUSED = {"role": "tool", "tool_call_id": "c2", "content": "Unknown tool: sing"}
LATER = model(
    3, [QUESTION, {"role": "assistant", "tool_calls": [call("sing", "c2")]}, REFUSED], {"content": "At nine."}
)


def steps() -> dict[str, StepRecord]:
    found = extract_steps([LATER, tool(), ASKING, AGENT], dialects=TABLE)
    return {step.tool_name: step for step in found}


def test_a_tool_call_with_its_agent_and_conversation() -> None:
    step = extract_step(tool(), ancestors=[AGENT], dialects=TABLE)
    assert step is not None
    assert (step.dialect, step.tool_name, step.args, step.result) == ("acme", "search", {"q": 1}, "at nine")
    assert (step.call_id, step.outcome_type, step.agent_id, step.trajectory_id) == ("c1", "success", "alice", "t-1")
    assert step.run == AGENT.span_id


def test_the_row_says_when_a_call_failed() -> None:
    step = extract_step(tool(**{"acme.level": "bad"}), dialects=TABLE)
    assert step is not None
    assert step.outcome_type == "error"


def test_usage_and_the_user_message_of_its_model_calls() -> None:
    usage = model_usage(ASKING, table_of(TABLE))
    assert usage == Usage(100, 20, 0.0, pytest.approx(0.2), (ModelTokens("small", 100, 20),))
    asked = asked_in(ASKING, table_of(TABLE))
    assert asked is not None
    assert {step.asked for step in steps().values()} == {asked}
    assert sum(step.usage.tokens for step in steps().values() if step.usage is not None) == usage.tokens


def test_a_call_that_left_no_tool_span_is_read_from_its_messages() -> None:
    step = steps()["sing"]
    assert (step.dialect, step.call_id, step.outcome_type) == ("acme.messages", "c2", "error")
    assert (step.result, step.agent_id, step.trajectory_id) == ("Unknown tool: sing", "alice", "t-1")


def test_without_the_row_nothing_of_it_is_read() -> None:
    assert extract_steps([LATER, tool(), ASKING, AGENT]) == []
    assert model_usage(ASKING) is asked_in(ASKING) is None


def test_a_table_of_one_row_reads_everything_else_under_the_common_names() -> None:
    chat = span_view({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3})
    assert model_usage(chat, table_of((ACME,))) == model_usage(chat) is not None


def test_the_configuration_declares_tool_calls_agents_and_conversations() -> None:
    declared = {
        "name": "acme", "match": {"acme.kind": "tool"}, "tool_name": "acme.tool", "arguments": "acme.in",
        "result": "acme.out", "call_id": "acme.call", "agent": "acme.who", "conversation": "acme.talk",
    }  # fmt: skip
    above = AGENT._replace(attributes={"acme.who": "alice", "acme.talk": "t-1"})
    step = extract_step(tool(), ancestors=[above], dialects=table_with([declared]))
    wanted = extract_step(tool(), ancestors=[AGENT], dialects=TABLE)
    assert step is not None
    assert wanted is not None
    assert step == wanted._replace(run=None)


@pytest.mark.parametrize("field", [{"is_agent": lambda span: True}, {"agent_name": lambda span: span.name}])
def test_agent_spans_without_a_marker_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="agent_markers"):
        Identity(**field)


def test_tool_spans_without_a_marker_are_refused() -> None:
    with pytest.raises(ValueError, match="acme: markers"):
        Dialect(name="acme", matches=lambda span: True)


VENDORS = ("langfuse.", "traceloop.", "openinference.", "langsmith.", "logfire.", "gcp.vertex.", "ai.", "mlflow.", "crewai.", "pydantic_ai.", "llm.", "genkit:", "mastra.", "ag2.", "voltagent.", "lmnr.")  # fmt: skip


def literals(path: Path) -> set[str]:
    """Text constants of a module that begin like an attribute of a vendor."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    found = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {text for text in found if isinstance(text, str) and text.startswith(VENDORS)}


@pytest.mark.parametrize("package", ["spans", "transcripts"])
def test_readers_name_no_attribute_of_a_vendor(package: str) -> None:
    modules = sorted((PACKAGE / package).glob("*.py"))
    assert len(modules) > 4
    assert {path.name: found for path in modules if (found := literals(path))} == {}
