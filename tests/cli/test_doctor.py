"""The doctor finds what is missing, in an environment and in captures, and names the line that fixes it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import DATA, capture, capture_names, record, span_view, tool_view
from trajectory_guard.cli.doctor import run as doctor
from trajectory_guard.cli.doctor.capture import capture_findings, length_limit, recorded_findings
from trajectory_guard.cli.doctor.environment import environment_findings, instrumentations, release
from trajectory_guard.cli.findings import Finding, plural, share, sort_findings
from trajectory_guard.dialects.span import SpanView

LANGCHAIN = {
    "opentelemetry-sdk": "1.45.1",
    "opentelemetry-api": "1.45.1",
    "opentelemetry-instrumentation-langchain": "0.62.4",
}
OFFICIAL = {"opentelemetry-instrumentation-genai-langchain": "1.3b0"}
OPENINFERENCE = {"openinference-instrumentation-langchain": "0.1.80"}


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    """Findings by code; those that are fine left out."""
    return {finding.code: finding for finding in findings if finding.severity != "ok"}


# --- the environment -----------------------------------------------------------------------------------------


def test_a_good_environment_has_nothing_to_fix() -> None:
    found = environment_findings({}, LANGCHAIN)
    assert [(one.severity, one.code, one.subject) for one in found] == [
        ("ok", "instrumentation", "opentelemetry-instrumentation-langchain")
    ]


@pytest.mark.parametrize(
    ("environ", "versions", "severity", "code", "fix"),
    [
        ({}, {}, "problem", "no_instrumentation", "pip install opentelemetry-instrumentation-langchain"),
        ({}, {"langgraph": "1.2", "langchain-core": "1.7", "langchain": "1.4"}, "warn", "no_instrumentation",
         "pip install opentelemetry-instrumentation-langchain"),
        ({}, {**LANGCHAIN, "langgraph": "1.1", "langchain-core": "1.7", "langchain": "1.4"}, "warn", "no_gate", "pip install '.[langgraph]'"),
        ({"TRACELOOP_TRACE_CONTENT": "false"}, LANGCHAIN, "problem", "content_off", "export TRACELOOP_TRACE_CONTENT=true"),
        ({"TRACELOOP_TRACE_CONTENT": "0"}, OPENINFERENCE, "warn", "content_off", "export TRACELOOP_TRACE_CONTENT=true"),
        ({"OPENINFERENCE_HIDE_INPUTS": "true"}, OPENINFERENCE, "problem", "content_off", "unset OPENINFERENCE_HIDE_INPUTS"),
        ({"OPENINFERENCE_HIDE_OUTPUTS": "1", "OPENINFERENCE_HIDE_INPUT_TEXT": "true"}, OPENINFERENCE, "problem", "content_off",
         "unset OPENINFERENCE_HIDE_OUTPUTS OPENINFERENCE_HIDE_INPUT_TEXT"),
        ({}, OFFICIAL, "problem", "content_off", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "event_only"}, OFFICIAL, "problem", "content_off", "CONTENT=span_only"),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}, OFFICIAL, "warn", "old_conventions", "OPT_IN=gen_ai_latest_experimental"),
        ({}, {"agent-framework-core": "1.23.0"}, "warn", "content_off", "export ENABLE_SENSITIVE_DATA=true"),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "256"}, LANGCHAIN, "problem", "value_limit", "unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
        ({"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "2048"}, LANGCHAIN, "warn", "value_limit", "unset OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "32"}, LANGCHAIN, "warn", "count_limit", "unset OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, LANGCHAIN, "problem", "sampled_out", "export OTEL_TRACES_SAMPLER=parentbased_always_on"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, LANGCHAIN, "problem", "sampled_out",
         "export OTEL_TRACES_SAMPLER=parentbased_always_on"),
        ({"OTEL_SDK_DISABLED": "true"}, LANGCHAIN, "problem", "sdk_disabled", "unset OTEL_SDK_DISABLED"),
        ({"LANGSMITH_OTEL_ENABLED": "true"}, {"langsmith": "0.14"}, "warn", "late_spans", "opentelemetry-instrumentation-langchain"),
        ({"TRAJECTORY_GUARD_DISABLED": "true"}, LANGCHAIN, "warn", "guard_disabled", "unset TRAJECTORY_GUARD_DISABLED"),
        ({"TRAJECTORY_GUARD_DECAY": "7"}, LANGCHAIN, "problem", "bad_configuration", "env | grep TRAJECTORY_GUARD_"),
        ({"TRAJECTORY_GUARD_NUDGE_TRESHOLD": "1"}, LANGCHAIN, "warn", "unknown_variable", "export TRAJECTORY_GUARD_NUDGE_THRESHOLD="),
        ({}, {**LANGCHAIN, **OPENINFERENCE}, "warn", "two_instrumentations", "pip uninstall openinference-instrumentation-langchain"),
        ({"LANGSMITH_OTEL_ENABLED": "1"}, {**LANGCHAIN, "langsmith": "0.14"}, "warn", "two_instrumentations", "export LANGSMITH_OTEL_ENABLED=false"),
        ({}, {**LANGCHAIN, "langgraph": "1.2", "langchain-core": "1.7"}, "warn", "no_gate", "pip install '.[langgraph]'  # in a clone"),
        ({}, {**LANGCHAIN, "langgraph": "0.6", "langchain-core": "1.7", "langchain": "1.0"}, "warn", "no_gate", "pip install '.[langgraph]'"),
        ({}, {"opentelemetry-instrumentation-langchain": "0.49.0", "wrapt": "2.0.1"}, "problem", "version_pair", "pip install -U opentelemetry-instrumentation-langchain"),
        ({}, {**LANGCHAIN, "opentelemetry-instrumentation-openai-v2": "2.3b0", "wrapt": "2.1"}, "problem", "version_pair", "pip install 'wrapt<2'"),
        ({}, {**LANGCHAIN, "opentelemetry-instrumentation-openai-v2": "2.4b0", "opentelemetry-util-genai": "1.3b0"}, "problem", "version_pair",
         "pip install -U opentelemetry-util-genai"),
        ({}, {**LANGCHAIN, "opentelemetry-instrumentation-mcp": "0.62", "mcp": "2.3.0"}, "problem", "version_pair", "pip install 'mcp<2'"),
        ({}, {**LANGCHAIN, "pydantic-ai-slim": "0.8.1"}, "problem", "version_pair", "pip install -U pydantic-ai-slim"),
        ({}, {**LANGCHAIN, "opentelemetry-sdk": "1.20.0"}, "problem", "old_sdk", "pip install -U opentelemetry-sdk"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_environment_is_named_with_its_fix(
    environ: dict[str, str], versions: dict[str, str], severity: str, code: str, fix: str
) -> None:
    found = by_code(environment_findings(environ, versions))[code]
    assert found.severity == severity
    assert fix in (found.fix or "")
    assert found.message.endswith((".", "?")) or code == "bad_configuration"


@pytest.mark.parametrize(
    "environ",
    [
        {"TRACELOOP_TRACE_CONTENT": "true", "OPENINFERENCE_HIDE_INPUTS": "false"},
        {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "junk"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.0"},
        {"OTEL_TRACES_SAMPLER": "parentbased_always_on", "OTEL_SDK_DISABLED": "false"},
        {"TRAJECTORY_GUARD_MODEL_PATH": "/models", "TRAJECTORY_GUARD_NUDGE_THRESHOLD": "1.5"},
        {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100000"},
    ],
)  # fmt: skip
def test_harmless_settings_are_left_alone(environ: dict[str, str]) -> None:
    assert by_code(environment_findings(environ, LANGCHAIN)) == {}


def test_of_two_instrumentations_the_user_has_the_choice() -> None:
    both = by_code(environment_findings({}, {**LANGCHAIN, **OPENINFERENCE}))["two_instrumentations"]
    (own, other) = ("opentelemetry-instrumentation-langchain", "openinference-instrumentation-langchain")
    assert both.fix == f"pip uninstall {other}  # keeps {own}; or: pip uninstall {own}  # keeps {other}"
    versions = {**LANGCHAIN, **OPENINFERENCE, "langsmith": "0.14"}
    three = by_code(environment_findings({"LANGSMITH_OTEL_ENABLED": "1"}, versions))["two_instrumentations"]
    assert (three.fix or "").split("; or: ") == [
        f"pip uninstall {other} && export LANGSMITH_OTEL_ENABLED=false  # keeps {own}",
        f"pip uninstall {own} && export LANGSMITH_OTEL_ENABLED=false  # keeps {other}",
        f"pip uninstall {own} && pip uninstall {other}  # keeps langsmith",
    ]


def test_a_disabled_instrumentation_is_no_second_one() -> None:
    environ = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "redis, langchain"}
    assert "two_instrumentations" not in by_code(environment_findings(environ, {**LANGCHAIN, **OPENINFERENCE}))


def test_packages_are_recognised_by_their_names() -> None:
    versions = dict.fromkeys(
        ("openinference-instrumentation-agno", "opentelemetry-instrumentation-crewai", "opentelemetry-instrumentation-openai-v2", "langfuse",
         "opentelemetry-instrumentation-flask", "langsmith", "requests", "opentelemetry-instrumentation"), "1"
    )  # fmt: skip
    assert instrumentations(versions, {}) == {
        "openinference-instrumentation-agno": "OpenInference", "opentelemetry-instrumentation-crewai": "OpenLLMetry",
        "opentelemetry-instrumentation-openai-v2": "OpenTelemetry GenAI", "langfuse": "Langfuse",
    }  # fmt: skip


@given(st.text(max_size=20))
def test_any_version_text_is_compared(text: str) -> None:
    assert isinstance(release(text), tuple)
    environment_findings({}, {**LANGCHAIN, "wrapt": text, "mcp": text, "langgraph": text})


def test_this_environment_is_examined_too() -> None:
    versions = doctor.installed_versions()
    assert "opentelemetry-sdk" in versions
    assert environment_findings({}, versions)


# --- captures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "severity", "code", "subject", "fix"),
    [
        ("openllmetry-langchain-nocontent__stategraph_sync", "problem", "no_arguments", "OpenLLMetry", "export TRACELOOP_TRACE_CONTENT=true"),
        ("openllmetry-langchain-nocontent__stategraph_sync", "problem", "no_results", "OpenLLMetry", "export TRACELOOP_TRACE_CONTENT=true"),
        ("ag2__main", "warn", "no_results", "AG2", "TelemetryMiddleware(capture_content=True, max_tool_result_chars=None)"),
        ("ag2__main", "warn", "no_conversation", "AG2", 'TelemetryMiddleware(span_attributes={"gen_ai.conversation.id": conversation_id})'),
        ("openllmetry-langchain-events__stategraph_sync", "problem", "no_arguments", "OpenLLMetry", "LangchainInstrumentor(use_attributes=True).instrument()"),
        ("openinference-langchain-hidden__arg_shapes", "problem", "redacted", "OpenInference", "unset OPENINFERENCE_HIDE_INPUTS OPENINFERENCE_HIDE_OUTPUTS"),
        ("openinference-langchain-hidden__arg_shapes", "problem", "no_results", "OpenInference", "unset OPENINFERENCE_HIDE_INPUTS OPENINFERENCE_HIDE_OUTPUTS"),
        ("dual-openllmetry-openinference__stategraph_sync", "warn", "two_instrumentations",
         "openinference.instrumentation.langchain + opentelemetry.instrumentation.langchain", "pip uninstall openinference-instrumentation-langchain"),
        ("langfuse-langchain__bare_tool", "problem", "no_conversation", "Langfuse", "with langfuse.propagate_attributes(session_id=conversation_id): ..."),
        ("openinference-langchain__bare_tool", "problem", "no_conversation", "OpenInference",
         "with openinference.instrumentation.using_session(conversation_id): ..."),
        ("client-openai-traceloop__loop", "problem", "no_tool_spans", "OpenLLMetry", "execute_tool"),
        ("client-anthropic-openinference__loop", "problem", "no_conversation", "OpenInference", "using_session"),
        ("crewai-traceloop-react__crew", "problem", "no_tool_spans", "OpenLLMetry", "pip install openinference-instrumentation-crewai"),
        ("pipecat__main", "problem", "no_tool_spans", "other", "pip install openinference-instrumentation-pipecat"),
        ("google-genai-official__automatic", "problem", "no_tool_spans", "OpenTelemetry GenAI", "execute_tool"),
        ("laminar-nocontent__main", "problem", "no_arguments", "Laminar", "@observe(span_type='TOOL')"),
        ("pydantic-ai-nocontent__main", "problem", "no_arguments", "Pydantic AI", "InstrumentationSettings(include_content=True)"),
        ("agent-framework-nocontent__single_two_turns", "problem", "no_arguments", "Microsoft Agent Framework", "export ENABLE_SENSITIVE_DATA=true"),
        ("openai-agents-traceloop__nocontent", "problem", "no_arguments", "OpenAI Agents", "RunConfig(trace_include_sensitive_data=True)"),
        ("openai-agents-traceloop__nocontent", "problem", "no_results", "OpenAI Agents", "TRACELOOP_TRACE_CONTENT=true"),
        ("openai-agents-openinference__nocontent", "problem", "no_arguments", "OpenInference", "RunConfig(trace_include_sensitive_data=True)"),
        ("openai-agents-openinference__nocontent", "problem", "no_results", "OpenInference", "RunConfig(trace_include_sensitive_data=True)"),
        ("openai-agents-js-openinference-nocontent__main", "problem", "no_arguments", "OpenInference for JavaScript", "traceIncludeSensitiveData: true"),
        ("autogen-native__single", "problem", "no_arguments", "AutoGen", "AutoGen has no switch"),
        ("openllmetry-langchain__hitl_middleware_reject", "warn", "calls_without_span", "OpenLLMetry", None),
        ("openai-agents-traceloop__handoff", "warn", "no_conversation", "OpenAI Agents", "gen_ai.conversation.id"),
        ("vercel-v7-nocontent__main", "problem", "no_arguments", "Vercel AI SDK 7", "telemetry: { recordInputs: true"),
    ],
)  # fmt: skip
def test_what_a_capture_lacks_is_named_with_its_fix(
    name: str, severity: str, code: str, subject: str, fix: str | None
) -> None:
    found = by_code(capture_findings(capture(name)))[code]
    assert (found.severity, found.subject) == (severity, subject)
    assert found.fix is None if fix is None else fix in (found.fix or "")


@pytest.mark.parametrize(
    "name",
    ["openllmetry-langchain__create_agent_sync", "langsmith-langchain__two_turns", "traceloop-sdk-decorators__agent"],
)
def test_a_full_capture_has_nothing_to_fix(name: str) -> None:
    assert by_code(capture_findings(capture(name))) == {}


def test_the_steps_found_are_counted() -> None:
    found = next(
        one for one in capture_findings(capture("openllmetry-langchain__hitl_middleware_reject")) if one.code == "steps"
    )
    assert found.data["dialects"] == {"openllmetry": 1, "semconv.messages": 1}
    assert (found.data["steps"], found.data["trajectories"], found.data["longest"]) == (2, 1, 2)
    assert "2 tool calls in 1 trajectory" in found.message


def test_every_capture_is_examined() -> None:
    for name in capture_names():
        findings = capture_findings(capture(name))
        assert findings, name
        assert all(one.message and one.subject for one in findings), name
        json.dumps([one.to_json() for one in findings])


def cut(spans: list[SpanView], limit: int) -> list[SpanView]:
    """``spans`` as an SDK with an attribute length limit would have written them."""
    return [
        span._replace(
            attributes={
                key: value[:limit] if isinstance(value, str) else value for key, value in span.attributes.items()
            }
        )
        for span in spans
    ]


@pytest.mark.parametrize("limit", [64, 200, 400])
@pytest.mark.parametrize(
    "name",
    [
        "openllmetry-langchain__create_agent_sync",
        "langfuse-langchain__create_agent_sync",
        "openlit-langchain__create_agent_sync",
    ],
)
def test_truncated_values_are_noticed(name: str, limit: int) -> None:
    spans = cut(capture(name), limit)
    assert length_limit(spans) == limit
    found = next(one for one in capture_findings(spans) if one.code == "truncated")
    assert found.fix == "unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    assert found.data["limit"] == limit


def test_whole_values_are_not_called_truncated() -> None:
    assert {name for name in capture_names() if length_limit(capture(name)) is not None} == set()


def test_missing_parents_are_noticed() -> None:
    spans = [tool_view(parent_id="c" * 16), span_view({}, "other", span_id="d" * 16)]
    found = by_code(capture_findings(spans))["missing_parents"]
    assert found.data == {"spans": 1, "tool_spans": 1}
    assert found.fix == "export OTEL_TRACES_SAMPLER=parentbased_always_on"


def test_spans_without_any_call_are_a_problem() -> None:
    found = by_code(capture_findings([span_view({"http.route": "/"}, "GET /")]))["no_tool_spans"]
    assert found.message == "1 span and no tool call among them."


def test_step_lines_are_examined_for_their_fields() -> None:
    steps = [record(args={"q": 1}, result="x"), record(args=None, result=None)]
    assert {code: one.severity for code, one in by_code(recorded_findings(steps)).items()} == {
        "no_args": "problem",
        "no_result": "problem",
    }


@given(st.dictionaries(
    st.sampled_from(["gen_ai.operation.name", "openinference.span.kind", "tool.name", "input.value", "metadata", "traceloop.span.kind", "x"]),
    st.text(max_size=30) | st.integers() | st.lists(st.text(max_size=3), max_size=2) | st.sampled_from(["execute_tool", "TOOL", "chat", "__REDACTED__"]),
))  # fmt: skip
def test_no_span_makes_the_doctor_fail(attributes: dict[str, Any]) -> None:
    found = capture_findings([span_view(attributes), span_view(attributes, span_id="1" * 16, parent_id="2" * 16)])
    assert {finding.severity for finding in found} <= {"ok", "warn", "problem"}
    assert all(finding.message for finding in found)


# --- the command ---------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_doctor(parser.add_subparsers())
    options = parser.parse_args(["doctor", *arguments])
    return int(options.run(options))


def path(name: str) -> str:
    return str(DATA / "spans" / f"{name}.json.gz")


def test_the_exit_status_tells_problems_from_warnings_and_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = tmp_path / "junk.json"
    junk.write_text("{")
    assert run(path("openllmetry-langchain__create_agent_sync")) == 0
    assert run(path("dual-openllmetry-openinference__stategraph_sync")) == 0
    assert run(path("openllmetry-langchain-nocontent__stategraph_sync")) == 1
    assert run(str(junk)) == 2
    assert run(str(tmp_path / "missing.json")) == 2
    assert "missing.json" in capsys.readouterr().err


def test_the_report_shows_the_worst_first_and_each_fix_below(capsys: pytest.CaptureFixture[str]) -> None:
    run(path("openllmetry-langchain-nocontent__stategraph_sync"))
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("✗ OpenLLMetry  All 8 calls without arguments")
    assert out[1].strip() == "export TRACELOOP_TRACE_CONTENT=true"
    assert out[-1] == "2 problems."


def test_without_rich_the_report_is_the_same_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = path("openllmetry-langchain-events__stategraph_sync")
    run(name)
    rich = capsys.readouterr().out
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    run(name)
    assert capsys.readouterr().out == rich


def test_json_is_a_list_of_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", path("openllmetry-langchain-nocontent__stategraph_sync")) == 1
    findings = json.loads(capsys.readouterr().out)
    assert {"severity", "code", "subject", "message", "fix", "data"} == set(findings[0])
    assert findings[0]["severity"] == "problem"


def test_without_files_the_environment_is_examined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr(doctor, "installed_versions", lambda: LANGCHAIN)
    assert run() == 1
    assert "unset OTEL_SDK_DISABLED" in capsys.readouterr().out


def test_several_files_are_taken_together_and_step_lines_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "steps.jsonl"
    lines.write_text('{"id": "a", "steps": [{"tool": "x", "args": {"q": 1}, "result": "y"}]}\n')
    assert run("--json", str(lines), path("openllmetry-langchain__create_agent_sync")) == 0
    steps = [one for one in json.loads(capsys.readouterr().out) if one["code"] == "steps"]
    assert [one["subject"] for one in steps] == ["OpenLLMetry", "step lines"]


def test_only_so_many_spans_are_looked_at(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "MAX_SPANS", 5)
    run("--json", path("openllmetry-langchain__create_agent_sync"))
    assert "partial" in [one["code"] for one in json.loads(capsys.readouterr().out)]


def test_control_characters_of_a_capture_do_not_reach_the_terminal() -> None:
    finding = Finding("warn", "x", "scope\x1b[31m", "text\r\n", "fix\x07")
    assert "\x1b" not in doctor.plain_report([finding])
    assert "\x07" not in doctor.plain_report([finding])


def test_words_for_numbers() -> None:
    assert (share(1, 1, "call"), share(3, 3, "call"), share(0, 2, "call")) == (
        "1 of 1 call",
        "All 3 calls",
        "0 of 2 calls",
    )
    assert plural(2, "trajectory") == "2 trajectories"
    order = sort_findings(
        [Finding("ok", "a", "s", "m"), Finding("problem", "b", "s", "m"), Finding("warn", "c", "s", "m")]
    )
    assert [one.code for one in order] == ["b", "c", "a"]
