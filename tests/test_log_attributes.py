"""Log records as OpenTelemetry's logging handler sends them: one filter finds spans and records."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import profiled, record
from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.gates.middleware import TrajectoryGuardMiddleware
from trajectory_guard.logs import log_flag, log_missing_actions, log_refusal, log_verdict
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending.ledger import LedgerEntry
from trajectory_guard.spending.spending import log_booked, today

ON_SPANS_ONLY = {
    telemetry.LOOP_FIRST_STEP,
    telemetry.REASON,  # in the body, unless it is redacted
    telemetry.CERTIFICATE,  # in the body
    telemetry.LANGFUSE_TAGS,
}


class Records:
    """The records that the handler has exported, as body and attributes."""

    def __init__(self) -> None:
        exporter: Any = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter
        self.exporter = exporter()
        provider = LoggerProvider(shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(self.exporter))
        self.handler = LoggingHandler(logger_provider=provider)

    def __call__(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        found = [one.log_record for one in self.exporter.get_finished_logs()]
        return [(json.loads(one.body), dict(one.attributes)) for one in found]

    def of(self, event: str) -> list[dict[str, Any]]:
        """Attributes of the records of an event, without its name and those that say where it was logged."""
        return [
            {key: value for key, value in attributes.items() if not key.startswith(("code.", "otel."))}
            for entry, attributes in self()
            if entry["event_type"] == event
        ]


@pytest.fixture
def records() -> Iterator[Records]:
    found, logger = Records(), logging.getLogger(telemetry.LOGGER)
    before = logger.level
    logger.addHandler(found.handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        logger.removeHandler(found.handler)
        logger.setLevel(before)


@pytest.fixture
def spans(records: Records) -> InMemorySpanExporter:
    """The spans of a run that is nudged, stopped, and then recovers."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard(GuardConfig()), tracer_provider=provider))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    around = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"}
    with trace.use_span(tracer.start_span("invoke_agent", attributes=around), end_on_exit=True):
        for at in range(9):
            result = "No orders match the query in 4 of 4 regions of the shop." if at < 5 else f"page {at} of 9"
            tracer.start_span("execute_tool search", attributes={
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
                "gen_ai.tool.call.arguments": json.dumps({"query": "zebra" if at < 5 else at}),
                "gen_ai.tool.call.result": result,
            }).end()  # fmt: skip
    return exporter


def test_a_record_has_the_attributes_of_the_span_of_its_verdict(records: Records, spans: InMemorySpanExporter) -> None:
    written = [one.attributes or {} for one in spans.get_finished_spans() if one.name == telemetry.SPAN_NAME]
    assert [one[telemetry.INTERVENTION] for one in written] == ["NUDGE", "STOP"]
    for of_span in written:
        level = of_span[telemetry.INTERVENTION]
        (found,) = (
            one
            for one in records.of(f"TRAJECTORY_{level}")
            if one[telemetry.STEP_INDEX] == of_span[telemetry.STEP_INDEX]
        )
        assert found == {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in of_span.items()
            if key not in ON_SPANS_ONLY and value != ""
        }


def test_the_keys_that_people_filter_by(records: Records, spans: InMemorySpanExporter) -> None:
    (stop,) = records.of("TRAJECTORY_STOP")
    assert stop.items() >= {
        telemetry.TRAJECTORY_ID: "c", telemetry.LOOP_DETECTED: True, telemetry.LOOP_TYPE: ("TYPE_I_STUTTER",),
        telemetry.LOOP_RULE: "same_call_same_result", telemetry.LOOP_CERTAINTY: "certain",
        telemetry.INTERVENTION: "STOP", telemetry.STEP_INDEX: 4, telemetry.TOOL: "search",
    }.items()  # fmt: skip
    assert stop[telemetry.LOOP_SCORE] > 3.0


@pytest.mark.parametrize("gated", [False, True])
def test_a_line_says_whether_a_gate_acts_on_it(gated: bool, records: Records) -> None:
    """Without a gate a stop is due only: the run goes on."""
    provider, board = TracerProvider(shutdown_on_exit=False), FlagBoard(GuardConfig())
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    tracer = provider.get_tracer("app")

    @tool
    def search(query: str) -> str:
        """Search."""
        tracer.start_span("execute_tool search", attributes={
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "thread",
            "gen_ai.tool.call.arguments": json.dumps({"query": query}), "gen_ai.tool.call.result": "No results",
        }).end()  # fmt: skip
        return "No results"

    model = ScriptedChatModel(policy=lambda messages, turn: call("search", {"query": "returns"}, turn))
    agent = create_agent(model, [search], middleware=[TrajectoryGuardMiddleware(board=board)] if gated else [])
    around = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "thread"}
    with tracer.start_as_current_span("invoke_agent", attributes=around), contextlib.suppress(GraphRecursionError):
        agent.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "thread"}, "recursion_limit": 30})
    written = [entry for entry, _ in records() if "gated" in entry]
    assert [entry["intervention"] for entry in written] == ["NUDGE", "STOP"]
    assert {entry["gated"] for entry in written} == {gated}


