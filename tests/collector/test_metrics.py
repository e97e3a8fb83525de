"""The collector's metrics, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from trajectory_guard import telemetry as guard
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry import catalogue as telemetry
from trajectory_guard_collector.telemetry.families import SERIES_PER_VALUE
from trajectory_guard_collector.telemetry.metrics import Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels."""
    metrics.refresh()
    content, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(content.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return scrape(metrics)[(name, tuple(sorted(labels.items())))]


def exercise(metrics: Metrics) -> None:
    """Call everything once."""
    for signal in Signal:
        metrics.accepted(signal, "grpc", 3)
        metrics.refused(signal, "http", 2)
        metrics.failed(signal, "http", 1)
        metrics.sent("otlp", signal, 3)
        metrics.send_failed("otlp", signal, 1)
        metrics.enqueue_failed("otlp", signal, 2)
        metrics.limiter_refused(signal, 4)
        metrics.incoming(signal, 3)
        metrics.outgoing(signal, 5)
    metrics.request("grpc", "OK")
    metrics.retried("otlp")
    metrics.send_duration("otlp", 0.2)
    metrics.judge_duration(0.01, 5)
    metrics.step("shop")
    metrics.detection("shop", "TYPE_I_STUTTER")
    metrics.intervention("NUDGE", "shop", "planner", "search", "TYPE_I_STUTTER", TRACE)
    metrics.episode("shop", "planner", "search", "TYPE_I_STUTTER", TRACE)
    metrics.recovery("shop", "planner")
    metrics.loop_spent("shop", 2, 300, 0.25)
    metrics.duplicate()
    metrics.late("reordered")
    metrics.rejudged()
    metrics.eviction("idle")
    metrics.evicted_runs(2)
    metrics.fingerprinted("shop")
    metrics.flag_request("200")
    metrics.scores_sent("langfuse", 2)
    metrics.scores_failed("langfuse", 1)
    metrics.score_attempt_failed("langfuse", "503")
    metrics.error("judge")
    metrics.watch_exporter("otlp", size=lambda: 7, capacity=lambda: 100, in_flight=lambda: 2)
    metrics.watch_scores("langfuse", lambda: 4)
    metrics.watch_trajectories(lambda: 12, lambda: {"healthy": 11, "stop": 1})


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def used(metrics: Metrics) -> Metrics:
    exercise(metrics)
    return metrics


def test_everything_declared_is_exposed_with_its_labels_and_nothing_else() -> None:
    metrics = Metrics(max_label_values=1)
    exercise(metrics)
    metrics.step("another")
    seen: dict[str, set[tuple[str, ...]]] = {}
    for name, labels in scrape(metrics):
        seen.setdefault(name, set()).add(tuple(label for label, _ in labels if label != "le"))
    wanted: dict[str, set[tuple[str, ...]]] = {}
    for metric in telemetry.METRICS:
        names = [metric.exposed]
        if metric.kind == "histogram":
            names = [f"{metric.name}_{part}" for part in ("bucket", "count", "sum")]
        wanted.update({name: {tuple(sorted(metric.labels))} for name in names})
    assert seen == wanted


@pytest.mark.parametrize(
    "name, labels, expected",
    [
        ("otelcol_receiver_accepted_spans_total", {"receiver": "otlp", "transport": "grpc"}, 3),
        ("otelcol_receiver_refused_metric_points_total", {"receiver": "otlp", "transport": "http"}, 2),
        ("otelcol_receiver_failed_log_records_total", {"receiver": "otlp", "transport": "http"}, 1),
        ("otelcol_receiver_requests_total", {"receiver": "otlp", "transport": "grpc", "status": "OK"}, 1),
        ("otelcol_exporter_sent_spans_total", {"exporter": "otlp"}, 3),
        ("otelcol_exporter_send_failed_spans_total", {"exporter": "otlp"}, 1),
        ("otelcol_exporter_enqueue_failed_spans_total", {"exporter": "otlp"}, 2),
        ("otelcol_exporter_queue_size", {"exporter": "otlp"}, 7),
        ("otelcol_exporter_queue_capacity", {"exporter": "otlp"}, 100),
        ("otelcol_exporter_in_flight_requests", {"exporter": "otlp"}, 2),
        ("otelcol_processor_incoming_items_total", {"processor": "trajectory_guard", "otel_signal": "traces"}, 3),
        ("otelcol_processor_outgoing_items_total", {"processor": "trajectory_guard", "otel_signal": "traces"}, 5),
        ("otelcol_processor_memory_limiter_refused_spans_total", {}, 4),
        ("otelcol_processor_internal_duration_seconds_sum", {"processor": "trajectory_guard"}, 0.01),
        ("trajectory_guard_observe_duration_seconds_sum", {}, 0.002),
        ("trajectory_guard_exporter_send_duration_seconds_count", {"exporter": "otlp"}, 1),
        ("trajectory_guard_steps_total", {"service_name": "shop"}, 1),
        ("trajectory_guard_detections_total", {"service_name": "shop", "trajectory_guard_loop_type": "TYPE_I_STUTTER"}, 1),
        ("trajectory_guard_recoveries_total", {"service_name": "shop", "gen_ai_agent_name": "planner"}, 1),
        ("trajectory_guard_loop_steps_total", {"service_name": "shop"}, 2),
        ("trajectory_guard_loop_tokens_total", {"service_name": "shop"}, 300),
        ("trajectory_guard_loop_cost_total", {"service_name": "shop"}, 0.25),
        ("trajectory_guard_trajectories_active", {}, 12),
        ("trajectory_guard_trajectories_by_score", {"bucket": "healthy"}, 11),
        ("trajectory_guard_late_steps_total", {"how": "reordered"}, 1),
        ("trajectory_guard_evictions_total", {"reason": "idle"}, 1),
        ("trajectory_guard_flag_requests_total", {"status": "200"}, 1),
        ("trajectory_guard_scores_waiting", {"exporter": "langfuse"}, 4),
        ("trajectory_guard_errors_total", {"where": "judge"}, 1),
    ],
)  # fmt: skip
def test_names_labels_and_values(used: Metrics, name: str, labels: dict[str, str], expected: float) -> None:
    assert value(used, name, **labels) == pytest.approx(expected)


def test_the_process_is_measured(metrics: Metrics) -> None:
    assert value(metrics, "otelcol_process_memory_rss_bytes") > 1 << 20
    assert value(metrics, "otelcol_process_cpu_seconds_total") > 0
    before = value(metrics, "otelcol_process_uptime_seconds_total")
    assert 0 <= before < value(metrics, "otelcol_process_uptime_seconds_total") < 60


def exemplars(metrics: Metrics) -> Iterator[tuple[str, dict[str, str]]]:
    metrics.refresh()
    content, content_type = metrics.render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    for family in parse_openmetrics(content.decode()):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            if sample.exemplar is not None:
                yield sample.name, sample.exemplar.labels


def test_interventions_and_episodes_carry_their_trace_in_openmetrics(used: Metrics) -> None:
    assert dict(exemplars(used)) == {
        "trajectory_guard_interventions_total": {"trace_id": TRACE},
        "trajectory_guard_episodes_total": {"trace_id": TRACE},
    }


@pytest.mark.parametrize("trace_id", ["", "x" * 500])
def test_a_trace_id_that_is_none_gives_no_exemplar(metrics: Metrics, trace_id: str) -> None:
    metrics.episode("shop", "planner", "search", "TYPE_I_STUTTER", trace_id)
    assert list(exemplars(metrics)) == []
    assert sum(v for (name, _), v in scrape(metrics).items() if name == "trajectory_guard_episodes_total") == 1


def test_the_text_format_has_no_exemplars_and_no_creation_times(used: Metrics) -> None:
    text = used.render()[0].decode()
    assert TRACE not in text
    assert "_created" not in text


def test_further_label_values_count_as_other(metrics: Metrics) -> None:
    metrics = Metrics(max_label_values=3)
    for number in range(10):
        metrics.step(f"service-{number}")
        metrics.step("service-0")
    assert value(metrics, "trajectory_guard_steps_total", service_name="service-0") == 11
    assert value(metrics, "trajectory_guard_steps_total", service_name="other") == 7
    assert value(metrics, "trajectory_guard_label_overflow_total", label="service_name") == 7


def test_a_service_admitted_by_one_metric_is_told_apart_in_all(metrics: Metrics) -> None:
    metrics = Metrics(max_label_values=1)
    metrics.step("shop")
    metrics.detection("desk", "TYPE_I_STUTTER")
    metrics.detection("shop", "TYPE_I_STUTTER")
    services = {dict(labels)["service_name"] for name, labels in scrape(metrics) if "detections" in name}
    assert services == {"other", "shop"}


def test_series_stay_few_whatever_the_combinations(metrics: Metrics) -> None:
    limit = 20
    metrics = Metrics(max_label_values=limit)
    for service in range(limit):
        for agent in range(limit):
            for tool in range(limit + 5):
                metrics.episode(f"s{service}", f"a{agent}", f"t{tool}", "TYPE_I_STUTTER", "")
    episodes = {labels: v for (name, labels), v in scrape(metrics).items() if name == "trajectory_guard_episodes_total"}
    assert len(episodes) <= SERIES_PER_VALUE * limit + limit
    assert sum(episodes.values()) == limit * limit * (limit + 5), "all are counted"
    assert {dict(labels)["service_name"] for labels in episodes} == {f"s{number}" for number in range(limit)}


def test_names_made_up_by_senders_do_no_harm(metrics: Metrics) -> None:
    metrics.step("a\ud800b")
    metrics.step("x" * 100_000)
    metrics.step('line\nbreak "quoted" \\')
    services = {
        dict(labels)["service_name"] for name, labels in scrape(metrics) if name.startswith("trajectory_guard_steps")
    }
    assert services == {"a?b", "x" * 128, 'line\ufffdbreak "quoted" \\'}


def test_a_reader_that_fails_hides_nothing_else(metrics: Metrics) -> None:
    exercise(metrics)
    metrics.watch_exporter("broken", size=lambda: 1 // 0, capacity=lambda: 5, in_flight=lambda: 0)
    metrics.watch_trajectories(lambda: 1, lambda: {"healthy": 1 // 0})
    assert value(metrics, "otelcol_exporter_queue_capacity", exporter="broken") == 5
    assert value(metrics, "trajectory_guard_trajectories_active") == 1
    assert value(metrics, "trajectory_guard_errors_total", where="metrics") >= 2


def test_two_collectors_in_a_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.step("shop")
    assert not any(name == "trajectory_guard_steps_total" for name, _ in scrape(other))


def test_ours_are_those_of_the_library_that_can_occur_here() -> None:
    here = {metric.name for metric in telemetry.METRICS}
    in_process_only = {guard.EXPIRED, guard.SETTLED, guard.SCORES}
    for metric in guard.METRICS:
        name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
        assert (name in here) is (metric not in in_process_only)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_complain_about(used: Metrics) -> None:
    used.refresh()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=used.render()[0], capture_output=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
