"""Log handlers and filters are the application's own code: they may ask the board, be slow, and raise."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.process.locks import holds_lock


class Agent:
    """An agent under a processor, which loops and recovers in each of its rounds."""

    def __init__(self) -> None:
        self.board, self.spans = FlagBoard(GuardConfig()), InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TrajectoryGuardProcessor(board=self.board, tracer_provider=provider))
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = provider.get_tracer("app")

    def call(self, query: str, result: str) -> None:
        self.tracer.start_span("execute_tool search", attributes={
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
            "gen_ai.tool.call.arguments": json.dumps({"query": query}), "gen_ai.tool.call.result": result,
        }).end()  # fmt: skip

    def round(self, number: int) -> None:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"}
        with trace.use_span(self.tracer.start_span("invoke_agent", attributes=attributes), end_on_exit=True):
            for _ in range(4):
                self.call("zebra", "no match for zebra in 4 of 4 indexes")
            self.call(f"zebu {number}", f"{number} zebus live in the herd of farm {number * 7}")


@contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(telemetry.LOGGER)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def test_no_lock_is_held_while_a_handler_runs_so_it_may_ask_for_the_trajectory_that_is_logged() -> None:
    agent = Agent()
    found: list[tuple[str, bool, Level]] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = json.loads(record.getMessage()).get("event_type", "")
            found.append((event, holds_lock(), agent.board.read("c").level))

    with handled(Asking()):
        for number in range(3):
            agent.round(number)
    assert {event for event, _, _ in found} >= {"TRAJECTORY_RECOVERY", "TRAJECTORY_NUDGE"}
    assert not any(held for _, held, _ in found)
    assert agent.board.counts["recoveries"] == sum(event == "TRAJECTORY_RECOVERY" for event, _, _ in found) == 3


@pytest.mark.parametrize("kind", [logging.Handler, logging.Filter])
def test_a_handler_or_filter_that_raises_costs_its_line_only(kind: Any) -> None:
    agent, plain = Agent(), Agent()
    lines = 0

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise_error()

        def filter(self, record: logging.LogRecord) -> bool:
            if kind is logging.Filter:
                raise_error()
            return True

    def raise_error() -> None:
        nonlocal lines
        lines += 1
        raise RuntimeError("the application's own")

    with handled(Raising()):
        agent.round(0)
    plain.round(0)
    assert lines > 0
    assert [one.name for one in agent.spans.get_finished_spans()] == [
        one.name for one in plain.spans.get_finished_spans()
    ]
    assert agent.board.counts == plain.board.counts
