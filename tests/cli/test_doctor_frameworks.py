"""The doctor on frameworks that emit spans by themselves, on graphs, and where it must not say that all is well."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import DATA, capture_names, one_in
from trajectory_guard.cli.doctor import run as doctor
from trajectory_guard.cli.doctor.environment import environment_findings
from trajectory_guard.cli.main import main

STRANDS, ADK = {"strands-agents": "1.62.0"}, {"google-adk": "2.13.0"}
LATEST = "export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
STRANDS_FIX = f"{LATEST}  # without gen_ai_unredacted_attributes"
ADK_FIX = f"{LATEST} OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
WELL = "Everything the guard needs is there."


def path(name: str) -> str:
    return str(DATA / "doctor" / f"{name}.json.gz")


def reported(environ: dict[str, str], versions: dict[str, str]) -> dict[str, Any]:
    found = environment_findings(environ, versions)
    return {one.code: one for one in found if one.severity != "ok"}


# --- environments ---------------------------------------------------------------------------------------------


def test_a_framework_that_emits_spans_by_itself_needs_no_instrumentation_but_content() -> None:
    found = reported({}, ADK)
    assert list(found) == ["content_off"]
    assert (found["content_off"].severity, found["content_off"].fix) == ("problem", ADK_FIX)


def test_with_the_proposed_variables_nothing_is_left_to_say() -> None:
    line = str(reported({}, ADK)["content_off"].fix).removeprefix("export ")
    environ = dict(setting.split("=", 1) for setting in line.split())
    assert reported(environ, ADK) == {}


# Found: the content that Strands puts into span events by default was not read, and its switch was proposed.
def test_strands_hides_content_only_where_it_redacts() -> None:
    assert reported({}, STRANDS) == {}
    assert reported({"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}, STRANDS) == {}
    found = reported({"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_unredacted_attributes="}, STRANDS)
    assert (found["content_off"].severity, found["content_off"].fix) == ("problem", STRANDS_FIX)


def test_crewai_without_openinference_leaves_no_spans() -> None:
    for versions in ({}, {"opentelemetry-instrumentation-crewai": "0.62"}):
        found = reported({}, {"crewai": "1.15", **versions})["no_tool_spans"]
        assert found.severity == "problem"
        assert "pip install openinference-instrumentation-crewai" in str(found.fix)


def test_crewai_with_openinference_needs_native_tool_calls() -> None:
    found = reported({}, {"crewai": "1.15", "openinference-instrumentation-crewai": "1.1.21"})
    assert found["no_tool_spans"].severity == "warn"
    assert "ReAct" in found["no_tool_spans"].message
    assert "native tool calls" in str(found["no_tool_spans"].fix)


# --- captures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "family", "fix"),
    [
        ("spans/strands-redacted__main", "Strands", STRANDS_FIX),
        ("doctor/google-adk-default", "Google ADK", ADK_FIX),
        ("spans/tanstack-nocontent__main", "TanStack AI", "otelMiddleware({ tracer, captureContent: true })"),
    ],
)
def test_a_capture_without_content_gets_the_frameworks_own_switch(
    name: str, family: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", str(DATA / f"{name}.json.gz")]) == 1
    found = {one["code"]: one for one in json.loads(capsys.readouterr().out)}
    for code in ("no_arguments", "no_results"):
        assert (found[code]["subject"], found[code]["fix"]) == (family, fix)


@pytest.mark.parametrize("name", ["strands-default", "strands-latest", "google-adk-latest"])
def test_with_the_switch_on_the_same_run_is_a_loop(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", path(name)]) == 0
    assert "set_attribute" not in capsys.readouterr().out
    assert main(["replay", "--json", "--fail-on", "stop", path(name)]) == 1


def test_strands_names_a_conversation_in_its_own_way(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", path("strands-latest")])
    assert 'Agent(..., trace_attributes={"session.id": conversation_id})' in capsys.readouterr().out


def test_a_crew_that_is_instrumented_is_not_told_to_install_the_instrumentation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["doctor", str(DATA / "spans" / "crewai-openinference-react__crew.json.gz")])
    out = capsys.readouterr().out
    assert "native tool calls" in out
    assert "pip install openinference-instrumentation-crewai" not in out


# --- not all is well ------------------------------------------------------------------------------------------


def test_an_environment_alone_never_shows_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "installed_versions", lambda: {"opentelemetry-instrumentation-langchain": "0.62.4"})
    for name in ("OTEL_SDK_DISABLED", "TRACELOOP_TRACE_CONTENT", "TRAJECTORY_GUARD_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert WELL not in out
    assert "Only a capture shows whether tool calls leave spans" in out


@pytest.mark.parametrize("name", one_in(4, capture_names()))
def test_all_is_well_only_where_tool_spans_were_seen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(DATA / "spans" / f"{name}.json.gz")
    main(["doctor", "--json", file])
    seen = sum(
        one["data"].get("tool_spans", 0) for one in json.loads(capsys.readouterr().out) if one["code"] == "steps"
    )
    status = main(["doctor", file])
    out = capsys.readouterr().out
    assert WELL not in out or seen
    assert status == 1 or seen


def test_step_lines_are_no_tool_spans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "steps.jsonl"
    lines.write_text('{"id": "a", "steps": [{"tool": "x", "args": {"q": 1}, "result": "y", "agent": "a"}]}\n')
    assert main(["doctor", str(lines)]) == 0
    assert WELL not in capsys.readouterr().out


# --- graphs ---------------------------------------------------------------------------------------------------


APP = """
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from trajectory_guard import apply_guard

