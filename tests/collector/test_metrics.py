"""The collector's metrics, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from trajectory_guard import telemetry as guard
from trajectory_guard_collector.telemetry import catalogue as telemetry
from trajectory_guard_collector.telemetry.metrics import SERIES_PER_VALUE, Metrics

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


LABELS = {
    "receiver": "otlp", "transport": "grpc", "exporter": "otlp", "processor": "trajectory_guard",
    "otel_signal": "traces", "service_name": "shop", "trajectory_guard_loop_type": "TYPE_I_STUTTER",
    "trajectory_guard_loop_certainty": "certain",
    "trajectory_guard_intervention": "NUDGE", "gen_ai_agent_name": "planner", "gen_ai_tool_name": "search",
    "trajectory_guard_error_where": "evaluate", "status": "OK", "trajectory_guard_eviction_reason": "idle",
    "how": "reordered", "trajectory_guard_flag_action": "raised", "error_type": "503",
    "gen_ai_request_model": "large", "trajectory_guard_spending_event": "calls", "trajectory_guard_budget_scope": "service",
    "trajectory_guard_budget_name": "shop", "trajectory_guard_budget_limit": "10.00 USD",
    "trajectory_guard_budget_percent": "80", "stream": "stderr",
}  # fmt: skip
BY_THE_COLLECTOR = (telemetry.UPTIME, telemetry.MEMORY_RSS, telemetry.CPU_SECONDS, telemetry.LABEL_OVERFLOW)


def labels_of(row: telemetry.Metric, **changed: str) -> dict[str, str]:
    return {name: {**LABELS, **changed}[name] for name in row.labels}


def exercise(metrics: Metrics) -> None:
    """Use every row of the table once."""
    for number, row in enumerate(telemetry.METRICS, start=1):
        if row in BY_THE_COLLECTOR:
            continue
        if row is telemetry.BY_SCORE:
            metrics.watch_group(row, lambda: {"healthy": 11, "stop": 1})
        elif row.kind == "gauge":
            metrics.watch(row, lambda number=number: number, **labels_of(row))  # type: ignore[misc]
        elif row.kind == "histogram":
            metrics.observe(row, 0.01, **labels_of(row))
        else:
            trace_id = TRACE if row in (telemetry.INTERVENTIONS, telemetry.EPISODES) else ""
            metrics.add(row, number, trace_id=trace_id, **labels_of(row))


def number_of(row: telemetry.Metric) -> int:
    """The value that ``exercise`` gives a counter or gauge."""
    return telemetry.METRICS.index(row) + 1


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
    metrics.add(telemetry.STEPS, service_name="another")
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


def test_what_a_process_reports_too_has_its_attributes_as_labels() -> None:
    """One query serves an application and the collector."""
    in_process = {
        one.name.replace(".", "_"): {key.replace(".", "_") for key in one.attributes} for one in guard.METRICS
    }
    shared = [row for row in telemetry.METRICS if row.name.removesuffix("_seconds") in in_process]
    assert {telemetry.ERRORS, telemetry.EVICTIONS, telemetry.HAND_FLAGS, telemetry.SCORE_ATTEMPTS_FAILED} <= {*shared}
    for row in shared:
        only_here = {"service_name", "gen_ai_agent_name", "gen_ai_tool_name", "exporter", "trajectory_guard_loop_type"}
        assert in_process[row.name.removesuffix("_seconds")] <= {*row.labels}, row.name
        assert {*row.labels} - in_process[row.name.removesuffix("_seconds")] <= only_here, row.name


@pytest.mark.parametrize(
    "name, labels",
    [
        ("otelcol_receiver_accepted_spans_total", {"receiver": "otlp", "transport": "grpc"}),
        ("otelcol_receiver_refused_metric_points_total", {"receiver": "otlp", "transport": "grpc"}),
        ("otelcol_receiver_failed_log_records_total", {"receiver": "otlp", "transport": "grpc"}),
        ("otelcol_receiver_requests_total", {"receiver": "otlp", "transport": "grpc", "status": "OK"}),
        ("otelcol_exporter_sent_spans_total", {"exporter": "otlp"}),
        ("otelcol_exporter_send_failed_spans_total", {"exporter": "otlp"}),
        ("otelcol_exporter_enqueue_failed_spans_total", {"exporter": "otlp"}),
        ("otelcol_exporter_queue_size", {"exporter": "otlp"}),
        ("otelcol_exporter_queue_capacity", {"exporter": "otlp"}),
        ("otelcol_exporter_in_flight_requests", {"exporter": "otlp"}),
        ("otelcol_processor_incoming_items_total", {"processor": "trajectory_guard", "otel_signal": "traces"}),
        ("otelcol_processor_outgoing_items_total", {"processor": "trajectory_guard", "otel_signal": "traces"}),
        ("otelcol_processor_memory_limiter_refused_spans_total", {}),
        ("trajectory_guard_steps_total", {"service_name": "shop"}),
        ("trajectory_guard_detections_total", {"service_name": "shop", "trajectory_guard_loop_type": "TYPE_I_STUTTER"}),
        ("trajectory_guard_recoveries_total", {"service_name": "shop", "gen_ai_agent_name": "planner"}),
        ("trajectory_guard_loop_steps_total", {"service_name": "shop", "trajectory_guard_loop_certainty": "certain"}),
        ("trajectory_guard_loop_tokens_total", {"service_name": "shop", "trajectory_guard_loop_certainty": "certain"}),
        ("trajectory_guard_loop_cost_total", {"service_name": "shop", "trajectory_guard_loop_certainty": "certain"}),
        ("trajectory_guard_trajectories_active", {}),
        ("trajectory_guard_late_steps_total", {"how": "reordered"}),
        ("trajectory_guard_evictions_total", {"trajectory_guard_eviction_reason": "idle"}),
        ("trajectory_guard_flag_requests_total", {"status": "OK"}),
        ("trajectory_guard_scores_waiting", {"exporter": "otlp"}),
        ("trajectory_guard_errors_total", {"trajectory_guard_error_where": "evaluate"}),
    ],
)  # fmt: skip
def test_counters_and_gauges_have_these_names_and_labels(used: Metrics, name: str, labels: dict[str, str]) -> None:
    (row,) = [row for row in telemetry.METRICS if row.exposed == name]
    assert value(used, name, **labels) == number_of(row)


@pytest.mark.parametrize(
    "name, labels",
    [
        ("otelcol_processor_internal_duration_seconds", {"processor": "trajectory_guard"}),
        ("trajectory_guard_observe_duration_seconds", {}),
        ("trajectory_guard_exporter_send_duration_seconds", {"exporter": "otlp"}),
    ],
)
def test_histograms_have_these_names_and_labels(used: Metrics, name: str, labels: dict[str, str]) -> None:
    assert value(used, f"{name}_sum", **labels) == pytest.approx(0.01)
    assert value(used, f"{name}_count", **labels) == 1


def test_a_gauge_is_read_for_all_values_of_its_label_at_once(used: Metrics) -> None:
    name = "trajectory_guard_trajectories_by_score"
    assert (value(used, name, bucket="healthy"), value(used, name, bucket="stop")) == (11, 1)


@pytest.mark.parametrize("labels", [{}, {"service": "shop"}, {"service_name": "shop", "how": "reordered"}])
def test_labels_are_those_of_the_row(metrics: Metrics, labels: dict[str, str]) -> None:
    with pytest.raises((KeyError, TypeError), match=r"service_name"):
        metrics.add(telemetry.STEPS, **labels)


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
    metrics.add(telemetry.EPISODES, trace_id=trace_id, **labels_of(telemetry.EPISODES))
    assert list(exemplars(metrics)) == []
    assert sum(v for (name, _), v in scrape(metrics).items() if name == "trajectory_guard_episodes_total") == 1


def test_the_text_format_has_no_exemplars_and_no_creation_times(used: Metrics) -> None:
    text = used.render()[0].decode()
    assert TRACE not in text
    assert "_created" not in text


def test_further_label_values_count_as_other(metrics: Metrics) -> None:
    metrics = Metrics(max_label_values=3)
    for number in range(10):
        metrics.add(telemetry.STEPS, service_name=f"service-{number}")
        metrics.add(telemetry.STEPS, service_name="service-0")
    assert value(metrics, "trajectory_guard_steps_total", service_name="service-0") == 11
    assert value(metrics, "trajectory_guard_steps_total", service_name="other") == 7
    assert value(metrics, "trajectory_guard_label_overflow_total", label="service_name") == 7


def test_a_service_admitted_by_one_metric_is_distinguished_in_all(metrics: Metrics) -> None:
    metrics = Metrics(max_label_values=1)
    metrics.add(telemetry.STEPS, service_name="shop")
    metrics.add(telemetry.DETECTIONS, **labels_of(telemetry.DETECTIONS, service_name="desk"))
    metrics.add(telemetry.DETECTIONS, **labels_of(telemetry.DETECTIONS, service_name="shop"))
    services = {dict(labels)["service_name"] for name, labels in scrape(metrics) if "detections" in name}
    assert services == {"other", "shop"}


def test_series_stay_few_whatever_the_combinations(metrics: Metrics) -> None:
    limit = 20
    metrics = Metrics(max_label_values=limit)
    for service in range(limit):
        for agent in range(limit):
            for tool in range(limit + 5):
                labels = {
                    "service_name": f"s{service}",
                    "gen_ai_agent_name": f"a{agent}",
                    "gen_ai_tool_name": f"t{tool}",
                }
                metrics.add(telemetry.EPISODES, **labels_of(telemetry.EPISODES, **labels))
    episodes = {labels: v for (name, labels), v in scrape(metrics).items() if name == "trajectory_guard_episodes_total"}
    assert len(episodes) <= SERIES_PER_VALUE * limit + limit
    assert sum(episodes.values()) == limit * limit * (limit + 5), "all are counted"
    assert {dict(labels)["service_name"] for labels in episodes} == {f"s{number}" for number in range(limit)}


def test_names_made_up_by_senders_do_no_harm(metrics: Metrics) -> None:
    metrics.add(telemetry.STEPS, service_name="a\ud800b")
    metrics.add(telemetry.STEPS, service_name="x" * 100_000)
    metrics.add(telemetry.STEPS, service_name='line\nbreak "quoted" \\')
    services = {
        dict(labels)["service_name"] for name, labels in scrape(metrics) if name.startswith("trajectory_guard_steps")
    }
    assert services == {"a?b", "x" * 128, 'line\ufffdbreak "quoted" \\'}


def test_a_reader_that_fails_hides_nothing_else(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    exercise(metrics)
    metrics.watch(telemetry.QUEUE_SIZE, lambda: 1 // 0, exporter="broken")
    metrics.watch(telemetry.QUEUE_CAPACITY, lambda: 5, exporter="broken")
    metrics.watch(telemetry.ACTIVE, lambda: 1)
    metrics.watch_group(telemetry.BY_SCORE, lambda: {"healthy": 1 // 0})
    assert value(metrics, "otelcol_exporter_queue_capacity", exporter="broken") == 5
    assert value(metrics, "trajectory_guard_trajectories_active") == 1
    assert value(metrics, "trajectory_guard_errors_total", trajectory_guard_error_where="metrics") >= 2
    lines = [one.message for one in caplog.records if "a metric cannot be read" in one.message]
    assert len(lines) == 1  # both are lambdas of this test; each is logged once a minute
    assert "ZeroDivisionError" in lines[0]


def test_two_collectors_in_a_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.add(telemetry.STEPS, service_name="shop")
    assert not any(name == "trajectory_guard_steps_total" for name, _ in scrape(other))


def test_ours_are_those_of_the_library_that_can_occur_here() -> None:
    here = {metric.name for metric in telemetry.METRICS}
    in_process_only = {
        guard.EXPIRED,
        guard.SETTLED,
        guard.SCORES,
        guard.REFUSALS,
        guard.BUDGET_ACTIONS,
        guard.REQUIRED_MISSING,
        guard.CERTIFICATES_LEFT_OUT,
    }
    in_process_only |= {metric for metric in guard.METRICS if metric.name.startswith("trajectory_guard.quality.")}
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
