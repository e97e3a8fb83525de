"""Calls of one block of code are one model turn; an agent that a tool calls is another instance each time. In every shell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import comparable, request, score_all, span, views
from tests.collector.test_same_verdicts import deliveries, replayed
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

SMOLAGENTS = "openinference.instrumentation.smolagents"
ADK = "openinference.instrumentation.google_adk"
KIND = "openinference.span.kind"
RATE = "{'currency': 'EUR', 'rate': 1.0835, 'source': 'ECB daily reference rates'}"


def code_agent(calls_of: Callable[[int], list[tuple[str, dict[str, Any], str]]], steps: int) -> list[bytes]:
    """The spans of a CodeAgent of smolagents, whose tool calls lie below the span of the step."""
    spans: list[Span] = []
    at = 0.0
    for step in range(1, steps + 1):
        begun = at
        for name, args, result in calls_of(step):
            attributes = {
                KIND: "TOOL", "tool.name": name, "input.value": json.dumps({"args": [], "kwargs": args}),
                "output.value": result,
            }  # fmt: skip
            spans.append(span(f"tool{at}", attributes, parent=f"step{step}", at=at, dur=0.01, span_name="SimpleTool"))
            at += 0.02
        chain = {KIND: "CHAIN", "input.value": "{}", "output.value": "..."}
        spans.append(span(f"step{step}", chain, parent="run", at=begun, dur=at - begun + 0.1, span_name=f"Step {step}"))
        at += 2.0
    spans.append(span("run", {KIND: "AGENT", "input.value": "task"}, at=0.0, dur=at, span_name="CodeAgent.run"))
    return [request(one, scope=SMOLAGENTS) for one in spans]


def levels(requests: list[bytes]) -> Counter[Level]:
    found = evaluate_in_process([view for data in requests for view in views(data)])
    return Counter(verdict.level for verdict in found.values())


def sums_orders(step: int) -> list[tuple[str, dict[str, Any], str]]:
    orders = range(20 * step, 20 * step + 20)
    return [
        call
        for n in orders
        for call in (("get_order", {"n": n}, f"order {n}: {n * 17.5} EUR"), ("get_rate", {"currency": "EUR"}, RATE))
    ]


def looks_up_rates_first(step: int) -> list[tuple[str, dict[str, Any], str]]:
    return [
        *[("get_rate", {"currency": "EUR"}, RATE)] * 20,
        ("get_order", {"n": step}, f"order {step}: {step * 9} EUR"),
    ]


def is_stuck(step: int) -> list[tuple[str, dict[str, Any], str]]:
    return [("search", {"query": "refund policy"}, "No results")] * (1 + step % 2)


@pytest.mark.parametrize("calls_of", [sums_orders, looks_up_rates_first])
def test_a_loop_in_a_block_of_code_is_one_turn(calls_of: Any) -> None:
    assert set(levels(code_agent(calls_of, 3))) == {Level.OBSERVE}


def test_a_code_agent_that_is_stuck_is_nudged_and_stopped() -> None:
    found = levels(code_agent(is_stuck, 8))
    assert found[Level.NUDGE]
    assert found[Level.STOP]


@pytest.mark.parametrize("calls_of", [looks_up_rates_first, is_stuck])
def test_every_shell_reads_blocks_of_code_alike(calls_of: Any, tmp_path: Path) -> None:
    requests = code_agent(calls_of, 3)
    expected = comparable(evaluate_in_process([view for data in requests for view in views(data)]))
    for how, delivered in deliveries(requests, calls_of.__name__).items():
        assert comparable(score_all(delivered)) == expected, how
    assert comparable(replayed(requests, tmp_path)) == expected


def test_an_agent_that_a_tool_calls_for_item_after_item_is_left_alone() -> None:
    """The span of that tool has nothing but its name until it ends."""
    board, provider = FlagBoard(GuardConfig()), TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    agents, tools = provider.get_tracer("gcp.vertex.agent"), provider.get_tracer(ADK)

    def agent(name: str) -> dict[str, str]:
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}

    with agents.start_as_current_span("invoke_agent coordinator", attributes=agent("coordinator")):
        for item in range(12):
            with tools.start_as_current_span("execute_tool checker") as outer:
                with agents.start_as_current_span("invoke_agent checker", attributes=agent("checker")):
                    called = {KIND: "TOOL", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_kb"}
                    called |= {"tool.name": "search_kb", "input.value": '{"query": "open"}', "output.value": RATE}
                    tools.start_span("execute_tool search_kb", attributes=called).end()
                done = {"tool.name": "checker", "input.value": f'{{"request": "item {item}"}}', "output.value": "new"}
                outer.set_attributes({KIND: "TOOL", "gen_ai.operation.name": "execute_tool", **done})
    assert board.counts["steps"] == 24
    assert not any(name.startswith("interventions.") for name in board.counts)
