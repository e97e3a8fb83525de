"""Quirks of frameworks that emit spans by themselves; their captures show the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import capture, extract_step, span_view, tool_view
from trajectory_guard.core.content.outcome import is_refusal
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanEvent, SpanView
from trajectory_guard.dialects.table import DIALECTS, recognise
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.transcripts.asked import asked_in
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard.transcripts.messages import defined_tools, input_messages
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.transcript import result_text

STRANDS = {"gen_ai.event.start_time": "2026-11-25T12:00:00+00:00"}
ADK, CREWAI = "gcp.vertex.agent", "openinference.instrumentation.crewai"


def step_of(span: SpanView, *above: SpanView) -> StepRecord:
    step = extract_step(span, ancestors=above)
    assert step is not None
    return step


def vercel(**attributes: Any) -> SpanView:
    known = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search", "ai.toolCall.id": "c1"}
    return span_view({**known, **{f"ai.toolCall.{key}": value for key, value in attributes.items()}}, "ai.toolCall")


# --- Vercel AI SDK -------------------------------------------------------------------------------------------


def test_a_tool_that_returns_undefined_has_an_empty_result_only_beside_its_arguments() -> None:
    assert step_of(vercel(args="{}")).outcome_type == "empty"
    assert step_of(vercel()).outcome_type == "success"


@pytest.mark.parametrize("prefix", ["ai.telemetry.metadata", "ai.settings.context"])
def test_the_metadata_of_the_application_names_the_conversation(prefix: str) -> None:
    outer = span_view({f"{prefix}.sessionId": "s", f"{prefix}.threadId": "t", f"{prefix}.userId": "u"})
    assert step_of(vercel(), outer).trajectory_id == "t"


def test_usage_and_user_turn_stand_on_the_model_call_and_not_on_the_loop_around_it() -> None:
    spans = capture("vercel-v6__main")
    usages = {
        span.attributes["ai.operationId"]: model_usage(span) for span in spans if "ai.operationId" in span.attributes
    }
    assert {key for key, usage in usages.items() if usage is not None} == {
        "ai.generateText.doGenerate",
        "ai.streamText.doStream",
    }
    asked = [
        asked_in(span)
        for span in spans
        if model_usage(span) is not None and span.attributes.get("ai.telemetry.functionId") == "alice"
    ]
    assert len(set(asked)) == 2
    assert "delete_all" in (defined_tools(next(span for span in spans if "ai.prompt.tools" in span.attributes)) or {})


def test_the_name_of_the_model_is_not_that_of_an_agent() -> None:
    invoke = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m-1"}
    assert step_of(tool_view(), span_view(invoke, "invoke_agent m-1")).agent_id is None
    assert step_of(tool_view(), span_view(invoke, "invoke_agent alice")).agent_id == "alice"


def test_an_agent_without_a_name_inside_a_tool_call_is_not_the_one_that_made_it() -> None:
    alice = span_view({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "alice"}, "invoke_agent alice")
    nameless = span_view({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent")
    assert step_of(tool_view(), nameless, tool_view(), alice).agent_id is None
    assert step_of(tool_view(), nameless, alice).agent_id == "alice"
    assert step_of(tool_view(), tool_view(), alice).agent_id == "alice"


# --- Google ADK ----------------------------------------------------------------------------------------------


def adk(name: str = "search", **attributes: Any) -> SpanView:
    known = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return span_view({**known, **{f"gcp.vertex.agent.{key}": value for key, value in attributes.items()}}, scope=ADK)


def test_placeholders_of_adk_are_neither_arguments_nor_results() -> None:
    hidden = step_of(adk(tool_call_args="{}", tool_response="{}"))
    assert (hidden.args, hidden.result, hidden.evidence.value) == (None, None, "name_only")
    empty = step_of(adk(tool_call_args="{}", tool_response='{"result": ""}'))
    assert (empty.args, empty.outcome_type) == ({}, "empty")
    assert step_of(adk(tool_call_args='{"q": 1}', tool_response='{"result": "<not specified>"}')).result is None


@pytest.mark.parametrize("name", ["google-adk__main", "google-adk-v1__main"])
def test_a_model_call_that_two_spans_report_is_paid_once(name: str) -> None:
    usages = [usage for span in capture(name) if (usage := model_usage(span)) is not None]
    assert len(usages) == 15
    assert sum(usage.tokens for usage in usages) == 15 * 15


def test_the_end_of_a_batch_is_no_call() -> None:
    assert recognise(adk("(merged tools)")) is None
    assert recognise(adk("(merged tools)")._replace(scope="openinference.instrumentation.google_adk")) is None


def test_a_question_for_confirmation_is_interrupted_and_the_decision_takes_its_place() -> None:
    asking = [span for span in capture("google-adk__main") if span.name == "execute_tool delete_all"][:1]
    assert {step.outcome_type for step in extract_steps(asking)} == {"interrupted"}


# --- Strands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, text",
    [
        ([{"text": "a"}, {"text": "b"}], "a\nb"),
        ([{"json": {"rows": []}}], '{"rows": []}'),
        ([], ""),
        (["no block"], '["no block"]'),
        ([{"text": "a", "more": 1}], '[{"text": "a", "more": 1}]'),
    ],
)
def test_blocks_of_a_result_are_their_text(content: Any, text: str) -> None:
    assert step_of(tool_view(result=json.dumps(content), extra=STRANDS)).result == text


def test_a_call_without_a_status_was_abandoned() -> None:
    abandoned = tool_view(result=None, extra=STRANDS)
    assert step_of(abandoned).outcome_type == "interrupted"
    assert (
        step_of(abandoned._replace(attributes={**abandoned.attributes, "gen_ai.tool.status": "success"})).outcome_type
        == "success"
    )


def strands_of_openinference(arguments: dict[str, Any], **more: str) -> SpanView:
    """A call as OpenInference's processor leaves it: of a tool that takes a text, the input is that text alone."""
    whole = json.dumps(arguments)
    shown = {
        "openinference.span.kind": "TOOL",
        "tool.name": "send_message",
        "tool.parameters": whole,
        "input.value": arguments.get("text", whole),
        "output.value": "Sent.",
        "gen_ai.tool.status": "success",
    }
    return tool_view(args=None, result=None, extra={**STRANDS, **shown, **more})


