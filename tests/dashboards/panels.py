"""The committed dashboards, as tests look at them: panels, queries with variables filled in, names used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from dashboards.generator.panels import unfolded
from dashboards.generator.promql import HOUR
from tests.dashboards.programs import DASHBOARDS, Prometheus, Sample

BOARDS = ("fleet", "trajectory", "collector", "spending")
EVERYTHING = {"service": ".*", "agent": ".*", "loop_type": ".*", "instance": ".*", "exporter": ".*", "job": ".*",
              "worker": ".*"}  # fmt: skip
TIMES = {"__rate_interval": "1m", "__interval": "5m", "__range": "5m"}
FINE = "1s"
"""Steps of totals: the runs of these tests are short."""
Json = Mapping[str, Any]


@cache
def board(name: str) -> Json:
    loaded: Json = json.loads((DASHBOARDS / f"grafana/dashboards/{name}.json").read_text(encoding="utf-8"))
    return loaded


def panels(name: str) -> dict[str, Json]:
    """Panels by title, headings left out."""
    return {one["title"]: one for one in unfolded(board(name)["panels"]) if one["type"] != "row"}


def targets(name: str, kind: str) -> Iterator[tuple[str, Json]]:
    """Title of the panel and query, for all queries to one type of data source."""
    for title, panel in panels(name).items():
        for target in panel["targets"]:
            if target["datasource"]["type"] == kind:
                yield title, target


def filled(text: str, **chosen: str) -> str:
    """A query as Grafana sends it, totals in finer steps."""
    steps = {"__interval": FINE} if "$__range" in text else {}
    values = {**EVERYTHING, **TIMES, **steps, **chosen}
    text = text.replace(f"[{HOUR.length}:{HOUR.step}]", f"[{HOUR.length}:{FINE}]").replace(
        f"offset {HOUR.step}", f"offset {FINE}"
    )
    return re.sub(r"\$(\w+)|\$\{(\w+):regex\}", lambda found: values[found[1] or found[2]], text)


def shown(server: Prometheus, target: Json, at: float, **chosen: str) -> dict[str, float]:
    """The values that a query of a panel shows at a time, by legend."""
    return {_legend(target, sample): sample.value for sample in server.query(filled(target["expr"], **chosen), at)}


def _legend(target: Json, sample: Sample) -> str:
    form = target["legendFormat"]
    if form == "__auto":
        return ""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: sample.labels.get(found[1], ""), form).strip()