print("loading")

def search(query: str) -> str:
    "Search."
    return query

def agent(guarded):
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": []})
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return apply_guard(builder) if guarded else builder

class agents:
    good = agent(guarded=True).compile()


not_compiled = agent(guarded=True)
bad = agent(guarded=False).compile()
unfinished = StateGraph(MessagesState)
number = 3

@entrypoint()
def functional(messages):
    return messages
"""


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An application with graphs, in the working directory, and one that cannot be imported."""
    monkeypatch.setattr(doctor, "installed_versions", lambda: {"opentelemetry-instrumentation-langchain": "0.62.4"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "guarded_app.py").write_text(APP)
    (tmp_path / "broken_app.py").write_text("raise SystemExit('no\\nkey')\n")
    monkeypatch.delitem(sys.modules, "guarded_app", raising=False)


@pytest.mark.usefixtures("application")
@pytest.mark.parametrize("name", ["agents.good", "not_compiled"])
def test_a_guarded_graph_is_fine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--graph", f"guarded_app:{name}"]) == 0
    findings = {one["code"]: one for one in json.loads(capsys.readouterr().out)}  # what the module prints is elsewhere
    assert findings["guarded"] == {
        "severity": "ok", "code": "guarded", "subject": f"guarded_app:{name}", "message": "Gates are in place.",
        "fix": None, "data": {"subject": "agent"},
    }  # fmt: skip


@pytest.mark.usefixtures("application")
def test_a_graph_without_a_gate_is_a_problem_with_the_line_that_fixes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--graph", "guarded_app:bad", path("google-adk-latest")]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("✗ guarded_app:bad  No gate is in this graph: loops are seen, and nothing acts.")
    assert lines[at + 1] == "    apply_guard(builder) before compile(), or guarded_invoke(graph, input)"


@pytest.mark.usefixtures("application")
def test_a_workflow_of_the_functional_api_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--graph", "guarded_app:functional"]) == 0
    assert "! guarded_app:functional  A workflow of the functional API has no nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("guarded_app", "expected MODULE:ATTRIBUTE"),
        (":graph", "expected MODULE:ATTRIBUTE"),
        ("guarded_app:", "expected MODULE:ATTRIBUTE"),
        ("no_such_app:graph", "importing no_such_app failed: ModuleNotFoundError"),
        ("broken_app:graph", "importing broken_app failed: SystemExit: no key"),
        ("..:graph", "importing .. failed"),
        ("guarded_app:nothing", "guarded_app has no attribute 'nothing'"),
        ("guarded_app:agents.nothing", "agents has no attribute 'nothing'"),
        ("guarded_app:number", "A LangGraph graph is expected, got int."),
        ("guarded_app:unfinished", "ValueError: Graph must have an entrypoint"),
    ],
)
@pytest.mark.usefixtures("application")
def test_a_graph_that_cannot_be_examined_is_bad_input(
    spec: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--graph", spec]) == 2
    reported = capsys.readouterr().err.removeprefix("loading\n")
    assert f"trajectory-guard: --graph {spec}: " in reported
    assert reason in reported
    assert reported.count("\n") == 1
