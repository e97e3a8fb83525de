"""What one request to a model says of the calls before it."""

from __future__ import annotations

import json
from typing import Any

from tests.dialects.test_messages import ARGS, spanless
from tests.helpers import span_view
from trajectory_guard.dialects.span import SpanEvent
from trajectory_guard.transcripts.messages import output_messages
from trajectory_guard.transcripts.parts import message_items, read_messages


def test_a_conversation_that_one_message_quotes_is_read() -> None:
    items = [
        {"role": "user", "content": "find"},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ]

    def quoting(text: str) -> Any:
        return [{"role": "user", "parts": [{"type": "text", "content": text}]}]

    written = quoting(json.dumps(items))
    assert message_items(written) == items
    assert read_messages(written) == read_messages(items)
    for other in ('[{"type": "x"}, 1]', '[{"role":', "[1]"):
        assert message_items(quoting(other)) == quoting(other)
        assert [message.text for message in read_messages(quoting(other))] == [other]


def test_a_result_is_found_where_starts_are_whole_milliseconds() -> None:
    call = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": ARGS}]}]
    answer = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]}]
    chat = {"gen_ai.operation.name": "chat"}
    first = span_view({**chat, "gen_ai.output.messages": json.dumps(call)}, start=10.0, end=10.0068)
    after = {**chat, "gen_ai.input.messages": json.dumps([*call, *answer])}
    second = span_view(after, span_id="c" * 16, start=10.006, end=10.02)
    assert [step.result for step in spanless([first, second])] == ["found"]


def test_calls_of_one_turn_are_read_from_several_messages_of_the_next_request() -> None:
    def asks(call_id: str) -> list[Any]:
        call = {"id": call_id, "function": {"name": "search", "arguments": "{}"}}
        return [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": call_id.upper()},
        ]

    histories = [[{"role": "user", "content": "find"}]]
    for added in ([*asks("c1")], [*asks("c2"), *asks("c3")], [{"role": "assistant", "content": "found"}]):
        histories.append([*histories[-1], *added])
    chats = [{"gen_ai.operation.name": "chat", "input": json.dumps(history)} for history in histories]
    spans = [span_view(chat, span_id=f"{at:016x}", start=at, end=at) for at, chat in enumerate(chats)]
    found = [(step.span_id, step.call_id, step.result) for step in spanless(spans)]
    assert found == [(f"{0:016x}", "c1", "C1"), (f"{1:016x}", "c2", "C2"), (f"{1:016x}", "c3", "C3")]


def test_the_repr_of_a_stream_is_no_answer() -> None:
    kind = {"openinference.span.kind": "LLM"}
    assert output_messages(span_view({**kind, "output.value": "<groq.Stream object at 0x7f6aa0434a50>"})) == []
    assert [message.text for message in output_messages(span_view({**kind, "output.value": "<b>noon</b>"}))] == [
        "<b>noon</b>"
    ]


def test_a_result_is_found_by_its_id_where_a_request_shows_nothing_else() -> None:
    call = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": ARGS}]}]
    chat = {"gen_ai.operation.name": "chat"}
    asking = span_view({**chat, "gen_ai.output.messages": json.dumps(call)})
    for call_id, found in (("c1", "found"), ("c2", None)):
        answer = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "result": "found"}]}]
        after = {**chat, "gen_ai.input.messages": json.dumps(answer)}
        second = span_view(after, span_id="c" * 16, start=11.0, end=11.5)
        assert [step.result for step in spanless([asking, second])] == [found]


def test_the_body_of_an_event_may_be_json_in_one_attribute() -> None:
    body = {"message": {"tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": "{}"}}]}}
    event = SpanEvent("gen_ai.choice", {"gen_ai.event.content": json.dumps(body)})
    (message,) = output_messages(span_view({"gen_ai.operation.name": "chat"}, events=[event]))
    assert [(call.name, call.call_id) for call in message.calls] == [("search", "c1")]
