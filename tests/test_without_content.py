"""Tool spans without arguments and results: one warning, where no gate reads the calls from the messages."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import GuardConfig
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.store import FlagBoard


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