def test_messages_of_one_text_to_several_people_are_different_calls() -> None:
    first, second = (
        step_of(strands_of_openinference({"to": to, "text": "The shop is closed."})) for to in ("Ann", "Bo")
    )
    assert first.args == {"to": "Ann", "text": "The shop is closed."}
    assert first.tool_args_hash != second.tool_args_hash
    assert step_of(strands_of_openinference({"to": "Ann"})).args == {"to": "Ann"}
    hidden = {"tool.parameters": "__REDACTED__", "input.value": "__REDACTED__"}
    assert step_of(strands_of_openinference({"to": "Ann"}, **hidden)).args is None


def test_parameters_of_other_spans_may_be_a_schema() -> None:
    schema = {"tool.parameters": '{"type": "object"}', "openinference.span.kind": "TOOL", "tool.name": "search"}
    assert step_of(span_view({**schema, "input.value": '{"q": 1}'})).args == {"q": 1}
    assert step_of(tool_view('{"q": 1}', extra={**STRANDS, "tool.parameters": '{"type": "object"}'})).args == {"q": 1}


# --- CrewAI --------------------------------------------------------------------------------------------------


def crewai(**attributes: Any) -> SpanView:
    known = {"tool.name": "Delegate work to coworker", "input.value": '{"q": 1}', "output.value": "done"}
    return span_view({**known, **attributes}, scope=CREWAI)


def test_a_tool_goes_by_the_name_that_the_model_calls() -> None:
    assert step_of(crewai()).tool_name == "delegate_work_to_coworker"


def test_attempts_of_the_framework_are_one_call() -> None:
    assert extract_step(crewai(**{"tool.run_attempts": 2})._replace(status="error")) is None
    assert step_of(crewai(**{"tool.run_attempts": 2})).outcome_type == "success"


def test_the_list_of_tools_behind_a_result_is_cut_off() -> None:
    glued = "[]\n\n\nYou ONLY have access to the following tools, and should NEVER make up tools"
    assert step_of(crewai(**{"output.value": glued})).outcome_type == "empty"


def test_a_hook_that_blocks_a_call_refuses_it() -> None:
    blocked = "Tool execution blocked by hook. Tool: delete_all"
    assert step_of(crewai(**{"output.value": blocked})).outcome_type == "denied"
    assert is_refusal(blocked)
    assert not is_refusal("The port is blocked by the firewall.")


# --- Haystack, Spring AI -------------------------------------------------------------------------------------


def test_only_a_refusal_stands_for_a_call() -> None:
    decision = "haystack.agent.hook.human_in_the_loop.strategy"
    attributes = {"haystack.tool.name": "delete_all", "haystack.tool.call.id": "c1", f"{decision}.decision": "confirm"}
    assert recognise(span_view(attributes, decision)) is None
    refused = step_of(span_view({**attributes, f"{decision}.decision": "reject"}, decision))
    assert (refused.outcome_type, refused.call_id, refused.args) == ("denied", "c1", None)


@pytest.mark.parametrize("named", ['"save"', "save", "<fully masked due to failed mask function>", None])
def test_langfuse_names_a_tool_of_haystack_in_its_metadata(named: str | None) -> None:
    attributes = {
        "langfuse.observation.type": "tool", "langfuse.observation.input": '{"key": "a"}',
        "langfuse.observation.output": "Saved.", "langfuse.observation.metadata.haystack.tool.name": named,
    }  # fmt: skip
    step = step_of(span_view(attributes, "tool - save", scope="langfuse-sdk"))
    assert step.tool_name == ("save" if named in ("save", '"save"') else "tool - save")
    assert (step.args, step.result) == ({"key": "a"}, "Saved.")


