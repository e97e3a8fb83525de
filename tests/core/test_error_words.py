"""Words of an error are asked of the answer: not of empty members, warnings above a result, or the tool's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.core.test_unseen_kinds import WORDS
from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.error_text import names_asked_for, without_empty_errors, without_notices
from trajectory_guard.core.content.outcome import classify, complaint_of, looks_like_error, names_error
from trajectory_guard.core.detectors.base import TYPE_V
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import ERROR, SUCCESS

NO_ERROR = [
    '{"error": null, "data": {"a": 1}}',
    '{"errors": [], "rows": [1, 2]}',
    "{'err': None, 'ok': [3]}",
    '{"error_message": "", "value": 7}',
    '{"fehler": false, "wert": 3}',
    '{"exception": {}, "out": "x"}',
    '{"error": 0, "msg": "done"}',
    '{\n  "error": null,\n  "result": 5\n}',
    '{"error": {"code": 0, "message": ""}, "data": 4}',
    '{"error": "None", "data": 7}',
    '{"error": "no error", "data": 7}',
    '{"hasError": false, "errorCode": 0, "errorMessage": null, "count": 4}',
    '"{\\"error\\": null, \\"data\\": 7}"',
    '{"data": [1], "error": null}',
    '{"status": 200, "error": ""}',
    '{"failures": [], "total": 9}',
    "CallToolResult(error=None, isError=False, content=[7])",
    "error=None output=7",
    "error: null\nresult: 42",
    "error:\noutput: 42",
    "Fehler: keine\nErgebnis: 7",
    "错误: 无\n结果: 7",
    "Errors: 0, warnings: 3",
]
AN_ERROR = [
    '{"error": "no such id"}',
    '{"error": {"code": 5, "message": "no such id"}}',
    '{"error": true}',
    '{"error": 404}',
    '{"error": null, "exception": "no such id"}',
    '{"error": "None of the ids exist"}',
    '{"id": 1, "error": {"code": -32602, "message": "no such tool"}}',
    "{'title': 'Bad Request', 'status': 400}",
    "Error executing tool: None",
    "Tool failed: None",
    "Error: 0x80070005",
    "ERROR:\nNo replacement was performed",
    "error:\n  no such id",
]


@pytest.mark.parametrize("text", NO_ERROR)
def test_an_empty_member_says_that_there_was_no_error(text: str) -> None:
    assert not looks_like_error(text)
    assert not names_error(without_empty_errors(text))
    assert classify(text, failed=None) == SUCCESS
    assert complaint_of(text + "\nand a result of more than a few words" * 40, ()) == ""


@pytest.mark.parametrize("text", AN_ERROR)
def test_a_member_that_says_something_is_an_error(text: str) -> None:
    assert looks_like_error(text)
    assert classify(text, failed=None) == ERROR


@pytest.mark.parametrize("text", ["KeyError: 0", "RuntimeError: None", '{"no_error": false}', "ValueError: ''"])
def test_an_exception_about_nothing_is_kept(text: str) -> None:
    assert without_empty_errors(text) == text


@pytest.mark.parametrize(
    "text", ['{"id": 3, "status": "failed", "error": "no memory"}', '{"code": 500, "name": "Ikeja"}']
)
def test_the_record_of_something_that_failed_is_what_was_asked_for(text: str) -> None:
    assert not looks_like_error(text)


# --- warnings above a result ---------------------------------------------------------------------------------

WARNINGS = [
    "Warning: Web search provider fallback: MCP error -401: Api key not found; using DuckDuckGo.\n",
    "npm WARN deprecated x@1: invalid\nnpm WARN deprecated y@2: unknown\n",
    "x.py:3: DeprecationWarning: invalid escape sequence\n  pattern = '\\d'\n",
    "DeprecationWarning: the module is missing its error codes\n",
    "WARN  [main] could not connect to the cache: unknown host\n",
    "Hinweis: Index nicht gefunden, Fehler: veraltet\n",
    "警告: 未知错误\n",
    "[WARNING] invalid key: colour\n",
    "⚠️ Warning: failed to load the cache\n",
    "(node:123) Warning: error in a setting: bad\n",
    'time="2026-03-01" level=warning msg="error: version is obsolete"\n',
    "2026-03-01 10:00:00,123 WARNING: error: no cache\n",
]


@pytest.mark.parametrize("warning", WARNINGS)
def test_a_warning_above_a_result_is_no_failed_call(warning: str) -> None:
    hits = "[1] Red shoes\n    https://shop.example/1\n[2] Blue shoes\n    https://shop.example/2"
    assert without_notices(warning + "\n" + hits) == hits
    assert classify(warning + hits, failed=None) == SUCCESS
    assert not looks_like_error(warning + hits)
    assert complaint_of(warning + hits * 20, ()) == ""


@pytest.mark.parametrize("warning", WARNINGS)
def test_a_warning_alone_or_above_an_error_stays_as_it_is(warning: str) -> None:
    assert without_notices(warning) == warning
    assert without_notices(warning + "Please set one and try again?") == warning + "Please set one and try again?"
    assert looks_like_error(warning + "Error: no such table")
    assert classify(warning + "Error: no such table", failed=None) == ERROR


@pytest.mark.parametrize("text", ["Warning: file not found", "note: error: cannot parse", "Warning: unknown tool: x"])
def test_a_result_that_is_only_a_warning_is_read_as_before(text: str) -> None:
    assert looks_like_error(text)


def test_searches_under_a_warning_are_left_alone() -> None:
    def searches() -> Iterable[tuple[str, str]]:
        for at, words in enumerate(WORDS):
            yield (
                words,
                f"{WARNINGS[0]}\n[1] All about {words}\n    https://x.example/{at}\n    " + f"{words} are {at}. " * 20,
            )

    steps = [record("search", {"query": words}, text, classify(text, failed=None)) for words, text in searches()]
    assert first_level(evaluate(steps)) is None


# --- an error behind the name of the tool --------------------------------------------------------------------

BEHIND = [
    "Command write_fix returned: Error: 'NoneType' object is not iterable",
    "Tool search failed: quota exceeded",
    "Tool 'x' executed.\nResult: Error executing tool 'x': bad input",
    "Observation: Error executing tool x",
    'Tool output: {"error": "no such id"}',
    "Execution failed: the page is gone",
    "Invalid action! Choose one of the list.",
    "[ERROR] no such page",
    "❌ Element 7 is gone",
    "Ergebnis: Fehler: kein Zugriff",
    "工具调用失败: 没有权限",
    "Upload fehlgeschlagen: kein Zugriff",
    "Command 'ls x' returned non-zero exit status 2.",
    '{"message": "Unable to reach the page"}',
    '{"error": "", "response": "{\'message\': \'unknown service all\'}"}',
    '{"error": "", "response": "{\\"status\\": \\"401\\", \\"msg\\": \\"Authentication required\\"}"}',
]
NOT_BEHIND = [
    "Command read_range returned: Line 22: import errors",
    "Tool search executed.\nResult: 7 hits",
    "Observation: The door is open",
    "3 tests failed: a, b",
    "Tests failed: 0",
    "12 passed, 3 failed",
    "12 passed, 3 fehlgeschlagen",
    "제작에 실패했습니다.",
    "Crafting failed! The ingredients are lost.",
    "Brewing failed.",
    "Why it failed: see notes",
    '{"message": "Item created"}',
    '{"status": 200, "message": "done"}',
    '{"error": "", "response": "{\'message\': \'Item created\'}"}',
]


@pytest.mark.parametrize("text", BEHIND)
def test_a_prefix_that_names_the_tool_hides_no_error(text: str) -> None:
    assert looks_like_error(text)


@pytest.mark.parametrize("text", NOT_BEHIND)
def test_a_prefix_that_names_the_tool_is_no_error(text: str) -> None:
    assert not looks_like_error(text)


def test_an_error_behind_the_name_of_the_tool_is_a_streak() -> None:
    def runs(result: str) -> list[Verdict | None]:
        return evaluate(record("fix", {"patch": f"{words} = {at}"}, result) for at, words in enumerate(WORDS))

    assert first_level(runs("Command fix returned: Error: the patch is not iterable"), Level.NUDGE) is not None
    new = [record("fix", {"patch": words}, f"Command fix returned: {words} are in {words}") for words in WORDS]
    assert first_level(evaluate(new)) is None


def test_a_first_error_in_words_is_no_failure_of_a_call_reported_as_a_success() -> None:
    texts = [f"Command open returned: Error: {words} has a cause of its own" for words in WORDS]
    steps = [record("open", {"page": at}, text) for at, text in enumerate(texts)]
    assert all(verdict is None or not verdict.types for verdict in evaluate(steps[:2]))


# --- names that a validation error asks for ------------------------------------------------------------------

ASKS: list[str] = [
    "Input validation error: '{}' is a required property",
    "Missing required parameter: {}",
    "Parameter `{}` is required",
    "run() missing 1 required positional argument: '{}'",
    "1 validation error for Run\n{}\n  Field required [type=missing, input_value=None, input_type=NoneType]",
    'MCP error -32602: Invalid arguments: [\n  {{\n    "path": [\n      "{}"\n    ],\n    "message": "Required"\n  }}\n]',
    '{{"detail": [{{"loc": ["body", "{}"], "msg": "field required"}}]}}',
    "Das Feld '{}' ist erforderlich",
    "缺少必填参数 '{}'",
]
FIELDS = ["file_path", "file_hash", "ranges", "contents", "encoding", "mode"]


def learning(asks: str, fields: list[str]) -> list[Verdict | None]:
    """An agent that gives the properties that the errors before asked for."""
    given: dict[str, Any] = {"title": "x"}
    steps = []
    for at, field in enumerate(fields):
        steps.append(record("run", {"params": dict(given)}, asks.format(field), "error"))
        given[field] = f"value {at}"
    return evaluate(steps)


@pytest.mark.parametrize("asks", ASKS)
def test_an_agent_that_learns_the_arguments_one_by_one_is_left_alone(asks: str) -> None:
    assert names_asked_for(asks.format("file_hash"))
    assert all(verdict is None or TYPE_V not in verdict.types for verdict in learning(asks, FIELDS))


@pytest.mark.parametrize("asks", ASKS)
def test_the_same_property_again_is_a_repeat(asks: str) -> None:
    steps = [record("run", {"params": {"title": words}}, asks.format("file_hash"), "error") for words in WORDS]
    assert any(verdict is not None and TYPE_V in verdict.types for verdict in evaluate(steps))
    assert any(verdict is not None and TYPE_V in verdict.types for verdict in learning(asks, FIELDS[:2] * 5))


@pytest.mark.parametrize(
    "asks", ["unexpected keyword argument '{}'", "KeyError: '{}'", "'{}' is missing in the index", "unknown column {}"]
)
def test_another_guess_that_is_refused_is_a_repeat(asks: str) -> None:
    steps = [record("run", {"column": field}, asks.format(field), "error") for field in FIELDS]
    assert any(verdict is not None and TYPE_V in verdict.types for verdict in evaluate(steps))


def test_complaints_of_pydantic_ai_about_arguments_are_errors_where_nothing_else_says_so() -> None:
    text = '2 validation errors:\n```json\n[\n  {\n    "type": "missing",\n    "loc": ["customer"]\n  }\n]\n```'
    assert classify(text, failed=None) == ERROR
    assert classify(text) == SUCCESS
    assert classify("2 validation errors: see the report", failed=None) == SUCCESS
