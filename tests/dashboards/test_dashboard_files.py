"""The committed dashboards: what the generator makes, complete, in place, and with no name that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dashboards.generator.__main__ import files
from dashboards.generator.panels import unfolded
from tests.dashboards.panels import BOARDS, board, panels, targets
from tests.dashboards.programs import DASHBOARDS
from trajectory_guard import telemetry as guard
from trajectory_guard.core.detectors import LOOP_TYPES
from trajectory_guard.integrations.langfuse.scores import HEALTH, LOOP
from trajectory_guard_collector.fleet import catalogue as fleet
from trajectory_guard_collector.telemetry.catalogue import LABEL_OVERFLOW, METRICS, Metric

EXPOSED = {metric.exposed: metric for metric in (*METRICS, *fleet.METRICS)}
IN_PROCESS = {
    one.exposed: one
    for one in (
        Metric(
            metric.name.replace(".", "_"), "counter" if metric.instrument == "counter" else "gauge",
            tuple(label.replace(".", "_") for label in metric.attributes), metric.unit, metric.meaning, "",
        )
        for metric in guard.METRICS
        if metric.name.startswith(tuple(f"trajectory_guard.{part}." for part in ("spending", "budget", "quality")))
    )
}  # fmt: skip
"""Metrics of the guard in an application, as Prometheus receives them over OTLP."""
BOTH = {
    name: EXPOSED[name]._replace(labels=tuple(dict.fromkeys(EXPOSED[name].labels + IN_PROCESS[name].labels)))
    for name in EXPOSED.keys() & IN_PROCESS.keys()
}
NAMES = {
    **EXPOSED,
    **IN_PROCESS,
    **BOTH,
    **{f"{one.name}_{part}": one for one in METRICS if one.kind == "histogram" for part in ("bucket", "sum", "count")},
}
LABELS = {label for metric in NAMES.values() for label in metric.labels} | {
    key.replace(".", "_") for metric in guard.METRICS for key in metric.attributes
}
OF_EVERY_SERIES = {"instance", "job", "le"}
OWN_LABELS = {"signal"}
ATTRIBUTES = {attribute.key for attribute in guard.ATTRIBUTES} | {guard.SPAN_NAME, guard.LOOP_SPAN_NAME}
OF_THE_CONVENTIONS = {
    "gen_ai.tool.name", "gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.operation.name",
}  # fmt: skip
BUILT_IN = {"__interval", "__range", "__rate_interval", "__url_time_range", "__value", "__data"}
TEXTS = sorted(
    path for path in DASHBOARDS.rglob("*") if path.suffix in (".json", ".yaml", ".yml", ".md") and path.is_file()
)
PROMQL = [(name, title, target) for name in BOARDS for title, target in targets(name, "prometheus")]


def test_what_is_committed_is_what_the_generator_makes() -> None:
    stale = [name for name, content in files().items() if (DASHBOARDS / name).read_text(encoding="utf-8") != content]
    assert stale == [], "run `make dashboards`"


# --- panels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOARDS)
def test_ids_are_unique_and_no_panel_covers_another(name: str) -> None:
    everything = list(unfolded(board(name)["panels"]))
    assert len({one["id"] for one in everything}) == len(everything)
    assert len(panels(name)) == sum(one["type"] != "row" for one in everything), "titles are unique"
    places = [one["gridPos"] for one in everything]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_panels_say_what_healthy_looks_like_and_have_a_unit() -> None:
    every = [(title, panel) for name in BOARDS for title, panel in panels(name).items()]
    assert [title for title, one in every if "Healthy: " not in one["description"] and one["type"] != "traces"] == []
    assert [title for title, one in every if not one["fieldConfig"]["defaults"]["unit"]] == []


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_used_is_defined_and_every_one_defined_is_used(name: str) -> None:
    whole = board(name)
    defined = {one["name"] for one in whole["templating"]["list"]}
    used: set[str] = set()
    for text in strings(whole["panels"]):
        used |= set(re.findall(r"\$\{?(\w+)", text))
    assert used - BUILT_IN <= defined
    assert defined <= used | {"prometheus"}


@pytest.mark.parametrize("name", BOARDS)
def test_data_sources_are_variables_that_choose_the_provisioned_ones(name: str) -> None:
    whole = board(name)
    chosen = {
        one["name"]: one["current"]["value"] for one in whole["templating"]["list"] if one["type"] == "datasource"
    }
    referred = {f"${{{kind}}}": kind for kind in chosen}
    for panel in panels(name).values():
        for one in (panel, *panel["targets"]):
            assert referred[one["datasource"]["uid"]] == one["datasource"]["type"]
    assert all(kind == uid for kind, uid in chosen.items())


def test_links_between_dashboards_lead_somewhere() -> None:
    uids = {board(name)["uid"]: {one["name"] for one in board(name)["templating"]["list"]} for name in BOARDS}
    found = [text for name in BOARDS for text in strings(board(name)["panels"]) if text.startswith("/d/")]
    assert len(found) >= 2
    for link in found:
        uid, _, parameters = link.removeprefix("/d/").partition("?")
        assert set(re.findall(r"var-(\w+)=", parameters)) <= uids[uid]


def test_links_encode_what_comes_from_data() -> None:
    links = [text for name in BOARDS for text in strings(board(name)["panels"]) if text.startswith("/d/")]
    trace_ids = {"${__data.fields.traceIdHidden}", "${__url_time_range}"}
    for link in links:
        assert all(one.endswith(":percentencode}") for one in set(re.findall(r"\$\{[^}]*\}", link)) - trace_ids)


@pytest.mark.parametrize("title, target", [found for name in BOARDS for found in targets(name, "tempo")])
def test_a_tempo_as_it_comes_takes_the_queries(title: str, target: dict[str, Any]) -> None:
    assert target["spss"] <= 100  # its max_spans_per_span_set
    outside = re.sub(r"`[^`]*`", "", target["query"])  # in quotes, values would need escapes
    assert "$" not in outside or target["query"] == "$trace"


def strings(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (dict, list)):
        for one in content.values() if isinstance(content, dict) else content:
            yield from strings(one)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(DASHBOARDS)))
def test_every_metric_and_attribute_named_anywhere_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\w+:(trajectory_guard|otelcol)_\w+:\w+", "", text)  # recording rules: tested with the alerts
    text = text.replace("trajectory_guard_collector", "")
    metrics = set(re.findall(r"\b(?:otelcol|trajectory_guard)_\w+\b", text))
    assert {one for one in metrics if not known(one)} == set()
    assert set(re.findall(r"\btrajectory_guard\.[a-z_.]*[a-z]\b", text)) <= ATTRIBUTES
    assert set(re.findall(r"\bTYPE_[IV]+_\w+\b", text)) <= set(LOOP_TYPES)


def known(name: str) -> bool:
    """A metric as it is exposed, or a label."""
    return name in NAMES or name in LABELS


def test_every_metric_is_shown_somewhere() -> None:
    shown = " ".join(target["expr"] for _, _, target in PROMQL)
    assert {
        name for name, metric in {**EXPOSED, **IN_PROCESS}.items() if not re.search(rf"\b{metric.name}", shown)
    } == set()


def test_labels_are_those_of_the_metrics() -> None:
    for name, title, target in PROMQL:
        assert labels_that_do_not_exist(target) == set(), f"{name}: {title}: {target['expr']}"


def labels_that_do_not_exist(target: Mapping[str, Any]) -> set[str]:
    """Labels of a query and its legend that none of its metrics has."""
    expression = target["expr"]
    mentioned = [
        NAMES[one] for one in re.findall(r"\b(?:otelcol|trajectory_guard)_\w+(?=[{\[ )]|$)", expression) if one in NAMES
    ]
    assert mentioned
    of_all = {label for metric in mentioned for label in metric.labels} | OF_EVERY_SERIES | OWN_LABELS
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    used = {label for labels in grouped for label in re.split(r", ?", labels)}
    missing = (used | set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))) - of_all
    for metric, matchers in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
        missing |= set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers)) - {*NAMES[metric].labels, *OF_EVERY_SERIES}
    return missing


def test_variables_ask_for_labels_that_metrics_have() -> None:
    asked = [
        one["query"]["query"] for name in BOARDS for one in board(name)["templating"]["list"] if one["type"] == "query"
    ]
    assert len(asked) >= 5
    for text in asked:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", text)
        assert found is not None
        assert found[2] in {*NAMES[found[1]].labels, "instance", "job"}


def test_traceql_asks_for_attributes_that_spans_have() -> None:
    asked: set[str] = set()
    for name in BOARDS:
        for _, target in targets(name, "tempo"):
            asked |= set(re.findall(r"\bspan\.([a-z_.]+[a-z])", target["query"]))
            assert set(re.findall(r'(?<![.\w])name = "([^"]*)"', target["query"])) <= {guard.SPAN_NAME}
    assert asked <= {attribute.key for attribute in guard.ATTRIBUTES} | OF_THE_CONVENTIONS
    assert {guard.LOOP_SCORE, guard.TRAJECTORY_ID, guard.INTERVENTION, guard.REASON} <= asked


def test_the_langfuse_recipes_name_tags_and_scores_the_guard_writes() -> None:
    text = (DASHBOARDS / "langfuse/alerts.md").read_text(encoding="utf-8")
    assert {HEALTH, LOOP, guard.TAG} <= set(re.findall(r"`(\w+)`", text))


def test_a_name_that_does_not_exist_would_be_found() -> None:
    assert not known("trajectory_guard_step_total")
    assert known(LABEL_OVERFLOW.exposed)
    assert isinstance(NAMES["trajectory_guard_observe_duration_seconds_bucket"], Metric)