def test_the_body_stays_a_line_of_json_with_the_certificate(records: Records, spans: InMemorySpanExporter) -> None:
    stops = [entry for entry, _ in records() if entry["event_type"] == "TRAJECTORY_STOP"]
    (written,) = (
        one.attributes[telemetry.CERTIFICATE]
        for one in spans.get_finished_spans()
        if one.attributes and one.attributes.get(telemetry.INTERVENTION) == "STOP" and telemetry.CERTIFICATE in one.attributes
    )  # fmt: skip
    assert [Certificate.from_plain(one["certificate"]) for one in stops] == [Certificate.from_json(str(written))]


def test_a_step_without_a_finding_has_no_attributes_of_a_loop(records: Records, spans: InMemorySpanExporter) -> None:
    first = records.of("TRAJECTORY_OBSERVE")[0]
    assert first[telemetry.LOOP_DETECTED] is False
    assert not {telemetry.LOOP_TYPE, telemetry.LOOP_RULE, telemetry.LOOP_CERTAINTY} & first.keys()


def test_other_events_have_the_keys_that_apply(records: Records) -> None:
    log_refusal("t", "search", "failed", 2)
    log_missing_actions("t", ["write_file"])
    log_flag("RAISED", "t", "STOP", "it is late", "ann")
    assert records.of("TRAJECTORY_REFUSAL") == [{telemetry.TRAJECTORY_ID: "t", telemetry.TOOL: "search"}]
    assert records.of("TRAJECTORY_REQUIRED_ACTIONS_MISSING") == [{telemetry.TRAJECTORY_ID: "t"}]
    assert records.of("TRAJECTORY_FLAG_RAISED") == [{telemetry.TRAJECTORY_ID: "t", telemetry.INTERVENTION: "STOP"}]


def test_each_record_names_its_event(records: Records, spans: InMemorySpanExporter) -> None:
    log_refusal("t", "search", "failed", 2)
    log_missing_actions("t", ["write_file"])
    log_flag("RAISED", "t", "STOP", "it is late", "ann")
    log_flag("CLEARED", "t", "", "all is well", "ann")
    spending = FlagBoard(GuardConfig(budgets=[{"scope": "service", "tokens": 100}])).spending
    assert spending is not None
    log_booked(spending.book(LedgerEntry("call", "t", "a", "shop", today(time.time()), "m", 40, 15)))
    named = {entry["event_type"]: attributes["otel.event.name"] for entry, attributes in records()}
    assert named == {
        "TRAJECTORY_OBSERVE": "trajectory_guard.observe", "TRAJECTORY_NUDGE": "trajectory_guard.nudge",
        "TRAJECTORY_STOP": "trajectory_guard.stop", "TRAJECTORY_RECOVERY": "trajectory_guard.recovery",
        "TRAJECTORY_REFUSAL": "trajectory_guard.refusal",
        "TRAJECTORY_REQUIRED_ACTIONS_MISSING": "trajectory_guard.required_actions.missing",
        "TRAJECTORY_FLAG_RAISED": "trajectory_guard.flag.raised",
        "TRAJECTORY_FLAG_CLEARED": "trajectory_guard.flag.cleared", "BUDGET_ALERT": "trajectory_guard.budget.alert",
    }  # fmt: skip


def test_an_alert_of_a_budget_has_its_keys(records: Records) -> None:
    spending = FlagBoard(GuardConfig(budgets=[{"scope": "service", "tokens": 100}])).spending
    assert spending is not None
    log_booked(spending.book(LedgerEntry("call", "t", "a", "shop", today(time.time()), "m", 40, 15)))
    assert records.of("BUDGET_ALERT") == [{
        telemetry.BUDGET_SCOPE: "service", telemetry.BUDGET_NAME: "shop", telemetry.BUDGET_PERCENT: 50,
        telemetry.BUDGET_USED: 0.55, telemetry.BUDGET_LEVEL: "normal",
    }]  # fmt: skip


def test_a_drop_of_quality_has_no_tool_and_is_no_loop(records: Records) -> None:
    board = FlagBoard(GuardConfig(track_quality=True))
    for at in range(40):
        board.score("t", (0.9 if at < 20 else 0.1) + at % 3 / 100)
    dropped = records.of("TRAJECTORY_NUDGE")[0]
    assert dropped[telemetry.LOOP_DETECTED] is False
    assert telemetry.TOOL not in dropped
    assert dropped[telemetry.QUALITY_BEFORE] > 0.8 > 0.5 > dropped[telemetry.QUALITY_NOW]


def test_a_record_that_nobody_wants_is_not_made() -> None:
    board = FlagBoard()
    verdict = board.observe(record("search", {"q": 1}, "x"))
    assert verdict is not None
    logger = logging.getLogger(telemetry.LOGGER)
    assert not logger.isEnabledFor(logging.DEBUG)
    assert profiled(lambda: log_verdict(verdict), lambda frame, event: event in ("call", "c_call")) <= 6
