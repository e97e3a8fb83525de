"""Tool spans without arguments and results: one warning, where no gate reads the calls from the messages."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from tests.helpers import record
from trajectory_guard import GuardConfig
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.steps import Evidence
from trajectory_guard.otel.processor import TrajectoryGuardProcessor


def calls(count: int, content_from: int | None = None) -> None:
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard(GuardConfig())))
    with provider.get_tracer("an.instrumentation").start_as_current_span("run"):
        for at in range(count):
            content = {"gen_ai.tool.call.arguments": f'{{"n": {at}}}', "gen_ai.tool.call.result": f"shelf {at * 37}"}
            shown = content if content_from is not None and at >= content_from else {}
            names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", **shown}
            with provider.get_tracer("an.instrumentation").start_as_current_span("execute_tool look", attributes=names):
                pass


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [one for one in found if "neither arguments nor results" in one]


def test_calls_without_content_are_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    calls(30)
    (text,) = warnings_in(caplog)
    assert "trajectory-guard doctor" in text
    assert "semconv" in text


@pytest.mark.parametrize("content_from", [0, 5])
def test_a_call_with_content_is_no_reason(caplog: pytest.LogCaptureFixture, content_from: int) -> None:
    calls(30, content_from)
    assert warnings_in(caplog) == []


def test_few_calls_are_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    calls(5)
    assert warnings_in(caplog) == []


GATED = """
from opentelemetry import trace
from opentelemetry.instrumentation.langchain import LangchainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from trajectory_guard import TrajectoryGuardMiddleware, instrument, shared_board
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

trace.set_tracer_provider(TracerProvider())
LangchainInstrumentor().instrument()
instrument()

@tool
def look(n: int) -> str:
    "Look at a shelf."
    return f"shelf {n * 37} in hall C"

