"""Success, empty, error, denied or interrupted; and how much of a call was visible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import extract_step, span_view, tool_view
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.dialects.span import SpanEvent, SpanView

_FAILED_MESSAGE = json.dumps({"output": {"content": "denied", "status": "error", "tool_call_id": "c1"}})


def step_of(span: SpanView) -> StepRecord:
    step = extract_step(span)
    assert step is not None
    return step


def exception(kind: str, message: str) -> SpanEvent:
    return SpanEvent("exception", {"exception.type": kind, "exception.message": message})


OUTCOMES: list[tuple[str, SpanView, str]] = [
    ("a result", tool_view(), "success"),
    ("span OK", tool_view(status="ok"), "success"),
    ("hidden result", tool_view(result="__REDACTED__"), "success"),
    ("empty list", tool_view(result="[]"), "empty"),
    ("empty text", tool_view(result=""), "empty"),
    ("quoted empty", tool_view(result='""'), "empty"),
    ("null", tool_view(result="null"), "empty"),
    ("phrase", tool_view(result="No results found"), "empty"),
    ("wrapped", tool_view(result='{"results": []}'), "empty"),
    ("zero is an answer", tool_view(result="0"), "success"),
    ("false is an answer", tool_view(result="false"), "success"),
    ("span error", tool_view(result=None, status="error"), "error"),
    ("error.type", tool_view(extra={"error.type": "tool_error"}), "error"),
    ("task status", tool_view(extra={"gen_ai.task.status": "failure"}), "error"),
    ("langfuse level", tool_view(extra={"langfuse.observation.level": "ERROR"}), "error"),
    ("message status", tool_view(result=_FAILED_MESSAGE), "error"),
    ("green span, failed payload", tool_view(result=_FAILED_MESSAGE, status="ok"), "error"),
    ("mcp flag", tool_view(result='{"result": "no", "is_error": true}'), "error"),
    ("mcp flag camel", tool_view(result='{"result": "no", "isError": true}'), "error"),
    ("interrupt, span error", tool_view(result=None, status="error", status_description="GraphInterrupt((Interrupt(value=1),))"), "interrupted"),
    ("interrupt, span OK", tool_view(result=None, events=[exception("langgraph.errors.GraphInterrupt", "x")]), "interrupted"),
    ("interrupt, Langfuse", tool_view(result=None, extra={"langfuse.observation.status_message": "(Interrupt(value='sure?'),)"}), "interrupted"),
    ("hand-off", tool_view(result=None, status="error", extra={"error.type": "ParentCommand"}), "success"),
    ("command text", tool_view(result="Command(goto='bob')"), "success"),
    ("an error that mentions interrupts", tool_view(result=None, status="error", status_description="KeyboardInterrupt"), "error"),
]  # fmt: skip


@pytest.mark.parametrize("span, wanted", [row[1:] for row in OUTCOMES], ids=[row[0] for row in OUTCOMES])
def test_outcome(span: SpanView, wanted: str) -> None:
    assert step_of(span).outcome_type == wanted


EVIDENCE: list[tuple[str, SpanView, Evidence]] = [
    ("all there", tool_view(), Evidence.FULL),
    ("no result", tool_view(result=None), Evidence.NO_RESULT),
    ("hidden result", tool_view(result="__REDACTED__"), Evidence.NO_RESULT),
    ("failed without payload", tool_view(result=None, status="error"), Evidence.FULL),
    ("no arguments", tool_view(args=None), Evidence.NAME_ONLY),
    ("hidden arguments", tool_view(args="__REDACTED__"), Evidence.NAME_ONLY),
]


@pytest.mark.parametrize("span, wanted", [row[1:] for row in EVIDENCE], ids=[row[0] for row in EVIDENCE])
def test_evidence(span: SpanView, wanted: Evidence) -> None:
    assert step_of(span).evidence is wanted


def test_unknown_arguments_and_results_have_no_hash() -> None:
    step = step_of(tool_view(args=None, result=None))
    assert (step.args, step.result, step.tool_args_hash, step.state_snapshot_hash) == (None, None, None, None)


def test_the_exception_text_stands_in_for_the_result_of_a_failed_call() -> None:
    step = step_of(tool_view(result=None, status="error", events=[exception("app.QuotaError", "quota used up")]))
    assert step.result == "app.QuotaError: quota used up"
    assert step.error_class == "QuotaError"


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"extra": {"error.type": "httpx.ReadTimeout"}}, "ReadTimeout"),
        ({"status_description": "ValueError('no')"}, "ValueError"),
        ({"events": [exception("Exception", "no")]}, None),
        ({}, None),
    ],
)
def test_error_class(fields: dict[str, Any], wanted: str | None) -> None:
    assert step_of(tool_view(result=None, status="error", **fields)).error_class == wanted


def test_a_successful_call_has_no_error_class() -> None:
    assert step_of(tool_view(status_description="ValueError: old")).error_class is None


def test_times_and_ids_are_taken_over() -> None:
    step = step_of(tool_view(start=100.0, end=101.5))
    assert (step.timestamp, step.duration, step.step_id, step.call_id) == (100.0, 1.5, "b" * 16, "call_1")


def test_an_end_before_the_start_is_no_negative_duration() -> None:
    assert step_of(tool_view(start=100.0, end=99.0)).duration == 0.0


def test_a_result_of_megabytes_is_cut_to_a_bound() -> None:
    step = step_of(tool_view(result="x" * 3_000_000))
    assert step.result is not None
    assert 999_000 < len(step.result) <= 1_000_000


def test_openlit_reports_a_run_id_instead_of_the_call_id_of_a_failed_call() -> None:
    run_id = "0190c3a0-0000-7000-8000-000000000000"
    span = tool_view(extra={"gen_ai.tool.call.id": run_id}, scope="openlit.instrumentation.langchain")
    assert step_of(span).call_id is None
    assert step_of(span._replace(scope="my-app")).call_id == run_id


def test_missing_arguments_beside_a_visible_result_mean_none_in_openinference() -> None:
    span = span_view({"tool.name": "ping", "openinference.span.kind": "TOOL", "output.value": "pong"})
    assert step_of(span).args == {}
    hidden = span_view(
        {"tool.name": "ping", "openinference.span.kind": "TOOL", "input.value": "__REDACTED__", "output.value": "pong"}
    )
    assert step_of(hidden).args is None
