"""Names, units and values of everything the guard tells: attributes, metrics, logs, and the table that documents them."""

from __future__ import annotations

import gc
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import PACKAGE, record
from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.logs import log_recovery, log_verdict
from trajectory_guard.otel.metrics import register
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending.ledger import LedgerEntry
from trajectory_guard.spending.spending import today

CONTRACT = {
    "trajectory_guard.loop.detected": "bool",
    "trajectory_guard.loop.type": "string[]",
    "trajectory_guard.loop.rule": "string",
    "trajectory_guard.loop.certainty": "string",
    "trajectory_guard.loop.score": "double",
    "trajectory_guard.loop.first_step": "string",
    "trajectory_guard.intervention": "string",
    "trajectory_guard.health": "double",
    "trajectory_guard.episode": "int",
    "trajectory_guard.step.index": "int",
    "trajectory_guard.trajectory.id": "string",
    "trajectory_guard.run.id": "string",
    "trajectory_guard.evidence": "string",
}
MEASURED = (
    "steps",
    "detections",
    "interventions",
    "episodes",
    "recoveries",
    "active",
    "evictions",
    "errors",
    "loop.steps",
    "loop.tokens",
    "loop.cost",
)


def test_attributes_are_those_of_the_contract() -> None:
    declared = {attribute.key: attribute.type for attribute in telemetry.ATTRIBUTES}
    assert CONTRACT.items() <= declared.items()
    further = {
        name
        for name in set(declared) - set(CONTRACT)
        if not re.match(r"trajectory_guard\.(budget|outlier|quality)\.", name)
    }
    assert further <= {"trajectory_guard.reason", "trajectory_guard.certificate"}


def test_metrics_of_the_contract_are_declared() -> None:
    names = [metric.name for metric in telemetry.METRICS]
    assert all(any(name.endswith(wanted) for name in names) for wanted in MEASURED)
    assert any(metric.instrument == "histogram" and metric.unit == "s" for metric in telemetry.METRICS)


def test_names_are_unique_and_well_formed() -> None:
    names = [attribute.key for attribute in telemetry.ATTRIBUTES] + [metric.name for metric in telemetry.METRICS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"trajectory_guard(\.[a-z_]+)+", name) for name in names)


@pytest.mark.parametrize("metric", telemetry.METRICS, ids=lambda metric: metric.name)
def test_every_metric_has_unit_meaning_and_kind(metric: telemetry.Metric) -> None:
    assert metric.instrument in ("counter", "gauge", "histogram", "up-down-counter")
    assert metric.unit in ("s", "1") or re.fullmatch(r"\{[A-Za-z]+\}", metric.unit)
    assert (metric.unit == "1") == metric.name.endswith("ratio"), "a share of a whole"
    assert len(metric.meaning) > 10


OF_THE_CONVENTIONS = {"error.type", "gen_ai.tool.name", "gen_ai.request.model", "gen_ai.evaluation.name"}


@pytest.mark.parametrize("metric", telemetry.METRICS, ids=lambda metric: metric.name)
def test_attributes_of_metrics_are_in_the_guard_s_namespace_or_of_the_conventions(metric: telemetry.Metric) -> None:
    own = {key for key in metric.attributes if re.fullmatch(r"trajectory_guard(\.[a-z_]+)+", key)}
    assert set(metric.attributes) - own <= OF_THE_CONVENTIONS
    assert not own & {one.name for one in telemetry.METRICS}


@pytest.mark.parametrize("metric", telemetry.METRICS, ids=lambda metric: metric.name)
def test_a_name_has_neither_its_unit_nor_a_suffix_of_prometheus(metric: telemetry.Metric) -> None:
    assert not re.search(r"[._](total|seconds?|usd|percent|count|s)$", metric.name)


def test_every_name_used_in_the_code_is_declared() -> None:
    known = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)}
    known |= {metric.name for metric in telemetry.METRICS}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "telemetry.py" and "cli" not in path.parts:
            used = set(
                re.findall(
                    r'"(trajectory_guard\.(?:loop|step|trajectory|health|episode|evidence|intervention)[a-z_.]*)"',
                    path.read_text(encoding="utf-8"),
                )
            )
            assert used <= known, path.name


# --- metrics -------------------------------------------------------------------------------------------------


