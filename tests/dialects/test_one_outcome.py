"""One rule decides the outcome of a call, whichever reader met it: span, graph message, transcript or step line."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import extract_step, span_view, tool_view
from trajectory_guard.cli.recordings.diagnostics import Diagnostics
from trajectory_guard.cli.recordings.step_lines import recorded
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.gates.messages import new_steps
from trajectory_guard.transcripts.assemble import extract_steps

Reader = Callable[[str, bool | None], StepRecord | None]


def from_span(text: str, failed: bool | None) -> StepRecord | None:
    return extract_step(tool_view(result=text, status="error" if failed else "unset"))


def from_graph_message(text: str, failed: bool | None) -> StepRecord | None:
    asking = SimpleNamespace(type="ai", id="m", content="", tool_calls=[{"name": "search", "args": {}, "id": "c"}])
    result = SimpleNamespace(type="tool", tool_call_id="c", content=text, status="error" if failed else "success")
    (step,) = new_steps([asking, result], trajectory_id="t", known=lambda _: False, now=0.0)
    return step


def from_transcript(text: str, failed: bool | None) -> StepRecord | None:
    call = {"type": "function", "id": "c", "function": {"name": "search", "arguments": "{}"}}
    asking: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
    result: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": text}
    if failed is not None:
        result["is_error"] = failed
    chat = {"gen_ai.operation.name": "chat"}
    first = span_view({**chat, "gen_ai.output.messages": json.dumps([asking])}, span_id="1" * 16, start=1.0, end=2.0)
    later = {**chat, "gen_ai.input.messages": json.dumps([asking, result])}
    (step,) = extract_steps([first, span_view(later, span_id="2" * 16, start=3.0, end=4.0)])
    return step


def from_step_line(text: str, failed: bool | None) -> StepRecord | None:
    step = {"tool": "search", "args": {}, "result": text}
    found = recorded({"id": "r", "steps": [step]}, "file", 1, Diagnostics())
    assert found is not None
    return found.steps[0]


READERS = (from_span, from_graph_message, from_transcript, from_step_line)
FLAGGED = (from_span, from_graph_message, from_transcript)
"""Readers of forms that can say that a call failed."""
UNFLAGGED = (from_transcript, from_step_line)
"""Readers of forms in which nothing may say whether a call failed."""


def check(reader: Reader, text: str, failed: bool | None, wanted: str) -> None:
    step = reader(text, failed)
    assert step is not None
    assert step.outcome_type == wanted


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"orders": []}', "empty"), ("", "empty"), ("[]", "empty"), ("No results found.", "empty"),
        ("7 rows", "success"), ("0", "success"), ('{"errors": []}', "success"),
    ],
)  # fmt: skip
def test_a_call_that_did_not_fail(reader: Reader, text: str, wanted: str) -> None:
    check(reader, text, False, wanted)


@pytest.mark.parametrize("reader", FLAGGED)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("User rejected the call", "denied"), ("Tool execution was not approved.", "denied"),
        ("ValueError: no such order", "error"), ("permission denied: /etc/shadow", "error"),
        ('{"orders": []}', "error"), ("", "error"), ("7 rows", "error"),
    ],
)  # fmt: skip
def test_a_call_that_failed(reader: Reader, text: str, wanted: str) -> None:
    check(reader, text, True, wanted)


@pytest.mark.parametrize("reader", UNFLAGGED)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("User rejected the call", "denied"), ("Error: no such order", "error"), ("Unknown tool: search", "error"),
        ("I encountered an error while searching", "error"), ('{"orders": []}', "empty"), ("7 rows", "success"),
    ],
)  # fmt: skip
def test_the_wording_decides_where_nothing_says_whether_a_call_failed(reader: Reader, text: str, wanted: str) -> None:
    check(reader, text, None, wanted)
