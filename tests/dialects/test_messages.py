"""Calls that left no tool span are read from the messages of model spans, once each, with their results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import DATA, capture, capture_names, fewer_examples, lines, span_view, tool_view
from trajectory_guard.core.content.outcome import is_refusal
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanEvent, SpanView
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard.transcripts.messages import (
    call_ids_in,
    defined_tools,
    input_items,
    input_messages,
    is_model_span,
    output_messages,
    transcript_messages,
)
from trajectory_guard.transcripts.parts import message_items, read_messages
from trajectory_guard.transcripts.reprs import parse_repr
from trajectory_guard.transcripts.transcript import Message, ToolCall, ToolResult, linked, result_text

WITH_MESSAGES = sorted(path.name.removesuffix(".messages.jsonl") for path in (DATA / "golden").glob("*.messages.jsonl"))
FIELDS = ("span_id", "tool_name", "call_id", "args", "outcome_type", "agent_id", "trajectory_id", "evidence")
ARGS = {"q": 1}


def spanless(spans: list[SpanView]) -> list[StepRecord]:
    """Steps that were read from messages."""
    return [step for step in extract_steps(spans) if (step.dialect or "").endswith(".messages")]


# --- the captures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_MESSAGES)
def test_calls_without_a_span_are_as_a_careful_reader_found_them(name: str) -> None:
    wanted = list(lines(DATA / "golden" / f"{name}.messages.jsonl"))
    got = spanless(capture(name))
    assert [tuple(str(row[field]) for field in FIELDS) for row in wanted] == [
        tuple(str(getattr(step, field)) for field in FIELDS) for step in got
    ]
    for row, step in zip(wanted, got, strict=True):
        assert step.result == row["result"] or _as_json(step.result) == _as_json(row["result"])


def _as_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@pytest.mark.parametrize("name", sorted(set(capture_names()) - set(WITH_MESSAGES)))
def test_nothing_is_counted_twice(name: str) -> None:
    assert spanless(capture(name)) == []


def test_tool_spans_alone_are_a_switch() -> None:
    spans = capture("client-openai-traceloop__loop")
    assert extract_steps(spans, messages=False) == []
    assert len(extract_steps(spans)) == 3


@pytest.mark.parametrize("name", ["client-responses-traceloop__loop", "openlit-langchain__hitl_middleware_reject", "crewai-traceloop-react__crew",
                                  "agent-framework-content__approval_rejected", "openai-agents-traceloop__approval_reject", "llamaindex-openinference__single"])  # fmt: skip
@given(data=st.data())
@fewer_examples(8)
def test_any_order_gives_the_same_steps(name: str, data: Any) -> None:
    spans = capture(name)
    assert extract_steps(data.draw(st.permutations(spans))) == extract_steps(spans)


def test_a_step_read_from_messages_has_an_id_of_its_own() -> None:
    steps = [step for name in capture_names() for step in extract_steps(capture(name))]
    ids = [(step.trace_id, step.step_id) for step in steps]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ["openai-agents-traceloop__approval_reject", "openai-agents-logfire__approval_reject"])
def test_a_refusal_reported_in_another_trace_reaches_the_tool_span(name: str) -> None:
    (step,) = (step for step in extract_steps(capture(name)) if step.tool_name == "delete_all")
    assert (step.outcome_type, step.result) == ("denied", "Tool execution was not approved.")


# --- shapes of messages --------------------------------------------------------------------------------------

CALL = ToolCall("search", ARGS, "c1")
TEXT_ARGS = json.dumps(ARGS)
CALL_SHAPES: dict[str, Any] = {
    "semconv": {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": ARGS}]},
    "openai chat": {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": TEXT_ARGS}}]},
    "openai choices": {"choices": [{"message": {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": TEXT_ARGS}}]}}]},
    "responses item": [{"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "search", "arguments": TEXT_ARGS}],
    "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "c1", "name": "search", "input": ARGS}]},
    "bedrock": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "search", "input": ARGS}}]},
    "gemini": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "search", "args": ARGS}}]},
    "langchain": {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": ARGS, "id": "c1", "type": "tool_call"}]},
    "langchain constructor": {"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": ARGS, "id": "c1"}]}},
    "langchain result": {"generations": [[{"text": "", "message": {"lc": 1, "kwargs": {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": ARGS, "id": "c1"}]}}}]]},
    "vercel": {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "search", "args": ARGS}]},
    "vercel 6": {"role": "assistant", "content": None, "tool_calls": [{"toolCallId": "c1", "toolName": "search", "input": TEXT_ARGS}]},
    "haystack": {"replies": [{"role": "assistant", "content": [{"tool_call": {"tool_name": "search", "arguments": ARGS, "id": "c1"}}]}]},
    "crewai listener": {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "'search'", "arguments": TEXT_ARGS}}]},
    "pydantic ai": {"role": "assistant", "parts": [{"part_kind": "tool-call", "tool_name": "search", "args": ARGS, "tool_call_id": "c1"}]},
    "haystack repr": ["ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[ToolCall(tool_name='search', arguments={'q': 1}, id='c1', extra=None)])"],
    "item as repr in text": [{"role": "assistant", "parts": [{"type": "text", "content": repr({"arguments": TEXT_ARGS, "call_id": "c1", "name": "search", "type": "function_call"})}]}],
}  # fmt: skip
ANSWER_SHAPES: dict[str, Any] = {
    "semconv": {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]},
    "semconv by user": {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": "found"}]},
    "openai chat": {"role": "tool", "tool_call_id": "c1", "content": "found"},
    "responses item": {"type": "function_call_output", "call_id": "c1", "output": "found"},
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]}]},
    "bedrock": {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "found"}], "status": "success"}}]},
    "gemini": {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "search", "response": "found"}}]},
    "langchain": {"type": "tool", "content": "found", "tool_call_id": "c1"},
    "langchain constructor": {"lc": 1, "id": ["ToolMessage"], "kwargs": {"type": "tool", "content": "found", "tool_call_id": "c1", "status": "success"}},
    "langchain data": {"type": "tool", "data": {"content": "found", "tool_call_id": "c1"}},
    "vercel": {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "search", "result": "found"}]},
    "vercel 6": {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "search", "output": {"type": "text", "value": "found"}}]},
    "vercel 6 json": {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "search", "output": {"type": "json", "value": "found"}}]},
    "haystack": {"role": "tool", "content": [{"tool_call_result": {"result": "found", "origin": {"tool_name": "search", "arguments": ARGS, "id": "c1"}, "error": False}}]},
    "llamaindex": {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "blocks": [{"block_type": "text", "text": "found"}]},
}  # fmt: skip


@pytest.mark.parametrize("encode", [lambda value: value, json.dumps], ids=["map", "text"])
@pytest.mark.parametrize("shape", CALL_SHAPES)
def test_a_call_is_read_in_every_known_shape(shape: str, encode: Any) -> None:
    (call,) = (call for message in read_messages(encode(CALL_SHAPES[shape])) for call in message.calls)
    assert (call.name, call.call_id) == ("search", "c1")
    assert call.arguments in (ARGS, TEXT_ARGS)


@pytest.mark.parametrize("encode", [lambda value: value, json.dumps], ids=["map", "text"])
@pytest.mark.parametrize("shape", ANSWER_SHAPES)
def test_an_answer_is_read_in_every_known_shape(shape: str, encode: Any) -> None:
    (answer,) = (answer for message in read_messages(encode([ANSWER_SHAPES[shape]])) for answer in message.results)
    assert (answer.call_id, result_text(answer)) == ("c1", "found")


def test_openinference_attributes_are_gathered_into_messages() -> None:
    prefix = "llm.output_messages.0.message"
    span = span_view({
        "openinference.span.kind": "LLM", f"{prefix}.role": "assistant", f"{prefix}.tool_calls.0.tool_call.id": "c1",
        f"{prefix}.tool_calls.0.tool_call.function.name": "search", f"{prefix}.tool_calls.0.tool_call.function.arguments": TEXT_ARGS,
        f"{prefix}.tool_calls.10.tool_call.function.name": "last", f"{prefix}.tool_calls.2.tool_call.function.name": "middle",
    })  # fmt: skip
    (message,) = output_messages(span)
    assert message.calls[0] == CALL._replace(arguments=TEXT_ARGS)
    assert [call.name for call in message.calls] == ["search", "middle", "last"]


def test_openllmetry_attributes_are_gathered_into_messages() -> None:
    span = span_view({
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "search", "gen_ai.completion.0.tool_calls.0.arguments": TEXT_ARGS,
        "gen_ai.prompt.0.role": "tool", "gen_ai.prompt.0.tool_call_id": "c0", "gen_ai.prompt.0.content": "found",
    })  # fmt: skip
    assert is_model_span(span)
    assert output_messages(span)[0].calls == (CALL._replace(arguments=TEXT_ARGS),)
    assert input_messages(span)[0].results == (ToolResult("c0", "found"),)


@pytest.mark.parametrize(
    "events",
    [
        [SpanEvent("gen_ai.choice", {"index": 0, "message": CALL_SHAPES["openai chat"]})],
        [SpanEvent("gen_ai.choice", {"message": json.dumps(CALL_SHAPES["openai chat"])})],
        [SpanEvent("gen_ai.client.inference.operation.details", {"gen_ai.output.messages": [CALL_SHAPES["semconv"]]})],
        [SpanEvent("gen_ai.content.completion", {"gen_ai.completion": json.dumps([CALL_SHAPES["openai chat"]])})],
    ],
    ids=["choice", "choice as text", "details", "content"],
)
def test_messages_in_events_are_read(events: list[SpanEvent]) -> None:
    span = span_view({"gen_ai.operation.name": "chat"}, events=events)
    assert [call.name for message in output_messages(span) for call in message.calls] == ["search"]


def test_an_output_that_repeats_the_conversation_is_cut_to_the_answer() -> None:
    before = [CALL_SHAPES["semconv"], ANSWER_SHAPES["semconv"]]
    span = span_view(
        {"gen_ai.operation.name": "chat", "gen_ai.output.messages": [*before, {"role": "assistant", "content": "done"}]}
    )
    assert [(message.text, message.calls) for message in output_messages(span)] == [("done", ())]


def test_text_in_the_react_form_is_a_call_only_with_its_observation() -> None:
    text = 'Thought: look\nAction: search\nAction Input: {"q": 1}\n'
    assert read_messages([{"role": "assistant", "content": text}])[0].calls == ()
    (message,) = read_messages([{"role": "assistant", "content": f"{text}Observation: found\n\nThought: I know"}])
    assert (message.calls[0].name, message.results[0].value) == ("search", "found")


def test_a_repr_is_read_and_never_evaluated() -> None:
    assert parse_repr("A(x=<E.B: 'b'>, y=[1, -2], z={'k': (None, True)}, o=<m.C object at 0x7f>)") == {
        "__class__": "A", "x": "b", "y": [1, -2], "z": {"k": [None, True]}, "o": None,
    }  # fmt: skip
    assert parse_repr("__import__('os').system('true')") is not None  # read as text of a call, nothing more
    assert parse_repr("[x for x in ()]") is None
    assert parse_repr("A(x='cut o") is None


# --- links between calls and answers -------------------------------------------------------------------------


def test_answers_are_linked_by_id_then_by_the_tail_of_the_id_then_by_place() -> None:
    calls = (ToolCall("a", None, "fc_1"), ToolCall("b", None, "x"), ToolCall("c"))
    answers = (ToolResult(None, "third"), ToolResult("x", "second"), ToolResult("_1", "first"))
    found = linked([Message("assistant", "", calls), Message("tool", "", (), answers)])
    assert [(call.name, answer and answer.value) for call, answer in found] == [
        ("a", "first"),
        ("b", "second"),
        ("c", "third"),
    ]


def test_an_answer_without_a_partner_is_left_out() -> None:
    assert linked([Message("tool", "", (), (ToolResult("x", 1),))]) == []
    found = linked([Message("assistant", "", (CALL,)), Message("tool", "", (), (ToolResult("other", 1),))])
    assert found[0][1] is None or found[0][1].call_id == "other"  # the only answer to the only call


# --- whole spans ---------------------------------------------------------------------------------------------


def model(number: int, reported: list[Any], said: Any = None, *, trace: str = "a" * 32, **attributes: Any) -> SpanView:
    """The ``number``-th model call of a conversation, one second after the one before."""
    values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(reported), **attributes}
    if said is not None:
        values["gen_ai.output.messages"] = json.dumps([said])
    return span_view(values, "chat", trace_id=trace, span_id=f"{number:016x}", start=float(number), end=number + 0.5)


def ask(name: str = "search", args: Any = ARGS, call_id: str | None = "c1", text: str | None = None) -> dict[str, Any]:
    """A model message with one call."""
    parts: list[Mapping[str, Any]] = [{"type": "text", "content": text}] if text else []
    return {
        "role": "assistant",
        "parts": [*parts, {"type": "tool_call", "id": call_id, "name": name, "arguments": args}],
    }


def answer(text: str, call_id: str | None = "c1") -> dict[str, Any]:
    """The message that answers it."""
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": text}]}


GO = {"role": "user", "parts": [{"type": "text", "content": "go"}]}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("3 rows", "success"), ("", "empty"), ('{"rows": []}', "empty"), ('{"errors": []}', "success"),
        ("Error: no such file", "error"), ("Tool 'search' not found. Available tools: x", "error"),
        ("The user doesn't want to proceed", "denied"), ("Function call was rejected by the user", "denied"),
        ("The tool call was denied.", "denied"), ("permission denied: /etc/shadow", "success"),
    ],
)  # fmt: skip
def test_the_outcome_is_read_from_the_result_that_the_model_got(text: str, outcome: str) -> None:
    (step,) = spanless([model(1, [GO], ask()), model(2, [GO, ask(), answer(text)])])
    assert (step.result, step.outcome_type, str(step.evidence)) == (text, outcome, "full")


def test_a_tool_the_model_could_not_choose_is_an_error_even_without_content() -> None:
    tools = json.dumps([{"type": "function", "name": "other"}])
    (step,) = spanless([model(1, [GO], ask(args=None), **{"gen_ai.tool.definitions": tools})])
    assert (step.outcome_type, step.result, str(step.evidence)) == ("error", None, "name_only")


@pytest.mark.parametrize("name", ["search", "other"])
def test_a_call_with_the_name_of_an_agent_of_the_trace_is_no_error(name: str) -> None:
    """smolagents: the tools that a manager is offered do not name the agents that it may call."""
    tools = json.dumps([{"type": "function", "name": "final_answer"}])
    agent = span_view({"gen_ai.operation.name": "invoke_agent"}, f"invoke_agent {name}", span_id="a" * 16, start=1.5)
    (step,) = spanless([model(1, [GO], ask(), **{"gen_ai.tool.definitions": tools}), agent])
    assert step.outcome_type == ("success" if name == "search" else "error")


def test_a_call_that_needs_approval_and_was_not_carried_out_is_denied_or_still_waiting() -> None:
    tools = {"llm.tools.0.tool.json_schema": '{"function": {"name": "search"}, "requires_confirmation": true}'}
    assert defined_tools(model(1, [], None, **tools)) == {"search": True}
    waiting = spanless([model(1, [GO], ask(), **tools)])
    refused = spanless([model(1, [GO], ask(), **tools), model(2, [GO, ask(), answer("better not")])])
    assert [step.outcome_type for step in waiting + refused] == ["interrupted", "denied"]


def test_a_call_seen_in_several_inputs_counts_once() -> None:
    history = [GO, ask(), answer("found")]
    spans = [
        model(1, [GO], ask()),
        model(2, history, ask(call_id="c2")),
        model(3, [*history, ask(call_id="c2"), answer("again", "c2")]),
    ]
    assert [(step.call_id, step.result) for step in spanless(spans)] == [("c1", "found"), ("c2", "again")]


def test_the_same_id_in_a_later_answer_of_the_model_is_another_call() -> None:
    history = [GO, ask(), answer("one")]
    spans = [model(1, [GO], ask()), model(2, history, ask()), model(3, [*history, ask(), answer("two")])]
    assert [step.result for step in spanless(spans)] == ["one", "two"]


def test_two_instrumentations_of_one_model_call_tell_it_once() -> None:
    outer = model(1, [GO], ask())
    nested = outer._replace(span_id="f" * 16, parent_id=outer.span_id, start=1.1, end=1.4)
    beside = outer._replace(span_id="e" * 16, start=1.2, end=1.6)
    assert len(spanless([outer, nested, beside])) == 1


@pytest.mark.parametrize(
    "args", [ARGS, None, {"q": 1, "limit": 10}, {"other": True}], ids=["equal", "unknown", "defaults", "changed"]
)
@pytest.mark.parametrize("call_id", ["c1", None, "run-77"])
def test_a_call_with_a_tool_span_is_not_counted_again(args: Any, call_id: str | None) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": call_id,
                  "gen_ai.tool.call.arguments": None if args is None else json.dumps(args)}  # fmt: skip
    tool = span_view(
        {key: value for key, value in attributes.items() if value is not None}, start=1.6, end=1.7, trace_id="a" * 32
    )
    steps = extract_steps([model(1, [GO], ask(text="I look it up")), tool, model(2, [GO, ask(), answer("x")])])
    assert [step.span_id for step in steps] == [tool.span_id]
    assert steps[0].thought == "I look it up"


def test_the_words_of_the_model_go_to_the_first_call_of_a_message_only() -> None:
    said = {
        "role": "assistant",
        "parts": [{"type": "text", "content": "both"}, *ask()["parts"], *ask("read", call_id="c2")["parts"]],
    }
    assert [step.thought for step in spanless([model(1, [GO], said)])] == ["both", None]


def test_calls_of_one_message_are_one_batch() -> None:
    said = {"role": "assistant", "parts": [*ask()["parts"], *ask(call_id="c2")["parts"]]}
    one, two = spanless([model(1, [GO], said)])
    assert one.batch == two.batch is not None
    assert one.step_id != two.step_id


def test_a_model_span_without_output_is_read_from_the_next_input() -> None:
    spans = [
        model(1, [GO]),
        model(2, [GO, ask(text="hm"), answer("found")]),
        model(3, [GO, ask(), answer("found"), ask(call_id="c2"), answer("x", "c2")]),
    ]
    assert [(step.span_id, step.call_id, step.result, step.thought) for step in spanless(spans)] == [
        (spans[0].span_id, "c1", "found", "hm"), (spans[1].span_id, "c2", "x", None),
    ]  # fmt: skip


def test_an_answer_in_another_trace_needs_the_same_call_there() -> None:
    other = "b" * 32
    same = model(5, [GO, ask(), answer("found")], trace=other)
    renamed = model(5, [GO, ask("read"), answer("found")], trace=other)
    assert [step.result for step in spanless([model(1, [GO], ask()), same])] == ["found"]
    assert [step.result for step in spanless([model(1, [GO], ask()), renamed])] == [None]


def test_an_answer_in_another_trace_without_a_common_id_needs_the_same_history() -> None:
    stranger = {"role": "user", "parts": [{"type": "text", "content": "something else"}]}
    later = [model(5, [start, ask(call_id="c9"), answer("found", "c9")], trace="b" * 32) for start in (GO, stranger)]
    assert [spanless([model(1, [GO], ask(call_id="item_1")), span])[0].result for span in later] == ["found", None]


def test_an_answer_in_another_trace_needs_the_same_opening() -> None:
    stranger = {"role": "user", "parts": [{"type": "text", "content": "something else"}]}
    later = model(5, [stranger, ask(), answer("found")], trace="b" * 32)
    assert [step.result for step in spanless([model(1, [GO], ask()), later])] == [None]


def test_a_call_carried_out_later_in_another_trace_is_not_counted_twice() -> None:
    asked = model(1, [GO], ask())
    done = tool_view(args=json.dumps(ARGS), trace_id="b" * 32, extra={"gen_ai.tool.call.id": "c1"})
    other = tool_view(args='{"q": 2}', trace_id="b" * 32, extra={"gen_ai.tool.call.id": "c1"})
    assert len(extract_steps([asked, done])) == 1
    assert len(extract_steps([asked, other])) == 2


def test_an_answer_of_another_named_conversation_is_not_taken() -> None:
    named = [{"gen_ai.conversation.id": name} for name in ("x", "y")]
    spans = [model(1, [GO], ask(), **named[0]), model(5, [GO, ask(), answer("found")], trace="b" * 32, **named[1])]
    assert [step.result for step in spanless(spans)] == [None]


def test_the_models_side_of_a_handoff_is_no_step() -> None:
    handoff = span_view({"gen_ai.operation.name": "handoff"}, "handoff", trace_id="a" * 32, span_id="9" * 16, start=1.7)
    call = ask("transfer_to_bob", {})
    assert spanless([model(1, [GO], call), handoff]) == []
    assert spanless([model(1, [GO], call), model(2, [GO, call, answer('{"assistant": "bob"}')])]) == []
    assert len(spanless([model(1, [GO], call), model(2, [GO, call, answer("you talk to a person now")])])) == 1


def test_a_transcript_on_an_agent_span_is_read_only_without_model_spans() -> None:
    history = json.dumps([GO, ask(), answer("found"), ask("read", call_id="c2"), answer("x", "c2")])
    agent = span_view({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "alice", "gen_ai.output.messages": history},
                      "invoke_agent alice", trace_id="a" * 32, span_id="9" * 16, start=0.0, end=9.0)  # fmt: skip
    steps = spanless([agent])
    assert [(step.tool_name, step.result, step.agent_id) for step in steps] == [
        ("search", "found", "alice"),
        ("read", "x", "alice"),
    ]
    assert 0.0 < steps[0].timestamp < steps[1].timestamp < 9.0
    assert [step.span_id for step in spanless([agent, model(1, [GO], ask())])] == [f"{1:016x}"]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("Tool execution was not approved.", True), ("User rejected the tool call for `x` with reason: no", True),
        ("the request was declined by the reviewer", True), ("Access denied", False), ("connection refused", False),
        ("The payment was declined", False), ("0 rows", False),
    ],
)  # fmt: skip
def test_a_refusal_names_a_person_or_an_approval(text: str, refused: bool) -> None:
    assert is_refusal(text) is refused


# --- hostile input -------------------------------------------------------------------------------------------

keys = st.sampled_from([
    "type", "role", "parts", "content", "tool_calls", "function", "name", "arguments", "id", "call_id", "messages", "lc", "kwargs", "data",
    "output", "response", "is_error", "status", "origin", "toolUse", "function_call", "approved", "generations", "agent", "additional_kwargs",
])  # fmt: skip
words = st.sampled_from([
    "tool_call", "tool_call_response", "assistant", "tool", "ai", "text", "function_call", "message", "{", "[", "A(", "{'type': ", "", "\ud800",
])  # fmt: skip
junk = st.recursive(
    words | st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)  # fmt: skip


@given(junk)
def test_no_value_makes_reading_fail(value: Any) -> None:
    for message in (
        *read_messages(value),
        *read_messages(json.dumps(value, default=repr)),
        *read_messages(repr(value)),
    ):
        assert isinstance(message, Message)
        for found in message.results:
            assert isinstance(result_text(found), (str, type(None)))
    message_items(value)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([
                "gen_ai.operation.name", "openinference.span.kind", "gen_ai.output.messages", "gen_ai.input.messages", "output.value", "events",
                "llm.output_messages.0.message.role", "llm.output_messages.0", "llm.tools.0.tool.json_schema", "gen_ai.tool.definitions",
                "model_request_parameters", "traceloop.entity.output", "gen_ai.completion.0.role", "llm.output_messages.x.y", "input.value",
            ]),
            junk | st.sampled_from(["chat", "LLM", "invoke_agent"]), max_size=8,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_no_span_makes_extraction_fail(found: list[dict[str, Any]]) -> None:
    spans = [
        span_view(attributes, span_id=f"{at:016x}", parent_id=f"{at - 1:016x}", start=at, end=at + 1)
        for at, attributes in enumerate(found)
    ]
    known = {span.span_id for span in spans}
    assert all(step.tool_name and step.span_id in known for step in extract_steps(spans))
    for span in spans:
        defined_tools(span), transcript_messages(span), input_items(span), call_ids_in(span)


@pytest.mark.parametrize(
    "text",
    ["[" * 5_000, "A(" * 5_000, '{"messages":' * 5_000, "{'a':" * 5_000, "ToolCall(tool_name='x', " + "a" * 1_000_000],
)
def test_deep_or_long_text_is_left_unread(text: str) -> None:
    assert all(not message.calls for message in read_messages(text))


def test_an_agent_span_without_tool_results_does_not_answer_a_call_that_waits() -> None:
    waiting = tool_view(result=None, status_description="GraphInterrupt(())", status="error", start=1.0, end=2.0)
    resumed = {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": json.dumps([{"role": "user", "content": "go on"}])}  # fmt: skip
    (step,) = extract_steps([waiting, span_view(resumed, span_id="9" * 16, start=3.0, end=4.0)])
    assert (step.outcome_type, step.result) == ("interrupted", None)


def test_names_beside_the_positions_of_a_list_do_not_hide_its_messages() -> None:
    """OpenLLMetry writes the content filter of Azure beside the messages."""
    span = span_view({
        "gen_ai.prompt.prompt_filter_results": "[]", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Hello",
    })  # fmt: skip
    assert [(one.role, one.text) for one in input_messages(span)] == [("user", "Hello")]
