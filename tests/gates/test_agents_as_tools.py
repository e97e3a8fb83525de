"""Agents that an agent calls as tools, observed only, under the official instrumentation of LangChain.

Its spans name neither super-steps nor sub-graphs: the span of an agent below that of a tool call says whose a call is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import lookup, new_board, rounds, search

pytestmark = pytest.mark.newest  # the first versions of the instrumentation had no span for an agent

Call = tuple[str, dict[str, Any]]
_ids = count()


@tool
def load_policy() -> str:
    """The policy for refunds."""
    return "Refunds within 30 days, with the receipt."


def scripted(next_calls: Callable[[Sequence[BaseMessage]], list[Call]]) -> ScriptedChatModel:
    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        wanted = [
            {"name": name, "args": args, "id": f"call_{next(_ids)}", "type": "tool_call"}
            for name, args in next_calls(messages)
        ]
        answer = f"{messages[-1].content}: paid back within 30 days, to the card it came from."  # with what was found
        return AIMessage("" if wanted else answer, tool_calls=wanted)

    return ScriptedChatModel(policy=policy)


def works(messages: Sequence[BaseMessage]) -> list[Call]:
    plan: list[Call] = [("load_policy", {}), ("lookup", {"key": str(messages[0].content)})]
    return plan[rounds(messages) : rounds(messages) + 1]


def is_stuck(messages: Sequence[BaseMessage]) -> list[Call]:
    return [("search", {"query": "refund"})] if rounds(messages) < 8 else []


def research(next_calls: Callable[[Sequence[BaseMessage]], list[Call]]) -> BaseTool:
    """A tool that runs an agent; its name is not that of a hand-over."""
    worker = create_agent(scripted(next_calls), [load_policy, lookup, search], name="worker")

    @tool
    def research(task: str) -> str:
        """Let another agent do it."""
        return str(worker.invoke({"messages": [("user", task)]})["messages"][-1].content)

    return research


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The interventions so far, in their order."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(TrajectoryGuardProcessor(board=new_board(), tracer_provider=provider))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor

    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)

    def interventions() -> list[str]:
        return [
            str((span.attributes or {})["trajectory_guard.intervention"])
            for span in exporter.get_finished_spans()
            if span.name == "trajectory_guard.intervention"
        ]

    yield interventions
    instrumentor.uninstrument()


@pytest.mark.parametrize("at_once", [1, 4])
def test_agents_that_begin_alike_are_left_alone(found: Callable[[], list[str]], at_once: int) -> None:
    def hands_out(messages: Sequence[BaseMessage]) -> list[Call]:
        lap = rounds(messages)
        return [("research", {"task": f"order {lap} of shop {one}"}) for one in range(at_once)] if lap < 5 else []

    agent = create_agent(scripted(hands_out), [research(works)])
    agent.invoke({"messages": [("user", "Work on all orders")]})
    assert found() == []


def test_an_agent_that_is_stuck_in_a_tool_is_found(found: Callable[[], list[str]]) -> None:
    def hands_out(messages: Sequence[BaseMessage]) -> list[Call]:
        return [("research", {"task": "the refund"})] if rounds(messages) < 1 else []

    create_agent(scripted(hands_out), [research(is_stuck)]).invoke({"messages": [("user", "Refund it")]})
    assert found() == ["NUDGE", "STOP"]


def test_an_agent_that_calls_another_one_in_vain_is_found(found: Callable[[], list[str]]) -> None:
    def hands_out(messages: Sequence[BaseMessage]) -> list[Call]:
        return [("research", {"task": "order 7"})] if rounds(messages) < 24 else []

    agent = create_agent(scripted(hands_out), [research(works)])
    agent.invoke({"messages": [("user", "Work on order 7")]}, {"recursion_limit": 99})
    levels = found()
    assert (levels[0], levels[-1]) == ("NUDGE", "STOP")