class Measured:
    """A board whose counters are read through a real metric reader."""

    def __init__(self, **config: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.board = FlagBoard(GuardConfig(**config))
        self.meter = MeterProvider([self.reader]).get_meter(telemetry.SCOPE)
        self.latency = register(self.meter, self.board)

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        groups = data.resource_metrics if data is not None else []
        return {metric.name: metric for group in groups for scope in group.scope_metrics for metric in scope.metrics}

    def value(self, metric: telemetry.Metric, **attributes: str) -> float:
        found = self.metrics().get(metric.name)
        points = found.data.data_points if found is not None else []
        return sum(point.value for point in points if dict(point.attributes) == attributes)


SURE = {telemetry.LOOP_CERTAINTY: "certain"}
HINT = {telemetry.LOOP_CERTAINTY: "likely"}
HOURS = "Closed on Mondays. Open from Tuesday to Sunday, nine to five."


def loop(times: int, trajectory: str = "t", **fields: Any) -> Iterator[StepRecord]:
    for at in range(times):
        usage = Usage(100, 10, 0.01)
        yield record("search", {"q": 1}, HOURS, trajectory=trajectory, t=at * 2.0, dur=1.0, usage=usage, **fields)


def test_a_loop_and_its_recovery_are_counted() -> None:
    measured = Measured()
    for step in loop(5):
        measured.board.observe(step)
    for at in range(5):
        measured.board.observe(record("read", {"page": at}, f"page {at}", t=100.0 + at))
    assert measured.value(telemetry.STEPS) == 10
    assert measured.value(telemetry.DETECTIONS, **{telemetry.LOOP_TYPE: "TYPE_I_STUTTER"}) == 4
    assert measured.value(telemetry.INTERVENTIONS, **{telemetry.INTERVENTION: "NUDGE"}, **SURE) == 1
    assert measured.value(telemetry.INTERVENTIONS, **{telemetry.INTERVENTION: "STOP"}, **SURE) == 1
    assert measured.value(telemetry.EPISODES, **{telemetry.LOOP_TYPE: "TYPE_I_STUTTER"}, **HINT) == 1
    assert measured.value(telemetry.RECOVERIES) == 1
    assert measured.value(telemetry.ACTIVE) == 1
    for certainty, steps in ((HINT, 1), (SURE, 3)):
        assert measured.value(telemetry.LOOP_STEPS, **certainty) == steps
        assert measured.value(telemetry.LOOP_TOKENS, **certainty) == 110 * steps
        assert measured.value(telemetry.LOOP_COST, **certainty) == pytest.approx(0.01 * steps)


def test_the_latency_histogram_tells_steps_from_slow_ones() -> None:
    """The default buckets of the SDK begin at 5 seconds."""
    measured = Measured()
    for seconds in (15e-6, 150e-6, 1.5e-3, 15e-3):
        measured.latency.record(seconds)
    (point,) = measured.metrics()[telemetry.LATENCY.name].data.data_points
    assert max(point.bucket_counts) == 1


def test_counters_do_not_fall_when_a_board_is_freed() -> None:
    measured = Measured()
    another = FlagBoard(GuardConfig())
    register(measured.meter, another)
    for board in (measured.board, another):
        for step in loop(5):
            board.observe(step)
    del board, another
    gc.collect()
    for _ in range(2):
        assert measured.value(telemetry.STEPS) == 10
        assert measured.value(telemetry.DETECTIONS, **{telemetry.LOOP_TYPE: "TYPE_I_STUTTER"}) == 8
        assert measured.value(telemetry.LOOP_COST, **SURE) == pytest.approx(0.06)
        assert measured.value(telemetry.ACTIVE) == 1


WAITS: list[tuple[str, dict[str, Any]]] = [
    ('{"status": "running"}', {}),
    ("The job is still queued.", {}),
    ("429 Too Many Requests", {"outcome": "error"}),
    ("ReadTimeout: the server did not answer within 10 s", {"outcome": "error"}),
    ("database is locked", {"outcome": "error"}),
]


@pytest.mark.parametrize("answer, fields", WAITS, ids=[answer[:12] for answer, _ in WAITS])
def test_waiting_has_a_label_of_its_own(answer: str, fields: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    measured = Measured()
    verdicts = [
        measured.board.observe(
            record("get_job", {"id": 7}, answer, t=at * 5.0, dur=0.1, usage=Usage(100, 10, 0.01), **fields)
        )
        for at in range(60)
    ]
    waits = {telemetry.LOOP_CERTAINTY: "waiting"}
    assert measured.value(telemetry.INTERVENTIONS, **{telemetry.INTERVENTION: "NUDGE"}, **waits) >= 1
    for metric in (telemetry.INTERVENTIONS, telemetry.EPISODES, telemetry.LOOP_STEPS, telemetry.LOOP_COST):
        points = measured.metrics()[metric.name].data.data_points
        assert {point.attributes[telemetry.LOOP_CERTAINTY] for point in points} == {"waiting"}
    nudge = next(one for one in verdicts if one is not None and one.nudge is not None)
    with caplog.at_level(logging.WARNING, telemetry.LOGGER):
        log_verdict(nudge)
    assert json.loads(caplog.messages[-1])["certainty"] == "waiting"


def test_every_instrument_carries_its_declared_unit_and_meaning() -> None:
    prices = {"priced": {"input": 1, "output": 1}}
    measured = Measured(
        max_trajectories=1, track_quality=True, budgets=[{"scope": "day", "tokens": 1}], model_prices=prices
    )
    assert measured.board.spending is not None
    for model in ("priced", ""):
        measured.board.spending.book(LedgerEntry(f"call of {model}", "t", "a", "s", today(time.time()), model, 10, 10))
    measured.board.counts["budget_actions.blocked"] += 1
    measured.board.score("t", 0.5)
    for name in ("a", "b"):
        for step in loop(3, name):
            measured.board.observe(step)
    measured.latency.record(0.001)
    measured.board.counts["errors.on_end"] += 1
    measured.board.counts["expired_age"] += 1
    measured.board.counts["refusals.failed"] += 1
    measured.board.counts["flags.raised"] += 1
    measured.board.counts["required_missing.write_file"] += 1
    measured.board.counts["settle.same"] += 1
    measured.board.counts["scores.sent"] += 1
    measured.board.counts["score_attempts.503"] += 1
    found = measured.metrics()
    assert set(found) == {metric.name for metric in telemetry.METRICS}
    for metric in telemetry.METRICS:
        assert (found[metric.name].unit, found[metric.name].description) == (metric.unit, metric.meaning)
        if metric.instrument == "counter":
            assert found[metric.name].data.is_monotonic
        for point in found[metric.name].data.data_points:
            assert set(point.attributes) == set(metric.attributes)


def test_duplicates_and_evictions_are_counted() -> None:
    measured = Measured(max_trajectories=2)
    step = record("search", {"q": 1}, "x", trajectory="a", call_id="c1")
    measured.board.observe(step)
    measured.board.observe(step._replace(step_id="00000000000000ff"))
    for name in "bcd":
        measured.board.observe(record("search", {"q": 1}, "x", trajectory=name))
    assert measured.value(telemetry.DUPLICATES) == 1
    assert measured.value(telemetry.EVICTIONS, **{telemetry.EVICTION_REASON: "full"}) == 2
    assert measured.value(telemetry.ACTIVE) == 2


def test_idle_trajectories_are_forgotten_and_counted() -> None:
    now = [0.0]
    board = FlagBoard(GuardConfig(idle_ttl_s=60.0), clock=lambda: now[0])
    board.observe(record(trajectory="old", result="x", args={}))
    now[0] = 100.0
    board.observe(record(trajectory="new", result="x", args={}))
    assert len(board) == 1
    assert board.counts["evicted_idle"] == 1


def test_steps_that_are_evaluated_again_because_their_conversation_was_named_late_count_once() -> None:
    board = FlagBoard()
    for trace in ("trace-1", "trace-2"):
        for step in loop(3, trace):
            board.observe(step)
        board.join(trace, "conversation")
    assert board.read("conversation").steps == 6
    assert board.counts["steps"] == 6
    assert len(board) == 1


def test_steps_that_are_evaluated_again_on_top_of_saved_state_count_once() -> None:
    before, after = FlagBoard(), FlagBoard()
    for step in loop(2):
        before.observe(step)
    data = before.save("t")
    assert data is not None
    for step in loop(1):
        after.observe(step)
    assert after.adopt("t", data, 2)
    assert after.read("t").steps == 3
    assert after.counts["steps"] == 1


def test_each_intervention_is_counted_by_its_level() -> None:
    measured = Measured()
    for step in loop(6):
        measured.board.observe(step)
    assert measured.value(telemetry.INTERVENTIONS, **{telemetry.INTERVENTION: "NUDGE"}, **SURE) == 1
    assert measured.value(telemetry.INTERVENTIONS, **{telemetry.INTERVENTION: "STOP"}, **SURE) >= 1


# --- logs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Log lines of a loop and its recovery, decoded."""
    board = FlagBoard()
    entries: list[dict[str, Any]] = []
    steps = [*loop(5), *(record("read", {"page": at}, f"page {at}") for at in range(4))]
    with caplog.at_level(logging.DEBUG, logger=telemetry.LOGGER):
        for step in steps:
            verdict = board.observe(step)
            assert verdict is not None
            if verdict.recovered:
                log_recovery(verdict)
            elif verdict.detections:
                log_verdict(verdict)
    entries += [json.loads(one.getMessage()) | {"levelname": one.levelname} for one in caplog.records]
    return entries


def test_logs_are_one_json_object_a_line(reported: list[dict[str, Any]]) -> None:
    assert [entry["event_type"] for entry in reported] == [
        "TRAJECTORY_OBSERVE",
        "TRAJECTORY_NUDGE",
        "TRAJECTORY_NUDGE",  # the level stays while the loop goes on; nothing new is due
        "TRAJECTORY_STOP",
        "TRAJECTORY_RECOVERY",
    ]
    assert [entry["levelname"] for entry in reported] == ["DEBUG", "WARNING", "DEBUG", "ERROR", "INFO"]


def test_a_log_entry_says_what_happened(reported: list[dict[str, Any]]) -> None:
    entry = reported[1]
    assert entry.keys() >= {
        "timestamp", "event_type", "intervention", "trajectory_id", "step_id", "step_index", "tool", "episode", "evidence", "reason", "types",
    }  # fmt: skip
    assert (entry["trajectory_id"], entry["step_index"], entry["tool"]) == ("t", 2, "search")
    assert (entry["score"], entry["health"], entry["types"]) == (3.0, 0.4, ["TYPE_I_STUTTER"])
    found = {"type": "TYPE_I_STUTTER", "rule": "same_call_same_result", "confidence": 1.0}
    assert entry["detections"] == [found]
    assert "search" in entry["reason"]


def test_a_redacted_log_entry_gives_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    board = FlagBoard()
    verdict = [board.observe(step) for step in loop(3)][-1]
    assert verdict is not None
    with caplog.at_level(logging.WARNING, logger=telemetry.LOGGER):
        log_verdict(verdict, redact=True)
    assert HOURS not in caplog.text
    assert json.loads(caplog.records[0].getMessage())["intervention"] == "NUDGE"


def test_a_loop_between_its_nudge_and_its_stop_is_no_event(caplog: pytest.LogCaptureFixture) -> None:
    nudged = Verdict("t", "s", 3, 2.5, 0.5, Level.NUDGE, (DetectionResult("TYPE_III_PHANTOM", 1.0),))
    with caplog.at_level(logging.DEBUG, logger=telemetry.LOGGER):
        log_verdict(nudged)
        log_verdict(nudged._replace(nudge="Do something else."))
    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING"]


def test_nothing_is_logged_below_the_level(caplog: pytest.LogCaptureFixture) -> None:
    board = FlagBoard()
    verdict = [board.observe(step) for step in loop(2)][-1]
    assert verdict is not None
    with caplog.at_level(logging.INFO, logger=telemetry.LOGGER):
        log_verdict(verdict)
    assert caplog.records == []


def test_half_a_surrogate_pair_reaches_neither_log_nor_span_nor_message(caplog: pytest.LogCaptureFixture) -> None:
    """Models emit them, JSON carries them, and a handler, an exporter or a model's client fails to encode them."""
    provider, board = TracerProvider(shutdown_on_exit=False), FlagBoard(GuardConfig())
    exporter = InMemorySpanExporter()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c\ud83d",
        "gen_ai.tool.call.arguments": '{"q": "caf\\ud83d"}', "gen_ai.tool.call.result": "closed \ud83d on Mondays",
    }  # fmt: skip
    with caplog.at_level(logging.WARNING, logger=telemetry.LOGGER):
        tracer = provider.get_tracer("app")
        with tracer.start_as_current_span("run"):
            for _ in range(5):
                tracer.start_span("execute_tool search", attributes=attributes).end()
    lines = [record.getMessage() for record in caplog.records if record.name == telemetry.LOGGER]
    assert [json.loads(line)["intervention"] for line in lines] == ["NUDGE"]
    verdict = board.last_verdict("c\ud83d")
    assert verdict is not None
    reasons = [str((span.attributes or {}).get(telemetry.REASON, "")) for span in exporter.get_finished_spans()]
    for text in (*lines, *reasons, verdict.reason):
        text.encode("utf-8")
    assert any("caf\\ud83d" in text for text in reasons)