policy = lambda messages, turn: call("look", {"n": turn}, turn) if turn < 20 else AIMessage("done")
agent = create_agent(ScriptedChatModel(policy=policy), [look], middleware=MIDDLEWARE)
agent.invoke({"messages": [("user", "Look.")]}, {"configurable": {"thread_id": "c"}, "recursion_limit": 200})
print(shared_board().read("c").steps)
"""


@pytest.mark.parametrize("middleware, warned", [("[]", True), ("[TrajectoryGuardMiddleware()]", False)])
def test_a_gate_reads_the_content_in_the_messages(middleware: str, warned: bool) -> None:
    pytest.importorskip("opentelemetry.instrumentation.langchain")
    environment = {**os.environ, "TRACELOOP_TRACE_CONTENT": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", GATED.replace("MIDDLEWARE", middleware)]
    ran = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert ran.stdout.strip() == "20", ran.stderr
    assert ("neither arguments nor results" in ran.stderr) is warned


# --- one of two instrumentations hides what the other one shows --------------------------------------------------

WORDS = (
    "refund",
    "money back",
    "return policy",
    "reimbursement",
    "repayment",
    "get my money",
    "send it back",
    "cancel",
)
LOOPS: dict[str, list[tuple[str, Any, str, str]]] = {
    "two calls in turns": [("read", {"id": at % 2}, f"Row {at % 2}: open since Monday.", "success") for at in range(16)],
    "other words": [("search", {"query": word}, "No results found", "success") for word in WORDS],
    "a failing check between edits": [
        one
        for at in range(10)
        for one in (
            ("edit", {"line": at % 3}, "1 line changed", "success"),
            ("check", {"all": True}, "Error: module 'tax' is missing", "error"),
        )
    ],
    "hand-overs": [
        one
        for at in range(10)
        for one in (("look", {"id": 7}, "Order 7 is late.", "success"), (f"transfer_to_{'ab'[at % 2]}", {}, "ok", "success"))
    ],
}  # fmt: skip


def levels(loop: list[tuple[str, Any, str, str]], *, twice: bool) -> list[str]:
    """The level after each call; ``twice``: the instrumentation that reports it first shows its name alone."""
    board, found = FlagBoard(GuardConfig()), []
    for at, (tool, args, result, outcome) in enumerate(loop):
        call: dict[str, Any] = {"t": 2.0 * at, "call_id": f"call-{at}", "trajectory": "t"}
        if twice:
            board.observe(record(tool, None, None, outcome, evidence=Evidence.NAME_ONLY, **call))
        board.observe(record(tool, args, result, outcome, **call))
        found.append(str(board.read("t").level))
    return found


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_is_found_beside_an_instrumentation_that_hides_it(loop: list[tuple[str, Any, str, str]]) -> None:
    alone, beside = levels(loop, twice=False), levels(loop, twice=True)
    assert "NUDGE" in alone
    assert beside.index("NUDGE") <= alone.index("NUDGE") + 1
    assert ("STOP" in beside) == ("STOP" in alone)


# --- placeholders --------------------------------------------------------------------------------------------


def levels_of(spans: list[tuple[str, dict[str, Any], bool]], scope: str) -> list[str]:
    """Levels after each tool span, given by tool, attributes and whether it failed."""
    board = FlagBoard(GuardConfig())
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board))
    found = []
    with provider.get_tracer(scope).start_as_current_span("run") as run:
        trajectory = f"{run.get_span_context().trace_id:032x}"
        for name, attributes, failed in spans:
            known = {"openinference.span.kind": "TOOL", "tool.name": name, **attributes}
            with provider.get_tracer(scope).start_as_current_span(name, attributes=known) as span:
                if failed:
                    withheld = (
                        f"{{'tool_name': '{name}', 'error': 'Tool execution failed. Error details are redacted.'}}"
                    )
                    span.set_status(StatusCode.ERROR, f"Error running tool (non-fatal): {withheld}")
            found.append(str(board.read(trajectory).level))
    return found


AGENTS = "openinference.instrumentation.openai_agents"
HIDDEN_OUTPUT = {"output.value": "__REDACTED__"}


def test_an_agent_that_mends_a_failing_test_out_of_sight_is_left_alone() -> None:
    """Hidden results are no calls that wait for a person: the edits between the failures are seen."""
    spans: list[tuple[str, dict[str, Any], bool]] = []
    for at in range(6):
        spans.append(("write_file", {"input.value": f'{{"path": "a.py", "text": "{at}"}}', **HIDDEN_OUTPUT}, False))
        spans.append(("run_tests", {"input.value": '{"target": "a"}', **HIDDEN_OUTPUT}, at < 5))
    assert set(levels_of(spans, AGENTS)) == {"OBSERVE"}


def test_the_same_calls_with_hidden_results_are_nudged() -> None:
    spans = [("search", {"input.value": '{"query": "refund"}', **HIDDEN_OUTPUT}, False)] * 20
    assert levels_of(spans, AGENTS)[-1] == "NUDGE"


def test_calls_whose_content_a_mask_that_failed_has_replaced_are_not_equal() -> None:
    hidden = "<fully masked due to failed mask function>"
    spans = [("search", {"input.value": hidden, "output.value": hidden}, False)] * 20
    assert set(levels_of(spans, "app")) == {"OBSERVE"}


@pytest.mark.parametrize("kind", ["TOOL_ERROR", "pydantic_ai.exceptions.ToolRetryError"])
def test_a_tool_that_always_fails_beside_working_ones_is_found_without_content(kind: str) -> None:
    board = FlagBoard(GuardConfig())
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board))
    tracer, seen = provider.get_tracer("an.instrumentation"), set()
    with tracer.start_as_current_span("run") as run:
        for at in range(40):
            names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": ("fetch", "search")[at % 2]}
            with tracer.start_as_current_span("execute_tool", attributes=names) as span:
                if at % 2 == 0:
                    span.set_attribute("error.type", kind)
                    span.set_status(StatusCode.ERROR, kind)
            seen.add(str(board.read(f"{run.get_span_context().trace_id:032x}").level))
    assert seen == {"OBSERVE", "NUDGE"}
