"""A real Prometheus scrapes real collectors that stuck and healthy agents send to, and the endpoint of a stream worker:
what panels and alerts make of it.

All queries are made at fixed times of one run, so that no test depends on another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from dashboards.generator.alerts import AGENT, Alert, alerts
from dashboards.generator.recordings import Recording, recordings
from dashboards.generator.rules import written_out
from tests.dashboards.lived import ABOUT, STUCK, WINDOWS, Run, lived_through, subject
from tests.dashboards.panels import board, filled, panels, shown, targets
from tests.dashboards.programs import needs
from tests.dashboards.stream_worker import LAG

pytestmark = needs("prometheus")

Shown = list[dict[str, float]]
EXPORTERS = {"otlphttp", "langfuse", "langfuse/locked", "otlp/dead"}
FLEET: dict[str, list[Mapping[str, object]]] = {
    # 8 runs of "support" repeat one call 6 times, 2 of "research" reword, 3 of "desk" recover after the nudge
    "Loops begun": [{"": 13}],
    "Nudges due": [{"": 13}],
    "Stops due": [{"": 8}],
    "Recovered": [{"": pytest.approx(3 / 13)}],
    "Money inside loops": [{"": pytest.approx(8 * 5 * 0.25)}],
    "Steps inside loops": [{"": pytest.approx((8 * 5 + 2 * 5 + 3 * 2) / 121)}],
    "Loops begun by type": [{"TYPE_I_STUTTER": 11, "TYPE_II_INSANITY": 2}],
    "Loops begun by service": [{"support": 8, "research": 2, "desk": 3}],
    "Nudges, stops and recoveries": [{"nudges": 13}, {"stops": 8}, {"recoveries": 3}],
    "Recovery rate by service": [{"support": 0, "research": 0, "desk": 1}],
    "Trajectories by score": [{"healthy": 5}, {"watched": 3}, {"nudge": 2}, {"stop": 8}],
    "Steps inside loops by service": [{"support": 40, "research": 10, "desk": 6}],
    "Tokens inside loops by service": [{"support": 8 * 5 * 60_000, "research": 0, "desk": 0}],
    "Money inside loops by service": [{"support": pytest.approx(10), "research": 0, "desk": 0}],
    "Top tools": [{"search": 11, "lookup": 2}],
    "Top agents": [{"support planner": 8, "research scout": 2, "desk helper": 3}],
    "Findings by type": [{"TYPE_I_STUTTER": 8 * 5 + 3 * 2, "TYPE_II_INSANITY": 8}],
}


def above(limit: float, values: Mapping[str, float], *legends: str) -> bool:
    return all(values.get(legend, float("-inf")) > limit for legend in legends)


COLLECTOR: dict[str, Callable[[Shown], bool]] = {
    "Collectors up": lambda of: of == [{"": 2}],
    "Spans a second": lambda of: of[0][""] > 1,
    "Refused": lambda of: of[0][""] > 1,
    "Given up": lambda of: of[0][""] > 1,
    "Fullest queue": lambda of: 0.5 <= of[0][""] <= 1,
    "Own errors": lambda of: of[0][""] >= 1,
    "Accepted": lambda of: above(0, of[0], "spans http", "spans grpc") and above(0, of[1], "metric points http")
    and above(0, of[2], "log records http"),
    "Refused and failed": lambda of: above(0, of[0], "spans grpc") and not any(of[1:]),
    "Requests by answer": lambda of: above(0, of[0], "http 200", "http 400", "grpc OK",
    "grpc RESOURCE_EXHAUSTED"),
    "Steps evaluated": lambda of: above(0.5, of[0], "library"),
    "Time to score a step": lambda of: 0 < of[0]["p50"] <= of[1]["p99"] <= 0.1,
    "Time to score and tag a request": lambda of: 0 < of[0]["p50"] <= of[1]["p99"] <= 1,
    "Items through the scorer": lambda of: above(1, of[0], "in") and above(1, of[1], "out"),
    # An increase is extrapolated to the window: more than the twenty steps where a scrape came late.
    "Late and duplicate steps": lambda of: above(15, of[0], "too_late") and "duplicate" in of[2],
    "Long steps and forgotten runs": lambda of: of[0] in ({}, {"long step": 0}) and of[1] == {"forgotten run": 0},
    "Trajectories in memory": lambda of: of[0]["troubled"] == 3 and of[0]["sound"] > 18,
    "Evictions": lambda of: set(of[0]) == {"full"} and of[0]["full"] >= 4,
    "Own errors by place": lambda of: set(of[0]) == {"tls_reload"} and of[0]["tls_reload"] >= 1,
    "Label values beyond the bound": lambda of: above(0, of[0], "service_name"),
    "Sent": lambda of: above(0, of[0], "spans otlphttp") and above(0, of[1], "metric points otlphttp")
    and above(0, of[2], "log records otlphttp"),
    "Queue in use": lambda of: of[0]["otlphttp sound"] < 0.1 and of[0]["otlp/dead troubled"] >= 0.5,
    "Given up, and no room": lambda of: above(0, of[0], "spans langfuse") and above(0, of[3], "no room: spans "
    "otlp/dead"),
    "Retries": lambda of: of[0]["otlp/dead"] > 1 and of[0].get("otlphttp", 0) == 0,
    "Time of an attempt": lambda of: 0 < of[0]["p50 otlphttp"] <= of[1]["p99 otlphttp"] < 5,
    "Requests in flight": lambda of: set(of[0]) == EXPORTERS and max(of[0].values()) <= 4,
    "Langfuse scores": lambda of: "langfuse failed/s" in of[1] and of[2]["langfuse/locked waiting"] >= 1,
    "Requests for flags": lambda of: set(of[0]) == {"200"} and of[0]["200"] > 0 and not any(of[1:]),
    "Memory": lambda of: all(10e6 < of[0][name] < 2e9 for name in ("sound", "troubled")),
    "Processor": lambda of: all(0 < of[0][name] < 3 for name in ("sound", "troubled")),
    "Processor time for a span": lambda of: 0 < of[0]["sound"] < 0.1,
    "Restarts": lambda of: of == [{"sound": 0, "troubled": 0, "worker": 0}],
    "Workers ready": lambda of: of == [{"": 0}],
    "Time to catch up": lambda of: of[0][""] > 60,
    "Busiest worker": lambda of: 0.1 < of[0][""] < 1,
    "Dead letters": lambda of: of == [{"": 2}],
    "Lag": lambda of: of == [LAG],
    "Time to catch up by topic": lambda of: of[0]["spans"] < 60 < of[0]["operations"],
    "Records read and written": lambda of: above(500, of[0], "spans read", "operations read")
    and above(500, of[1], "verdicts written"),
    "Share of time in commits": lambda of: 0.1 < of[0]["worker"] < 1,
    "Time of a commit": lambda of: 0.1 < of[0]["worker"] < 1,
    "Time restoring state": lambda of: of == [{"worker": 1.5}],
    # Collectors have late steps and duplicates, too: they are not among these.
    "Order and repeats at the workers": lambda of: of[0]["too_late"] == 3 and set(of[0]) <= {"too_late", "reordered"}
    and set(of[1]) <= {"evaluated again"} and of[2] == {"duplicate": 4},
    "Dead letters by topic": lambda of: of == [{"spans": 2}],
    "Live objects": lambda of: of == [{"trace": 30, "trajectory": 20}],
    "Flags in memory": lambda of: of == [{"worker": 20}],
    "Flags forgotten": lambda of: of == [{"full": 2}],
}  # fmt: skip


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All alerts have to fire within a minute, in real time; if one of them does not, it is all tried once more."""
    with ExitStack() as stack:
        try:
            run = stack.enter_context(lived_through(tmp_path_factory.mktemp("live")))
        except AssertionError as error:
            warnings.warn(f"tried again: {error}", stacklevel=1)
            run = stack.enter_context(lived_through(tmp_path_factory.mktemp("again")))
        yield run


