"""Encodings of results, R1 to R10, by the shape of the value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trajectory_guard.spans.content import UNKNOWN_RESULT, Payload, as_text, decode_result

_MESSAGE = {"content": "no such file", "status": "error", "tool_call_id": "c1", "artifact": None}
_CONSTRUCTOR = {"lc": 1, "type": "constructor", "id": ["x", "ToolMessage"], "kwargs": _MESSAGE}
_COMMAND = {"graph": "__parent__", "update": {"messages": [_MESSAGE]}, "resume": None, "goto": "bob"}
_INNER = {"blocks": [{"text": "7"}], "tool_name": "t", "raw_input": {}, "raw_output": {"n": 7}, "is_error": False}

TABLE: list[tuple[str, Any, Payload]] = [
    ("R1 text", "two orders", Payload("two orders")),
    ("R1 JSON kept", '{"a": [1,  2]}', Payload('{"a": [1,  2]}')),
    ("R1 quoted", '"two orders"', Payload("two orders")),
    ("R1 quoted empty", '""', Payload("")),
    ("R1 null", "null", Payload("null")),
    ("R1 list", '["a", "b"]', Payload('["a", "b"]')),
    ("R2 message", json.dumps({"output": _CONSTRUCTOR, "kwargs": {}}), Payload("no such file", True, "c1")),
    ("R2 plain", json.dumps({"output": "12", "kwargs": {}}), Payload("12")),
    ("R2 list", json.dumps({"output": ["a"], "kwargs": {}}), Payload('["a"]')),
    ("R2 command", json.dumps({"output": _COMMAND, "kwargs": {}}), Payload("no such file", True, "c1", True)),
    ("R3 message", json.dumps({"type": "tool", "data": _MESSAGE}), Payload("no such file", True, "c1")),
    ("R4 flat", json.dumps(_MESSAGE), Payload("no such file", True, "c1")),
    ("R4 success", json.dumps({**_MESSAGE, "status": "success"}), Payload("no such file", False, "c1")),
    ("R5 langsmith", json.dumps({"output": _MESSAGE}), Payload("no such file", True, "c1")),
    ("R6 repr", "content='a\\nb' name='x' tool_call_id='c1' status='error'", Payload("a\nb", True, "c1")),
    ("R6 double quotes", "content=\"it's\" name='x' tool_call_id='c1'", Payload("it's", None, "c1")),
    ("R6 list", "content=['a', 'b'] name='x' tool_call_id='c1'", Payload('["a","b"]', None, "c1")),
    ("R6 command", "Command(goto='bob')", Payload(None, None, None, True)),
    ("R7 inner", json.dumps(_INNER), Payload('{"n":7}', False)),
    ("R7 inner error", json.dumps({**_INNER, "is_error": True}), Payload("7", True)),
    (
        "R7 outer",
        json.dumps({"tool_name": "t", "tool_kwargs": {}, "tool_id": "c1", "tool_output": _INNER}),
        Payload('{"n":7}', False, "c1"),
    ),
    ("R8 result", '{"result": "ok", "is_error": true}', Payload("ok", True)),
    ("R8 no flag", '{"result": []}', Payload("[]")),
    ("R9 python text", "[]", Payload("[]")),
    ("R10 absent", None, UNKNOWN_RESULT),
    ("R10 hidden", "__REDACTED__", UNKNOWN_RESULT),
    ("R10 generator", "<generator object read_log at 0x7f9c3a9b6cf0>", UNKNOWN_RESULT),
    ("R10 generator quoted", '"<generator object read_log at 0x7f9c3a9b6cf0>"', UNKNOWN_RESULT),
    ("R10 generator of a method", "<async_generator object Shop.f.<locals>.g at 0x7f9C>", UNKNOWN_RESULT),
    ("R10 coroutine", json.dumps({"output": "<coroutine object ask at 0x1>", "kwargs": {}}), UNKNOWN_RESULT),
    ("R10 streams", "[<openai.Stream object at 0x1>, <f.<locals>.S object at 0x2>]", UNKNOWN_RESULT),
    ("R1 markup", '"<p>object at 0x1</p>"', Payload("<p>object at 0x1</p>")),
    (
        "command without message",
        json.dumps({"graph": None, "update": None, "goto": "x"}),
        Payload(None, None, None, True),
    ),
    ("map value", {"rows": (1, 2)}, Payload('{"rows":[1,2]}')),
    ("broken JSON", '{"a": ', Payload('{"a": ')),
    ("user data with an output key", '{"output": 1, "rows": 2}', Payload('{"output": 1, "rows": 2}')),
]


@pytest.mark.parametrize("value, wanted", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_results_are_decoded_by_shape(value: Any, wanted: Payload) -> None:
    assert decode_result(value) == wanted


def test_text_stays_and_values_become_compact_json() -> None:
    assert as_text(" a ") == " a "
    assert as_text({"ë": [1, None]}) == '{"ë":[1,null]}'


SHOWN = "HumanMessage(content=[{'type': 'text', 'text': 'Now:'}, {'type': 'image', 'base64': 'aGFsbG8='}])"


@pytest.mark.parametrize(
    "update",
    [
        [
            {"type": "tool", "data": {"content": "ok", "tool_call_id": "c", "status": "success"}},
            {"type": "human", "data": {"content": [{"type": "image", "base64": "aGFsbG8="}], "type": "human"}},
        ],
        [
            {"lc": 1, "type": "constructor", "kwargs": {"content": "ok", "tool_call_id": "c", "status": "success"}},
            {"lc": 1, "type": "constructor", "kwargs": {"content": [{"base64": "aGFsbG8="}], "type": "human"}},
        ],
        f"Command(update={{'messages': [ToolMessage(content='ok', tool_call_id='c'), {SHOWN}]}})",
    ],
    ids=["data", "kwargs", "repr"],
)
def test_what_a_tool_shows_behind_its_result_belongs_to_it(update: Any) -> None:
    command = {"graph": None, "update": {"messages": update}, "resume": None, "goto": []}
    found = decode_result(update if isinstance(update, str) else json.dumps(command))
    assert found.control
    assert found.text is not None
    assert found.text.startswith("ok\n")
    assert "aGFsbG8=" in found.text
    assert found.call_id == "c"