def test_an_empty_text_that_java_writes_without_a_value_is_an_empty_result() -> None:
    span = tool_view()
    assert (
        step_of(span._replace(attributes={**span.attributes, "gen_ai.tool.call.result": None})).outcome_type == "empty"
    )


@pytest.mark.parametrize("name", ["vercel", "google_adk", "strands", "crewai", "haystack", "spring_ai"])
def test_every_framework_has_a_row_that_reads_tool_spans(name: str) -> None:
    assert any(row.name == name for row in DIALECTS.tool_rows)


# --- messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output, wanted",
    [
        ({"type": "execution-denied", "reason": "no"}, ("no", None, False)),
        ({"type": "execution-denied"}, (None, None, False)),
        ({"type": "error-text", "value": "no such file"}, ("no such file", True, None)),
        ({"type": "error-json", "value": {"code": 1}}, ({"code": 1}, True, None)),
        ({"type": "content", "value": [{"type": "text", "text": "a"}]}, ([{"type": "text", "text": "a"}], None, None)),
        ({"type": "json", "rows": 3}, ({"type": "json", "rows": 3}, None, None)),
    ],
)
def test_a_result_says_in_its_type_whether_the_call_failed_or_was_denied(output: Any, wanted: Any) -> None:
    part = {"type": "tool-result", "toolCallId": "c1", "toolName": "search", "output": output}
    (answer,) = read_messages([{"role": "tool", "content": [part]}])[0].results
    assert (answer.value, answer.failed, answer.approved) == wanted


def test_an_approval_is_no_result() -> None:
    (message,) = read_messages([{"role": "tool", "parts": [{"type": "tool-approval-response"}]}])
    assert message.results == ()
    denied = {"type": "tool_call_response", "id": "c1", "response": {"denied": True, "reason": "no"}}
    (message,) = read_messages([{"role": "tool", "parts": [denied]}])
    assert (message.results[0].call_id, message.results[0].approved) == ("c1", False)


def test_blocks_in_an_event_are_read() -> None:
    result = '[{"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "no"}]}}]'
    events = [
        SpanEvent("gen_ai.user.message", {"content": '[{"text": "hello"}]'}),
        SpanEvent("gen_ai.tool.message", {"content": result}),
    ]
    user, tool = input_messages(span_view({"gen_ai.operation.name": "chat"}, events=events))
    assert (user.text, result_text(tool.results[0]), tool.results[0].failed) == ("hello", "no", True)


def test_arguments_and_result_of_the_ai_sdk_are_read_where_sentry_has_renamed_the_rest() -> None:
    renamed = {
        "ai.operationId": "ai.toolCall", "ai.toolCall.args": '{"query": "returns"}', "ai.toolCall.result": '{"total": 0}',
        "ai.telemetry.metadata.conversationId": "c-1", "sentry.op": "gen_ai.execute_tool",
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_docs", "gen_ai.tool.call.id": "call-1",
    }  # fmt: skip
    step = step_of(span_view(renamed, "execute_tool search_docs"))
    assert (step.tool_name, step.args, step.result) == ("search_docs", {"query": "returns"}, '{"total": 0}')
    assert (step.call_id, step.trajectory_id, step.dialect) == ("call-1", "c-1", "vercel")


# --- Sentry for JavaScript -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ('{"type":"tool-result","toolCallId":"c1","toolName":"look","input":{},"output":{"total":0}}', "{'total':0}"),
        ('{"type":"tool-result","toolCallId":"c1","output":"closed"}', "closed"),
        ('{"type":"tool-result","toolCallId":"c1"}', '{"type":"tool-result","toolCallId":"c1"}'),
        ('{"type":"tool-result","toolCallId":"c1', '{"type":"tool-result","toolCallId":"c1'),
        ('{"total":0}', '{"total":0}'),
    ],
)
def test_the_result_is_read_from_the_message_that_sentry_writes(written: str, result: str) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.input": '{"q": 1}', "gen_ai.tool.output": written, "sentry.op": "gen_ai.execute_tool",
    }  # fmt: skip
    step = step_of(span_view(attributes, "execute_tool look", scope="@sentry/node"))
    assert (step.dialect, step.tool_name, step.call_id, step.args) == ("sentry", "look", "c1", {"q": 1})
    assert str(step.result).replace('"', "'") == result.replace('"', "'")


def test_a_call_that_sentry_and_the_ai_sdk_report_counts_once() -> None:
    message = '{"type":"tool-result","toolCallId":"call_1","output":{"total":0}}'
    own = tool_view('{"q": 1}', '{"total": 0}', scope="gen_ai", span_id="1" * 16)
    wrapped = {key: value for key, value in own.attributes.items() if not key.startswith("gen_ai.tool.call.")}
    wrapped |= {"gen_ai.tool.call.id": "call_1", "gen_ai.tool.input": '{"q": 1}', "gen_ai.tool.output": message}
    assert len(extract_steps([own, span_view(wrapped, scope="@sentry/node", span_id="2" * 16)])) == 1