# --- alerts ----------------------------------------------------------------------------------------------------------


def test_no_alert_fires_on_the_healthy_load(lived: Run) -> None:
    assert lived.calm == set()


def test_alerts_about_agents_name_the_service_that_is_stuck_and_no_other(lived: Run) -> None:
    assert lived.stuck == {(name, "support") for name in STUCK}


def test_alerts_about_the_guard_name_the_collector_and_the_worker_in_trouble_and_not_the_sound_one(lived: Run) -> None:
    assert lived.troubled - lived.stuck == {one for one in ABOUT.items() if one[0] not in STUCK}


def test_what_is_gone_is_missed(lived: Run) -> None:
    down = {("GuardDown", name) for name in ("sound", "troubled", "worker")}
    assert lived.gone - lived.troubled == {*down, ("GuardAbsent", "")}


def test_every_alert_has_fired(lived: Run) -> None:
    assert {name for name, _ in lived.gone} == {alert.name for alert in alerts()}


def test_annotations_are_filled_in(lived: Run) -> None:
    firing = lived.server.get("alerts")["alerts"]
    assert firing
    for alert in firing:
        for text in alert["annotations"].values():
            assert "<no value>" not in text
            assert "error expanding" not in text


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_grafana_s_expression_says_what_prometheus_s_rule_says(lived: Run, alert: Alert) -> None:
    """Written out, without recording rules, at the time the rule fired."""
    expression = f"({written_out(alert.expression, WINDOWS)}) > {alert.above}"
    at = lived.stuck_at if alert.concerns == AGENT else lived.troubled_at
    subjects = {subject(one.labels) for one in lived.server.query(expression, at)}
    assert subjects == ({ABOUT[alert.name]} if alert.name in ABOUT else set())


