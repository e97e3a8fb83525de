"""Spans of model calls on a real provider: what reaches the ledger, the log, the trace and the metrics."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import eventually
from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending.ledger import Account, Balance, LedgerEntry
from trajectory_guard.spending.spending import Spending, today

PRICES = {"large": {"input": 2.5, "output": 10.0}}
COST_OF_A_CALL = 2500 + 1000  # micro-dollars: 1,000 tokens in, 100 out


class App:
    """A service whose model calls are booked."""

    def __init__(self, **config: Any) -> None:
        self.provider = TracerProvider(resource=Resource({"service.name": "shop"}))
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.board = FlagBoard(GuardConfig(model_prices=PRICES, **config))
        self.processor = TrajectoryGuardProcessor(
            board=self.board, tracer_provider=self.provider, meter_provider=MeterProvider([self.reader])
        )
        self.provider.add_span_processor(self.processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spending(self) -> Spending:
        assert self.board.spending is not None
        return self.board.spending

    def balance(self, scope: str, name: str = "") -> Balance:
        return self.spending.balance(Account(scope, name, "" if name else today(time.time())))

    def model_call(self, *, scope: str = "app", tokens: tuple[int, int] = (1000, 100), **attributes: Any) -> None:
        with self.provider.get_tracer(scope).start_as_current_span("chat", attributes=chat(tokens, **attributes)):
            pass

    def run(self, calls: int = 1, **attributes: Any) -> None:
        with self.provider.get_tracer("app").start_as_current_span(
            "invoke_agent researcher",
            attributes={
                "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "researcher", "gen_ai.conversation.id": "c",
            },
        ):  # fmt: skip
            for _ in range(calls):
                self.model_call(**attributes)

    def points(self, metric: telemetry.Metric) -> dict[tuple[Any, ...], float]:
        data = self.reader.get_metrics_data()
        return {
            tuple((point.attributes or {}).values()): point.value
            for group in (data.resource_metrics if data is not None else ())
            for scope in group.scope_metrics for one in scope.metrics if one.name == metric.name
            for point in one.data.data_points
        }  # fmt: skip


def chat(tokens: tuple[int, int] = (1000, 100), *, model: str = "large", **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1], **more,
    }  # fmt: skip


@pytest.fixture(params=["memory", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"spending_file": str(tmp_path / "spending.db")}


def test_a_model_call_is_booked_for_everybody(where: dict[str, Any]) -> None:
    app = App(track_spending=True, **where)
    app.run(3)
    for scope, name in (("trajectory", "c"), ("agent", "researcher"), ("service", "shop"), ("day", "")):
        assert app.balance(scope, name) == Balance(3, 3000, 300, 3 * COST_OF_A_CALL, {}), scope
    assert app.points(telemetry.SPENDING_TOKENS) == {("large",): 3300}
    assert app.points(telemetry.SPENDING_COST) == {("large",): 3 * COST_OF_A_CALL / 1e6}
    assert app.points(telemetry.SPENDING_UNPRICED) == {}


def test_nothing_is_kept_without_configuration() -> None:
    app = App()
    app.run(3)
    assert app.board.spending is None
    assert app.points(telemetry.SPENDING_TOKENS) == app.points(telemetry.BUDGET_RATIO) == {}
    assert app.board.read("c").budget is None


def test_a_model_without_a_price_is_named_and_never_costs_zero(caplog: pytest.LogCaptureFixture) -> None:
    app = App(budgets=[{"scope": "day", "usd": 1.0}])
    app.run(2, model="a-model-of-our-own")
    app.spending._prices.wait(["a-model-of-our-own"], 10)
    app.run(1, model="a-model-of-our-own")

    assert app.balance("day") == Balance(3, 3000, 300, 0, {"a-model-of-our-own": 3300})
    assert app.points(telemetry.SPENDING_COST) == {}
    assert app.points(telemetry.SPENDING_UNPRICED) == {("a-model-of-our-own",): 3300}
    assert app.spending.status("c").unpriced == ("a-model-of-our-own",)
    reported = [record.message for record in caplog.records if "no price is known" in record.message]
    assert len(reported) == 1
    assert "'a-model-of-our-own'" in reported[0]


def test_a_cost_that_the_telemetry_names_is_believed() -> None:
    app = App(track_spending=True)
    app.run(1, **{"gen_ai.usage.cost": 0.25})
    assert app.balance("day").micro_usd == 250_000


def test_two_instrumentations_of_one_call_count_once() -> None:
    app = App(track_spending=True)
    tracer = app.provider.get_tracer("langchain")
    for _ in range(3):
        with tracer.start_as_current_span("ChatOpenAI", attributes=chat()):
            app.model_call(scope="openai")
    assert app.balance("day").calls == 3
    assert app.board.counts["spending.duplicates"] == 3


@pytest.mark.parametrize("inner", [{}, {"gen_ai.usage.cost": 0.25}])
def test_a_stream_that_one_instrumentation_sees_without_tokens_counts_as_the_other_one_saw_it(
    inner: dict[str, Any],
) -> None:
    app = App(track_spending=True)
    with app.provider.get_tracer("langchain").start_as_current_span("ChatOpenAI", attributes=chat()):
        app.model_call(tokens=(0, 0), scope="openai", **inner)
    assert app.balance("day").tokens == (0 if inner else 1100)
    assert app.balance("day").micro_usd == (250_000 if inner else COST_OF_A_CALL)


def test_two_calls_side_by_side_of_one_instrumentation_are_two() -> None:
    app = App(track_spending=True)
    tracer = app.provider.get_tracer("openai")
    with app.provider.get_tracer("app").start_as_current_span("work"):
        spans = [tracer.start_span("chat", attributes=chat()) for _ in range(4)]
        for span in spans:
            span.end()
    assert app.balance("day").calls == 4


def test_calls_with_response_ids_of_their_own_are_two() -> None:
    app = App(track_spending=True)
    with app.provider.get_tracer("one").start_as_current_span("chat", attributes=chat(**{"gen_ai.response.id": "a"})):
        app.model_call(scope="other", **{"gen_ai.response.id": "b"})
    assert app.balance("day").calls == 2


def test_a_span_delivered_twice_counts_once(where: dict[str, Any]) -> None:
    app = App(track_spending=True, **where)
    app.run(1)
    again = TrajectoryGuardProcessor(board=app.board)
    for span in app.exporter.get_finished_spans():
        again.on_end(span)
    assert app.balance("day").calls == 1


def test_a_process_that_has_just_begun_waits_for_maintained_prices(tmp_path: Path) -> None:
    """It finds a ledger of calls whose price it has never looked up: the first model call must not slip through."""
    pytest.importorskip("genai_prices")
    config = {"budgets": [{"scope": "day", "usd": 0.001}], "spending_file": str(tmp_path / "spending.db")}
    App(**config).run(1, model="gpt-4o")

    after = App(**config)

    assert str(after.spending.status("c", wait=True).level) == "blocked"


# --- alerts ----------------------------------------------------------------------------------------------------


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    with caplog.at_level(logging.WARNING, logger=telemetry.LOGGER):

        def events(kind: str) -> list[dict[str, Any]]:
            entries = [json.loads(record.message) for record in caplog.records if record.message.startswith("{")]
            return [entry for entry in entries if entry["event_type"] == kind]

        yield events


def test_alerts_come_once_each_also_after_a_restart(tmp_path: Path, logged: Any) -> None:
    config = {
        "budgets": [{"scope": "service", "usd": 10 * COST_OF_A_CALL / 1e6}], "spending_file": str(tmp_path / "spending.db"),
    }  # fmt: skip
    app = App(**config)
    app.run(6)
    assert [entry["percent"] for entry in logged("BUDGET_ALERT")] == [50]

    after = App(**config)  # another process, or this one after a restart
    after.run(6)

    reported = logged("BUDGET_ALERT")
    assert [entry["percent"] for entry in reported] == [50, 80, 100]
    assert reported[-1]["level"] == "blocked"
    assert reported[-1]["name"] == "shop"
    assert after.points(telemetry.BUDGET_ALERTS) == {("80",): 1, ("100",): 1}
    assert after.points(telemetry.BUDGET_RATIO) == {("service", "shop", "0.04 USD"): pytest.approx(1.2)}


def test_an_alert_stands_in_the_trace() -> None:
    app = App(budgets=[{"scope": "trajectory", "tokens": 2200}])
    app.run(2)
    (agent,) = [span for span in app.exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    events = [event for event in agent.events if event.name == telemetry.BUDGET_ALERT_EVENT]
    assert [dict(event.attributes or {})[telemetry.BUDGET_PERCENT] for event in events] == [50, 80, 100]
    assert dict(agent.attributes or {})[telemetry.BUDGET_LEVEL] == "blocked"
    declared = {one.key for one in telemetry.ATTRIBUTES}
    assert {key for event in events for key in event.attributes or {}} <= declared


def test_a_flag_has_the_level(where: dict[str, Any]) -> None:
    app = App(budgets=[{"scope": "trajectory", "tokens": 2600}], **where)
    app.run(2)
    budget = app.board.read("c").budget
    assert budget is not None
    assert (str(budget.level), budget.to_plain()["of"]) == ("aggressive", "2,200 of 2,600 tokens")


def test_a_call_far_above_the_usual_is_reported(logged: Any) -> None:
    app = App(track_spending=True)
    app.run(15)
    app.run(1, tokens=(90_000, 10_000))
    app.run(5)
    (reported,) = logged("SPENDING_OUTLIER")
    assert (reported["agent"], reported["tokens"], reported["usual_tokens"]) == ("researcher", 100_000, 1100)
    spans = [span for span in app.exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert [len(span.events) for span in spans] == [0, 1, 0]
    assert app.points(telemetry.SPENDING_EVENTS)["outliers",] == 1


def test_outliers_can_be_switched_off(logged: Any) -> None:
    app = App(track_spending=True, outlier_deviations=0)
    app.run(15)
    app.run(1, tokens=(90_000, 10_000))
    assert logged("SPENDING_OUTLIER") == []


def test_the_least_tokens_of_an_outlier_can_be_set(logged: Any) -> None:
    app = App(track_spending=True, outlier_tokens=200_000)
    app.run(15)
    app.run(1, tokens=(90_000, 10_000))
    assert logged("SPENDING_OUTLIER") == []


def test_calls_of_two_sizes_in_turn_are_reported_twice_at_most(logged: Any) -> None:
    app = App(track_spending=True)
    app.run(15)
    for _ in range(20):
        app.run(1, tokens=(9_000, 1_000))
        app.run(1)
    assert len(logged("SPENDING_OUTLIER")) <= 2


# --- failures --------------------------------------------------------------------------------------------------


def test_a_ledger_that_is_locked_delays_no_run_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    app = App(budgets=[{"scope": "day", "tokens": 1100}], spending_file=str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    app.run(50)
    assert time.monotonic() - began < 10  # one busy time-out a second, and not one a call
    assert app.board.counts["errors.spending"] > 0
    other.execute("ROLLBACK")

    app.processor.force_flush()

    assert app.balance("day").calls == 50
    assert len(app.spending._waiting) == 0


def test_calls_that_wait_are_booked_while_the_ledger_closes(tmp_path: Path) -> None:
    """The process ends, and another one locks the file for a moment."""
    path = tmp_path / "spending.db"
    app = App(track_spending=True, spending_file=str(path))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    app.run(3)
    failures = app.board.counts["errors.spending"]

    def unlock_after_an_attempt() -> None:
        eventually(lambda: app.board.counts["errors.spending"] > failures)
        other.execute("ROLLBACK")

    unlocking = threading.Thread(target=unlock_after_an_attempt)
    unlocking.start()
    app.spending.close()
    unlocking.join()
    assert len(app.spending._waiting) == 0
    assert app.balance("day").calls == 3


def test_calls_that_wait_count_at_once(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    app = App(track_spending=True, spending_file=str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # readers go on
    app.run(3)
    assert len(app.spending._waiting) == 3
    assert app.balance("day").calls == 3
    other.execute("ROLLBACK")
    app.run(1)
    assert app.balance("day").calls == 4


def test_an_error_of_the_ledger_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(track_spending=True)
    monkeypatch.setattr(app.spending, "book", lambda entry: 1 / 0)
    app.run(2)
    assert app.board.counts["errors.spending"] == 2
    assert app.board.counts["errors.on_end"] == 0


def test_half_a_character_in_a_name_costs_no_call_and_holds_up_no_other(where: dict[str, Any], tmp_path: Path) -> None:
    """Names come from models and from users, and JSON can carry half of an emoji."""
    app = App(budgets=[{"scope": "agent", "usd": 0.0001}], **where)
    half: dict[str, Any] = {"model": "large\ud83d", "gen_ai.agent.name": "a\ud83d", "gen_ai.conversation.id": "c\ud83d"}
    app.model_call(**{**half, "model": "large"})
    assert str(app.spending.status("c\ud83d", "a\ud83d").level) == "blocked"
    other = sqlite3.connect(tmp_path / "spending.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    app.model_call(**half)  # waits, where the ledger is this file
    other.execute("ROLLBACK")
    other.close()
    app.model_call()
    app.spending.save_waiting()
    assert app.balance("service", "shop").calls == 3
    assert not app.board.counts["errors.spending"] - bool(where)  # the file was locked once


def test_a_number_of_tokens_that_no_file_holds_is_unknown(where: dict[str, Any]) -> None:
    app = App(track_spending=True, **where)
    app.model_call(tokens=(10**400, 100))
    assert app.balance("service", "shop")[1:3] == (0, 100)
    assert not app.board.counts["errors.on_end"]


@pytest.mark.parametrize(
    ("answered", "requested", "expected"),
    [("large-2026-05-01", "large", COST_OF_A_CALL), ("large", "my-deployment", COST_OF_A_CALL), ("mine", "our", 0)],
)
def test_a_configured_price_holds_for_the_requested_name_too(answered: str, requested: str, expected: int) -> None:
    app = App(track_spending=True)
    app.model_call(**{"gen_ai.response.model": answered, "gen_ai.request.model": requested})
    assert app.balance("day").micro_usd == expected
    assert set(app.balance("day").unpriced) == (set() if expected else {"mine"})


def test_models_beyond_a_limit_are_summed_up_under_one_name() -> None:
    app = App(track_spending=True)
    for turn in (1, 2):
        for number in range(4_200):
            app.spending.book(LedgerEntry(f"{turn}/{number}", "c", "", "", "2026-01-01", f"m{number}", 9, 1))
        found = {one.model: one.sums.input_tokens + one.sums.output_tokens for one in app.spending.booked_here()}
        assert sum(found.values()) == 42_000 * turn
        assert len(found) == 4_097
        assert found["other"] == 104 * 10 * turn
