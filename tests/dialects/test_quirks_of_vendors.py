"""Quirks of vendors whose spans nearly follow the conventions; their captures show the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import capture, extract_step, span_view, tool_view
from trajectory_guard.core.calls import CallRecord, same_call
from trajectory_guard.core.content.envelope import says_no
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanEvent, SpanView
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.spans.identity import is_agent_span
from trajectory_guard.transcripts.asked import asked_in
from trajectory_guard.transcripts.messages import defined_tools

CLAUDE = "com.anthropic.claude_code.tracing"


def step_of(span: SpanView, *above: SpanView) -> StepRecord:
    step = extract_step(span, ancestors=above)
    assert step is not None
    return step


# --- Claude Code ---------------------------------------------------------------------------------------------


def claude(**attributes: Any) -> SpanView:
    known = {"span.type": "tool", "gen_ai.operation.name": "execute_tool", "tool_name": "Bash"}
    return span_view({**known, **attributes}, "claude_code.tool")._replace(scope=CLAUDE)


def test_only_a_detailed_call_without_a_result_has_failed() -> None:
    asked = {"tool_input": '[TOOL INPUT: Bash]\n{"command": "ls"}'}
    assert step_of(claude(**asked)).outcome_type == "error"
    assert step_of(claude(**asked, new_context="[TOOL RESULT: Bash]\nx")).outcome_type == "success"
    assert step_of(claude()).outcome_type == "success"  # content is off: nothing says how it ended


def test_what_a_tool_put_out_is_its_result_before_what_describes_it() -> None:
    span = claude(new_context='[TOOL RESULT: Bash]\n{"stdout": ""}')
    assert step_of(span).result == '{"stdout": ""}'
    put_out = SpanEvent("tool.output", {"output": "", "bash_command": "true"})
    assert step_of(span._replace(events=[put_out])).outcome_type == "empty"
    read = SpanEvent("tool.output", {"file_path": "/a", "content": "one"})
    assert step_of(claude(tool_name="Read")._replace(events=[read])).result == "one"


def test_a_command_of_the_shell_is_known_without_details() -> None:
    assert step_of(claude(full_command="ls")).args == {"command": "ls"}


def test_tools_of_two_servers_have_two_names() -> None:
    step = step_of(claude(**{"tool_name": "mcp__shop__search", "gen_ai.tool.name": "search"}))
    assert step.tool_name == "mcp__shop__search"


def test_tokens_of_the_cache_were_sent_too() -> None:
    tokens = {"input_tokens": 3, "cache_read_tokens": 5, "cache_creation_tokens": 7, "output_tokens": 11}
    span = span_view({"span.type": "llm_request", **tokens}, "claude_code.llm_request")
    usage = model_usage(span._replace(scope=CLAUDE))
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (15, 11)
    assert model_usage(span) is None  # another vendor's attributes of the same names


def test_the_sdk_names_the_call_as_an_id_of_the_tool() -> None:
    span = span_view({"openinference.span.kind": "TOOL", "tool.name": "Bash", "tool.id": "toolu_1"})
    assert step_of(span).call_id == "toolu_1"


# --- Mastra --------------------------------------------------------------------------------------------------


def test_arguments_with_a_hidden_part_are_unknown() -> None:
    shown = {"mastra.span.type": "tool_call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up"}
    hidden = {**shown, "gen_ai.tool.call.arguments": '{"key":"[REDACTED]","table":"users"}'}
    assert step_of(span_view(hidden)).args is None
    assert step_of(span_view({**shown, "gen_ai.tool.call.arguments": '{"key":1}'})).args == {"key": 1}


def test_a_tool_of_the_client_goes_by_the_name_in_that_of_its_span() -> None:
    attributes = {"mastra.span.type": "client_tool_call", "mastra.metadata.args": '{"to":"x"}'}
    step = step_of(span_view(attributes, "client_tool_call send_mail"))
    assert (step.tool_name, step.args) == ("send_mail", {"to": "x"})


# --- Genkit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/{generate,t:util}", True),
        ("/{support,t:flow}/{generate,t:util}", True),
        ("/{generate,t:util}/{generate,t:util}", False),
        ("/{generate,t:util}/{ask_bob,t:action}/{generate,t:util}", True),
        ("/{generate,t:util}/{search,t:action,s:tool}", False),
        (None, False),
    ],
)
def test_the_outermost_generation_is_the_run(path: str | None, wanted: bool) -> None:
    attributes = {"genkit:type": "util", "genkit:name": "generate"}
    assert is_agent_span(span_view({**attributes, **({"genkit:path": path} if path else {})})) is wanted


def test_a_tool_that_asks_a_person_has_not_returned_nothing() -> None:
    attributes = {"genkit:metadata:subtype": "tool.v2", "genkit:name": "delete_all", "genkit:input": '{"scope":"prod"}'}
    asking = step_of(span_view({**attributes, "genkit:metadata:interrupt": '{"question": "sure?"}'}))
    assert asking.outcome_type == "interrupted"
    assert step_of(span_view(attributes)).outcome_type == "empty"


def test_all_rounds_of_a_turn_are_one_run() -> None:
    steps = [step for step in _steps("genkit__main") if step.agent_id == "alice"]
    assert [step.tool_name for step in steps[:3]] == ["search_orders"] * 3
    assert len({step.run for step in steps[:3]}) == 1
    assert len({step.run for step in steps}) == 3  # one in each user turn that calls tools


def test_a_model_call_of_genkit_shows_tokens_user_turn_and_tools() -> None:
    model = next(span for span in capture("genkit__main") if span.name == "scripted/alice")
    usage = model_usage(model)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 5)
    assert asked_in(model) is not None
    assert set(defined_tools(model) or ()) >= {"search_orders", "delete_all"}


def _steps(name: str) -> list[StepRecord]:
    spans = {span.span_id: span for span in capture(name)}
    found = []
    for span in sorted(spans.values(), key=lambda one: one.start):
        above, parent = [], span.parent_id
        while parent in spans:
            above.append(spans[parent])
            parent = spans[parent].parent_id
        step = extract_step(span, ancestors=above)
        found += [] if step is None else [step]
    return found


# --- DSPy and BeeAI ------------------------------------------------------------------------------------------


def test_a_tool_without_a_name_of_its_own_is_no_hand_off_in_dspy() -> None:
    span = span_view({"openinference.span.kind": "TOOL", "input.value": '{"kwargs": {"a": 1}}'}, "search.acall")
    step = step_of(span._replace(scope="openinference.instrumentation.dspy"))
    assert (step.tool_name, step.args) == ("search", {"a": 1})
    assert extract_step(span) is None


def test_the_arguments_that_the_model_sent_are_inside_those_of_the_method() -> None:
    span = span_view({"openinference.span.kind": "TOOL", "tool.name": "search"})
    span = span._replace(scope="openinference.instrumentation.beeai")
    wrapped = {"input": {"q": 1, "options": None}, "options": None}
    for written, sent in ((wrapped, {"q": 1, "options": None}), ({"input": "x"}, {"input": "x"})):
        attributes = {**span.attributes, "input.value": json.dumps(written)}
        assert step_of(span._replace(attributes=attributes)).args == sent


# --- AG2, LiteLLM, LangChain.js ------------------------------------------------------------------------------


def test_a_result_that_was_cut_off_is_unknown() -> None:
    attributes = {"ag2.span.type": "tool", "gen_ai.tool.name": "read_log", "gen_ai.tool.call.result": "waiting"}
    assert step_of(span_view(attributes)).result == "waiting"
    cut = step_of(span_view({**attributes, "ag2.tool.call.result.truncated": True}))
    assert (cut.result, cut.state_snapshot_hash, cut.outcome_type) == (None, None, "success")


def test_an_agent_without_a_name_is_not_called_unknown() -> None:
    tool = {"ag2.span.type": "tool", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    outer = span_view({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "unknown"}, span_id="c" * 16)
    assert step_of(span_view(tool), outer).agent_id is None


def test_the_cost_that_litellm_states_is_counted() -> None:
    usages = [usage for span in capture("client-litellm-native__loop") if (usage := model_usage(span)) is not None]
    assert [round(usage.cost_usd, 9) for usage in usages] == [0.000075] * 5


@pytest.mark.parametrize(
    ("written", "name"), [('{"kwargs": {"name": "search", "content": "x"}}', "search"), ("x", "DynamicTool")]
)
def test_the_message_of_a_tool_names_it_where_the_span_names_its_class(written: str, name: str) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool", "traceloop.span.kind": "task", "traceloop.entity.name": "DynamicTool",
        "traceloop.entity.input": '{"args": ["{\\"q\\": 1}"]}', "traceloop.entity.output": written,
    }  # fmt: skip
    step = step_of(span_view(attributes)._replace(scope="@traceloop/instrumentation-langchain"))
    assert (step.tool_name, step.args) == (name, {"q": 1})


# --- MLflow --------------------------------------------------------------------------------------------------


def test_a_function_that_mlflow_traces_as_a_tool_is_a_step() -> None:
    attributes = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": '{"q": 1}', "mlflow.spanOutputs": '"noon"'}
    outer = span_view({"mlflow.spanType": '"AGENT"'}, "support", span_id="c" * 16)
    step = step_of(span_view(attributes, "search"), outer)
    assert (step.tool_name, step.args, step.result, step.agent_id) == ("search", {"q": 1}, "noon", "support")
    assert step.run == outer.span_id


def test_the_name_of_a_model_has_no_quotes() -> None:
    tokens = {"mlflow.chat.tokenUsage": '{"input_tokens": 3, "output_tokens": 2}', "mlflow.llm.model": '"m-1"'}
    usage = model_usage(span_view({"mlflow.spanType": '"CHAT_MODEL"', **tokens}))
    assert usage is not None
    assert usage.unpriced == (("m-1", 3, 2),)


# --- OpenAI Agents for JavaScript ----------------------------------------------------------------------------


def agents_js(name: str = "search", **fields: Any) -> SpanView:
    attributes = {"openinference.span.kind": "TOOL", "tool.name": name.replace(" ", "_"), **fields.pop("io", {})}
    span = span_view(attributes, name, **fields)
    return span._replace(scope="@arizeai/openinference-instrumentation-openai-agents")


def test_without_sensitive_data_an_empty_text_is_no_result() -> None:
    hidden = step_of(agents_js(io={"output.value": ""}))
    assert (hidden.args, hidden.result, hidden.outcome_type, hidden.evidence) == (None, None, "success", "name_only")
    shown = step_of(agents_js(io={"input.value": "{}", "output.value": ""}))
    assert (shown.args, shown.result, shown.outcome_type) == ({}, "", "empty")


def test_a_handoff_that_is_written_as_a_tool_is_no_step() -> None:
    io = {"input.value": '{"from_agent":"a"}', "output.value": '{"to_agent":"b"}'}
    assert extract_step(agents_js("handoff to b", io=io)) is None


def test_a_refused_call_is_known_by_the_id_in_its_status() -> None:
    says = 'Tool execution was not approved.: {"error":"Tool execution for call_7 was manually rejected by user."}'
    refused = step_of(agents_js(status="error", status_description=says))
    assert (refused.call_id, refused.outcome_type) == ("call_7", "denied")


# --- Amazon Bedrock ------------------------------------------------------------------------------------------


def bedrock(metadata: dict[str, Any], **io: Any) -> SpanView:
    known = {"openinference.span.kind": "TOOL", "tool.name": "", "output.value": "found"}
    span = span_view({**known, "metadata": json.dumps(metadata), **io}, "action_group")
    return span._replace(scope="openinference.instrumentation.bedrock")


def test_parameters_of_an_action_are_its_arguments() -> None:
    listed = json.dumps([{"name": "q", "type": "string", "value": "x"}])
    step = step_of(bedrock({"action_group_name": "Shop"}, **{"tool.name": "search", "tool.parameters": listed}))
    assert (step.tool_name, step.args, step.result) == ("Shop__search", {"q": "x"}, "found")
    for unread in ('["q"]', "q"):
        io = {"tool.name": "search", "tool.parameters": unread}
        assert step_of(bedrock({"action_group_name": "Shop"}, **io)).args is None


def test_an_action_of_a_schema_is_named_by_its_path() -> None:
    action = bedrock({"action_group_name": "Shop", "verb": "GET", "api_path": "/orders"}, **{"tool.parameters": "[]"})
    assert (step_of(action).tool_name, step_of(action).args) == ("GET /orders", {})


def test_code_that_an_agent_runs_is_its_argument() -> None:
    io = {"tool.name": "code_interpreter", "tool.parameters": '{"code": {"type": "string"}}', "input.value": "1+1"}
    assert step_of(bedrock({"invocation_type": "code_execution"}, **io)).args == {"__single__": "1+1"}


def test_tools_of_a_request_to_bedrock_are_known() -> None:
    written = {"llm.tools.0.tool.json_schema": '{"toolSpec": {"name": "search"}}'}
    assert defined_tools(span_view(written)) == {"search": False}


# --- VoltAgent -----------------------------------------------------------------------------------------------


def test_a_sub_agent_of_voltagent_is_named_on_its_tools() -> None:
    run = {"operation.id": "1", "entity.type": "agent", "entity.name": "alice", "subagent.name": "bob"}
    tool = span_view({**run, "span.type": "tool", "tool.name": "search", "tool.call.id": "c1", "input": '{"q": 1}'})
    outer = span_view({**run, "operation.id": "0"}, "subagent:bob", span_id="c" * 16)
    step = step_of(tool, outer)
    assert (step.agent_id, step.run, step.call_id, step.outcome_type) == ("bob", outer.span_id, "c1", "empty")
    assert is_agent_span(outer)
    assert not is_agent_span(tool)


def test_the_total_of_a_run_of_voltagent_is_no_model_call() -> None:
    run = {"operation.id": "1", "entity.type": "agent"}
    assert model_usage(span_view({**run, "usage.prompt_tokens": 90})) is None
    usage = model_usage(span_view({**run, "span.type": "llm", "llm.usage.prompt_tokens": 10, "llm.model": "m-1"}))
    assert usage is not None
    assert usage.input_tokens == 10


# --- Laminar -------------------------------------------------------------------------------------------------


def test_a_function_that_laminar_observes_as_a_tool_is_a_step() -> None:
    attributes = {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"q":1}', "lmnr.span.output": '"noon"'}
    step = step_of(span_view({**attributes, "lmnr.association.properties.session_id": "s-1"}, "search"))
    assert (step.tool_name, step.args, step.result, step.trajectory_id) == ("search", {"q": 1}, "noon", "s-1")
    assert extract_step(span_view({**attributes, "lmnr.span.type": "DEFAULT"}, "search")) is None


def test_a_function_that_throws_under_laminar_for_javascript_failed() -> None:
    attributes = {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"path":"/a"}'}
    thrown = SpanEvent("exception", {"exception.type": "Error", "exception.message": "no such file: /a"})
    step = step_of(span_view(attributes, "read_file", events=[thrown]))
    assert (step.outcome_type, step.result) == ("error", "Error: no such file: /a")
    assert step_of(span_view(attributes, "read_file")).outcome_type == "success"


@pytest.mark.parametrize(
    "written",
    ['[{"content": "7"}]', "7", ("7",), ["7"], "[]", '["7"]', '[{"role": "tool"}]', "[" * 100_000, 7, {"content": "7"}],
    ids=lambda written: str(written)[:20],
)
def test_a_call_of_tanstack_is_read_whatever_its_messages_are(written: Any) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order", "tanstack.ai.tool.outcome": "success",
        "gen_ai.input.messages": written, "gen_ai.output.messages": written,
    }  # fmt: skip
    step = step_of(span_view(attributes, "execute_tool get_order"))
    assert (step.tool_name, step.outcome_type == "error") == ("get_order", False)


# --- hidden content ------------------------------------------------------------------------------------------


def test_only_a_call_without_any_result_waits_for_a_person() -> None:
    known = {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": '{"query": "refund"}'}
    span = span_view(known)._replace(scope="openinference.instrumentation.openai_agents")
    assert step_of(span).outcome_type == "interrupted"
    hidden = step_of(span._replace(attributes={**known, "output.value": "__REDACTED__"}))
    assert (hidden.outcome_type, hidden.result) == ("success", None)


def test_a_hidden_result_is_not_an_empty_one() -> None:
    known = {"ai.toolCall.name": "search", "ai.toolCall.args": '{"query": "refund"}'}
    assert step_of(span_view(known)).outcome_type == "empty"
    assert step_of(span_view({**known, "ai.toolCall.result": "[REDACTED]"})).outcome_type == "success"


@pytest.mark.parametrize("result", ['"[REDACTED]"', '{"output": "[REDACTED]"}', '[{"type": "text", "text": "****"}]'])
def test_a_placeholder_within_a_wrapper_is_no_result(result: str) -> None:
    assert step_of(tool_view(result=result)).result is None


def test_an_error_that_is_withheld_says_nothing() -> None:
    text = "Error running tool (non-fatal): {'error': 'Tool execution failed. Error details are redacted.'}"
    span = span_view({"openinference.span.kind": "TOOL", "tool.name": "fetch"})
    step = step_of(span._replace(status="error", status_description=text))
    assert (step.outcome_type, step.result) == ("error", None)


def test_logfire_shows_a_failure_by_the_level_before_the_status_is_set() -> None:
    known = {"logfire.msg_template": "Function: {name}", "name": "fetch", "input": "null", "output": "null"}
    assert step_of(span_view({**known, "logfire.level_num": 9})).outcome_type == "success"
    assert step_of(span_view({**known, "logfire.level_num": 17})).outcome_type == "error"


@pytest.mark.parametrize("kind", ["TOOL_ERROR", "pydantic_ai.exceptions.ToolRetryError", "_OTHER"])
def test_a_class_of_any_failure_says_nothing(kind: str) -> None:
    span = tool_view(result=None, extra={"error.type": kind})._replace(status="error", status_description=kind)
    step = step_of(span)
    assert (step.outcome_type, step.result, step.error_class) == ("error", None, None)
    raised = span_view({**span.attributes, "error.type": ""})
    event = SpanEvent("exception", {"exception.type": kind})
    assert step_of(raised._replace(status="error", events=[event])).error_class is None


def test_a_class_that_is_repeated_as_the_text_counts_as_class_only() -> None:
    span = tool_view(result=None, extra={"error.type": "builtins.KeyError"})
    step = step_of(span._replace(status="error", status_description="builtins.KeyError"))
    assert (step.result, step.error_class) == (None, "KeyError")


@pytest.mark.parametrize("hidden", ["[REDACTED]", '"<fully masked due to failed mask function>"'])
def test_hidden_ids_are_none(hidden: str) -> None:
    """As ids, all calls would be one call, and all conversations one conversation."""
    ids = {"gen_ai.tool.call.id": hidden, "gen_ai.conversation.id": hidden}
    step = step_of(tool_view(extra=ids))
    assert (step.call_id, step.trajectory_id) == (None, step.trace_id)
    masked = {"langfuse.observation.type": "tool", "langfuse.observation.metadata.tool_call_id": hidden}
    step = step_of(span_view({**masked, "langfuse.observation.metadata.thread_id": hidden}, "search"))
    assert (step.call_id, step.trajectory_id) == (None, step.trace_id)


# --- Agno ----------------------------------------------------------------------------------------------------

WRITTEN = "status='{}' result={} error={} updated_session_state=None images=None videos=None audios=None files=None"


def agno(written: str) -> StepRecord:
    """A tool span of OpenLLMetry with this result."""
    attributes = {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "read", "traceloop.entity.input": '{"path": "a"}',
        "traceloop.entity.output": written,
    }  # fmt: skip
    return step_of(span_view(attributes, "read.tool")._replace(scope="opentelemetry.instrumentation.agno", status="ok"))


@pytest.mark.parametrize(
    ("written", "result", "outcome"),
    [
        (WRITTEN.format("failure", "None", repr("it's not there")), "it's not there", "error"),
        (WRITTEN.format("failure", "None", repr("")), "", "error"),
        (WRITTEN.format("success", repr("status='failure' result=None"), "None"), "status='failure' result=None", "success"),
        (WRITTEN.format("success", repr('{"a": "\\n"}'), "None"), '{"a": "\\n"}', "success"),
        (WRITTEN.format("success", "[]", "None"), "[]", "empty"),
        (WRITTEN.format("success", "ToolResult(content='it\\'s', images=None)", "None"), "it's", "success"),
        ("status='success' result='of the first versions' error=None", "of the first versions", "success"),
        ("plain", "plain", "success"),
    ],
)  # fmt: skip
def test_the_result_of_agno_is_inside_its_own_object(written: str, result: str, outcome: str) -> None:
    step = agno(written)
    assert (step.result, step.outcome_type) == (result, outcome)


# Found: each call of a tool that streams has another generator as its result, which counted as one result.
def test_what_a_generator_yields_is_unknown() -> None:
    step = agno(WRITTEN.format("success", "<generator object read at 0x7f9c3a9b6cf0>", "None"))
    assert (step.result, step.outcome_type, str(step.evidence)) == (None, "success", "no_result")


# --- OpenLIT -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "args", "result"),
    [
        (
            "Error executing tool 'read' with arguments {'path': 'a'}: OSError: no\nTry again.", {"path": "a"},
            "OSError: no\nTry again.",
        ),
        ("Error executing tool 'read' with arguments {}: OSError: {1: 2}: no", {}, "OSError: {1: 2}: no"),
        ("Unknown tool read", None, "smolagents.utils.AgentToolExecutionError: Unknown tool read"),
    ],
)  # fmt: skip
def test_a_tool_of_smolagents_that_raised_leaves_its_exception_only(message: str, args: Any, result: str) -> None:
    exception = {"exception.type": "smolagents.utils.AgentToolExecutionError", "exception.message": message}
    span = span_view({"error.type": "AgentToolExecutionError"}, "execute_tool read")._replace(
        scope="openlit.instrumentation.smolagents", status="error", events=[SpanEvent("exception", exception)]
    )
    step = step_of(span)
    assert (step.tool_name, step.args, step.result, step.outcome_type) == ("read", args, result, "error")
    assert extract_step(span._replace(scope="app")) is None


# Found: twelve look-ups of an agent of Pydantic AI were twelve more calls of a tool that was named after its model.
def test_a_node_of_pydantic_ai_that_calls_tools_is_none() -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.agent.name": "alice"}
    node = span_view(attributes, "execute_tool gpt-x")._replace(scope="openlit.instrumentation.pydantic_ai")
    assert extract_step(node) is None
    assert step_of(node._replace(attributes={**attributes, "gen_ai.tool.name": "search"})).tool_name == "search"


# --- OpenInference on the spans of Vercel's SDK ---------------------------------------------------------------


def test_an_error_of_an_earlier_call_is_not_that_of_a_later_one() -> None:
    attributes = {"ai.toolCall.name": "now", "ai.toolCall.args": "{}", "openinference.span.kind": "TOOL"}
    span = span_view(attributes, "ai.toolCall")._replace(status="error", status_description="no such file: /a")
    assert step_of(span._replace(attributes={**attributes, "ai.toolCall.result": '"noon"'})).result == "noon"
    assert step_of(span).outcome_type == "empty"
    raised = SpanEvent("exception", {"exception.type": "Error", "exception.message": "no such file: /a"})
    assert step_of(span._replace(events=[raised])).outcome_type == "error"
    del attributes["openinference.span.kind"]  # the SDK alone: what is thrown need not be an exception
    assert step_of(span).outcome_type == "error"


def test_a_generation_is_named_by_its_function_alone() -> None:
    attributes = {"ai.operationId": "ai.generateText", "openinference.span.kind": "AGENT"}
    call = tool_view()
    assert step_of(call, span_view(attributes, "ai.generateText")).agent_id is None
    assert step_of(call, span_view({**attributes, "ai.telemetry.functionId": "alice"}, "x alice")).agent_id == "alice"


# --- Langfuse for JavaScript ---------------------------------------------------------------------------------


def test_an_error_may_stand_in_the_message_beside_the_status() -> None:
    attributes = {"langfuse.observation.type": "tool", "langfuse.observation.level": "ERROR"}
    span = span_view({**attributes, "langfuse.observation.status_message": "Error: no such file: /a"}, "read_config")
    assert (step_of(span).outcome_type, step_of(span).result) == ("error", "Error: no such file: /a")


# --- GitHub Copilot CLI --------------------------------------------------------------------------------------


def copilot(code: int, result: str | None, command: str = "ls /a") -> StepRecord:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "bash",
        "gen_ai.tool.call.arguments": json.dumps({"command": command}),
        "process.exit.code": code,
    }
    shown = {} if result is None else {"gen_ai.tool.call.result": result}
    return step_of(span_view({**attributes, **shown})._replace(scope="github.copilot"))


def test_a_command_of_copilot_fails_by_its_exit_code() -> None:
    assert copilot(0, "a\n<shellId: 0 completed with exit code 0>").outcome_type == "success"
    assert copilot(2, "no such file\n<shellId: 1 completed with exit code 2>").outcome_type == "error"
    assert copilot(2, None).outcome_type == "error"
    one, other = (copilot(0, f"a\n<shellId: {number} completed with exit code 0>") for number in (3, 4))
    assert one.state_snapshot_hash == other.state_snapshot_hash


def test_a_search_of_copilot_that_printed_nothing_says_no() -> None:
    assert says_no(copilot(1, "<shellId: 1 completed with exit code 1>", "grep -rn refund src"))
    assert not says_no(copilot(1, "<shellId: 1 completed with exit code 1>", "make test"))


# --- LangSmith around Google ADK -----------------------------------------------------------------------------


def test_a_record_with_content_completes_the_one_around_it_once() -> None:
    def record(call_id: str | None, args: Any, start: float, end: float, dialect: str) -> CallRecord:
        return CallRecord("search", args, None, start, end, dialect, call_id, "success", dialect)

    around = record("call_1", None, 10.0, 20.0, "google_adk")
    inside = record(None, "a" * 16, 11.0, 19.0, "langsmith")
    assert same_call(around, inside)
    assert not same_call(around.with_report(inside), inside._replace(args_hash="b" * 16))
    assert not same_call(around, inside._replace(start=9.0))
    assert not same_call(around, inside._replace(dialect="google_adk"))