# --- recording rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", recordings(WINDOWS), ids=lambda rule: rule.name)
def test_a_recording_rule_records_something(lived: Run, rule: Recording) -> None:
    found = lived.server.query(rule.name, lived.troubled_at)
    assert bool(found) is (rule.name != "instance_exporter:trajectory_guard_scores_sent:count15m")  # none is taken here


# --- panels ----------------------------------------------------------------------------------------------------------


def test_every_panel_is_expected() -> None:
    assert list(FLEET) == [
        title for title, panel in panels("fleet").items() if panel["datasource"]["type"] == "prometheus"
    ]
    assert list(COLLECTOR) == list(panels("collector"))


@pytest.mark.parametrize("title", FLEET)
def test_what_a_panel_of_fleet_shows(lived: Run, title: str) -> None:
    found = [shown(lived.server, target, lived.stuck_at) for target in panels("fleet")[title]["targets"]]
    assert found == FLEET[title]


@pytest.mark.parametrize("title", COLLECTOR)
def test_what_a_panel_of_collector_shows(lived: Run, title: str) -> None:
    found = [shown(lived.server, target, lived.troubled_at) for target in panels("collector")[title]["targets"]]
    assert COLLECTOR[title](found), found


@pytest.mark.parametrize(
    "title, chosen, expected",
    [
        ("Loops begun", {"service": "support|desk"}, {"": 11}),
        ("Loops begun", {"loop_type": "TYPE_II_INSANITY"}, {"": 2}),
        ("Nudges due", {"agent": "helper"}, {"": 3}),
        ("Recovered", {"agent": "helper"}, {"": 1}),
        ("Recovered", {"service": "support"}, {"": 0}),
        ("Recovered", {"service": "library"}, {}),
        ("Money inside loops", {"service": "desk"}, {"": 0}),
        ("Loops begun by service", {"service": "library"}, {}),
        ("Findings by type", {"loop_type": "TYPE_II_INSANITY"}, {"TYPE_II_INSANITY": 8}),
    ],
)
def test_variables_choose(lived: Run, title: str, chosen: dict[str, str], expected: dict[str, float]) -> None:
    (target,) = panels("fleet")[title]["targets"]
    assert shown(lived.server, target, lived.stuck_at, **chosen) == expected


@pytest.mark.parametrize(
    "name, expected",
    [
        ("service", {"library", "support", "research", "desk"}),
        ("agent", {"planner", "scout", "helper"}),
        ("loop_type", {"TYPE_I_STUTTER", "TYPE_II_INSANITY"}),
    ],
)
def test_variables_of_fleet_offer_what_is_there(lived: Run, name: str, expected: set[str]) -> None:
    assert offered(lived, "fleet", name, lived.stuck_at) == expected


def test_variables_of_collector_offer_what_is_there(lived: Run) -> None:
    assert offered(lived, "collector", "instance", lived.troubled_at) == {"sound", "troubled"}
    assert offered(lived, "collector", "exporter", lived.troubled_at) == EXPORTERS
    assert offered(lived, "collector", "worker", lived.troubled_at) == {"worker"}


def offered(lived: Run, dashboard: str, name: str, at: float) -> set[str]:
    """The label values that Grafana's ``label_values(metric, label)`` gets from Prometheus."""
    (variable,) = (one for one in board(dashboard)["templating"]["list"] if one["name"] == name)
    metric, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").split(", ")
    series = lived.server.query(f"{metric}", at)
    return {one.labels[label] for one in series if one.labels.get(label)}


@pytest.mark.parametrize("phase_s", [tenth / 10 for tenth in range(10)])
def test_bars_add_up_to_the_total_wherever_they_begin_between_two_scrapes(lived: Run, phase_s: float) -> None:
    (target,) = panels("fleet")["Loops begun by service"]["targets"]
    end = lived.stuck_at + 3 - phase_s
    expression = filled(target["expr"], __interval="1s", service="support|research|desk")
    answer = lived.server.get("query_range", query=expression, start=end - 30, end=end, step="1s")
    totals = {
        one["metric"]["service_name"]: sum(float(value) for _, value in one["values"]) for one in answer["result"]
    }
    assert totals == {"support": 8, "research": 2, "desk": 3}
    assert all(len(one["values"]) > 2 for one in answer["result"])


def test_exemplars_lead_to_the_traces_of_the_loops(lived: Run) -> None:
    exemplary = [target for _, target in targets("fleet", "prometheus") if target["exemplar"]]
    assert len(exemplary) >= 3
    for target in exemplary:
        found = lived.server.get(
            "query_exemplars", query=filled(target["expr"], service="support"), start=lived.begun_at, end=lived.stuck_at
        )
        traces = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
        assert traces
        assert traces <= lived.traces["support"]
