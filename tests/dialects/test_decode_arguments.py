"""Encodings of arguments, A1 to A10, by the shape of the value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.spans.content import MAX_DECODED_CHARS, SINGLE, UNKNOWN_ARGUMENTS, decode_arguments, is_redacted

_WRAPPER = {
    "input_str": "{'customer': 'Zoë'}",
    "tags": [],
    "metadata": {"thread_id": "t", "langgraph_step": 2},
    "inputs": {"customer": "Zoë"},
    "kwargs": {"color": "green", "name": "search_orders", "tool_call_id": "call_1"},
}
_WITHOUT_INPUTS = {key: value for key, value in _WRAPPER.items() if key != "inputs"}

TABLE: list[tuple[str, Any, Any]] = [
    ("A1 object", '{"customer":"Zoë"}', {"customer": "Zoë"}),
    ("A1 escaped", '{"customer":"Zo\\u00eb"}', {"customer": "Zoë"}),
    ("A1 spaced", ' { "a" : 1 } ', {"a": 1}),
    ("A1 empty", "{}", {}),
    ("A1 none", "None", {}),
    ("A1 map value", {"a": (1, 2), "b": {"c": None}}, {"a": [1, 2], "b": {"c": None}}),
    ("A2 wrapper", json.dumps(_WRAPPER), {"customer": "Zoë"}),
    ("A2 no inputs", json.dumps(_WITHOUT_INPUTS), {"customer": "Zoë"}),
    ("A3 repr", "{'customer': 'Zoë', 'n': None, 'ok': True}", {"customer": "Zoë", "n": None, "ok": True}),
    ("A4 keyword", '{"args": [], "kwargs": {"a": 1}}', {"a": 1}),
    ("A4 llamaindex", '{"kwargs": {"a": 1}}', {"a": 1}),
    ("A4 smolagents", '{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"a": 1}}', {"a": 1}),
    ("A4 positional", '{"args": ["x"], "kwargs": {}}', {"args": ["x"], "kwargs": {}}),
    ("A4 injected", '{"kwargs": {"a": 1, "ctx": "<x.Context object at 0x7f>"}}', {"a": 1}),
    ("A4 own ctx", '{"kwargs": {"ctx": "today"}}', {"ctx": "today"}),
    ("A5 not a string", '{"n": 5}', {"n": 5}),
    ("A6 mcp", '{"tool_name": "x", "arguments": {"a": 1}}', {"a": 1}),
    ("A7 broken", '{"limit": "many"', '{"limit": "many"'),
    ("A8 absent", None, None),
    ("A9 hidden", "__REDACTED__", None),
    ("A9 scrubbed", "[Scrubbed due to 'password']", None),
    ("A10 cut wrapper", json.dumps(_WRAPPER)[:40], None),
    ("A10 cut with mark", '{"query": "abc…', None),
    ("LangChain tool call", '{"type": "tool_call", "name": "x", "args": {"a": 1}, "id": "c1"}', {"a": 1}),
    ("big integer", '{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
    ("list", "[1, 2]", [1, 2]),
    ("plain text", "/etc/app.yaml", "/etc/app.yaml"),
]


@pytest.mark.parametrize("value, wanted", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_arguments_are_decoded_by_shape(value: Any, wanted: Any) -> None:
    assert decode_arguments(value).value == wanted


def test_a_lone_string_stands_for_an_argument_without_a_name() -> None:
    assert decode_arguments("/etc/app.yaml", single=True).value == {SINGLE: "/etc/app.yaml"}
    assert decode_arguments('{"select": 1}', single=True).value == {"select": 1}


def test_a_hidden_lone_string_is_unknown() -> None:
    assert decode_arguments("__REDACTED__", single=True) == UNKNOWN_ARGUMENTS


@pytest.mark.parametrize("value", [_WRAPPER, _WITHOUT_INPUTS])
def test_the_call_id_inside_a_wrapper_is_found(value: dict[str, Any]) -> None:
    assert decode_arguments(json.dumps(value)).call_id == "call_1"


def test_the_call_id_of_a_langchain_tool_call_is_found() -> None:
    assert decode_arguments('{"type": "tool_call", "args": {}, "id": "c7"}').call_id == "c7"
    assert decode_arguments('{"type": "tool_call", "args": {}, "id": 7}').call_id is None


def test_wrappers_of_equal_calls_hash_alike_although_their_metadata_differs() -> None:
    later = {**_WRAPPER, "metadata": {"thread_id": "t", "langgraph_step": 9}, "kwargs": {"tool_call_id": "call_2"}}
    first, second = (args_hash(decode_arguments(json.dumps(one)).value) for one in (_WRAPPER, later))
    assert first == second is not None


@pytest.mark.parametrize(
    "text",
    [
        "__REDACTED__", "[REDACTED]", "***", "<masked>", "__MASKED__", "****", "[Filtered]", "<scrubbed>",
        "***REDACTED***", '"[REDACTED]"', "redacted-by-litellm", "<fully masked due to failed mask function>",
        "[Scrubbed due to 'auth']",
    ],
)  # fmt: skip
def test_placeholders_are_recognised_as_hidden(text: str) -> None:
    assert is_redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "redacted report",
        "mask",
        "** bold **",
        "masked",
        "filtered",
        "[]",
        "{}",
        '""',
        "* * *",
        "___",
        "[hash]",
        '"*"',
    ],
)
def test_ordinary_text_is_not_hidden(text: str) -> None:
    assert not is_redacted(text)


def test_an_object_of_openllmetry_that_is_too_long_to_be_decoded_leaves_the_arguments_unknown() -> None:
    """As text it would be another in each call, by the run id in it, and a loop with long arguments none."""
    text = "x y z " * (MAX_DECODED_CHARS // 6)
    value = json.dumps({"input_str": text, "inputs": {"text": text}, "metadata": {"run_id": "1f"}})
    assert decode_arguments(value) == UNKNOWN_ARGUMENTS
