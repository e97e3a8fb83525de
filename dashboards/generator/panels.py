"""Grafana's JSON model in plain dicts: panels, queries, variables, dashboards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

PROMETHEUS: Final = {"type": "prometheus", "uid": "${prometheus}"}
TEMPO: Final = {"type": "tempo", "uid": "${tempo}"}
SCHEMA_VERSION: Final = 42
WIDTH: Final = 24
TAG: Final = "trajectory-guard"
_MAX_TRACES: Final = 200
"""Traces in an answer of Tempo."""
MAX_SPANS: Final = 100
"""Spans of one trace in an answer: a Tempo refuses queries for more, unless its configuration is changed."""
MAX_BARS: Final = 1_000
"""Points that a total is the sum of; few enough for any range, many enough that the last one is not far from now."""
GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"


# --- queries ---------------------------------------------------------------------------------------------------------


def query(expression: str, legend: str = "", *, exemplars: bool = False) -> Json:
    """A Prometheus query over the time shown."""
    return {
        "datasource": PROMETHEUS,
        "expr": expression,
        "legendFormat": legend or "__auto",
        "range": True,
        "instant": False,
        "exemplar": exemplars,
        "editorMode": "code",
    }


def instant(expression: str, legend: str = "") -> Json:
    """A Prometheus query at the end of the time shown."""
    return {**query(expression, legend), "range": False, "instant": True, "format": "time_series"}


def traceql(text: str, *, table: str = "spans") -> Json:
    """A Tempo query; ``table`` is ``spans`` or ``traces``."""
    return {
        "datasource": TEMPO,
        "queryType": "traceql",
        "query": text,
        "tableType": table,
        "limit": _MAX_TRACES,
        "spss": MAX_SPANS,
        "filters": [],
    }


# --- panels ----------------------------------------------------------------------------------------------------------


def panel(
    kind: str, title: str, description: str, targets: Sequence[Json], *, width: int, height: int = 8,
    unit: str = "none", defaults: Json | None = None, options: Json | None = None, overrides: Sequence[Json] = (),
    **more: Any,
) -> Json:  # fmt: skip
    """A panel; ``dashboard`` places it. Descriptions name the healthy values."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": targets[0]["datasource"],
        "targets": [{**target, "refId": chr(ord("A") + at)} for at, target in enumerate(targets)],
        "gridPos": {"x": 0, "y": 0, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": unit, **(defaults or {})}, "overrides": list(overrides)},
        "options": options or {},
        **more,
    }


def stat(
    title: str, description: str, target: Json, *, unit: str = "none", steps: Sequence[tuple[float, str]] = (),
    base: str = GREEN, width: int = 4, decimals: int | None = None, no_value: str = "0", **options: Any,
) -> Json:  # fmt: skip
    """One number. ``steps`` are thresholds with the colour from there on; below, it is ``base``."""
    places = {"decimals": decimals} if decimals is not None else {}
    return panel(
        "stat", title, description, [target], width=width, height=4, unit=unit,
        defaults={
            "thresholds": thresholds(steps, base), "color": {"mode": "thresholds"}, "noValue": no_value, "min": 0,
            **places,
        },
        options={
            "colorMode": "value", "graphMode": "none", "textMode": "value", "justifyMode": "auto",
            "orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            **options,
        },
        interval="1m", maxDataPoints=MAX_BARS,
    )  # fmt: skip


def thresholds(steps: Sequence[tuple[float, str]], base: str = GREEN) -> Json:
    """Absolute thresholds."""
    return {
        "mode": "absolute",
        "steps": [{"color": base, "value": None}, *({"color": color, "value": value} for value, color in steps)],
    }


def graph(
    title: str, description: str, *targets: Json, unit: str = "none", width: int = 8, height: int = 8,
    bars: bool = False, stacked: bool = False, overrides: Sequence[Json] = (), maximum: float | None = None,
    steps: Sequence[tuple[float, str]] = (), **more: Any,
) -> Json:  # fmt: skip
    """Values over time. ``bars`` are for events: each bar counts the events since the previous bar."""
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1 if bars else 2,
        "fillOpacity": 80 if bars else 15 if not stacked else 40,
        "showPoints": "never",
        "lineInterpolation": "linear",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
    }
    limits: Json = {"min": 0} | ({"max": maximum} if maximum is not None else {})
    limits |= {"decimals": 0} if bars and unit == "none" else {}
    return panel(
        "timeseries", title, description, targets, width=width, height=height, unit=unit, overrides=overrides,
        defaults={"custom": custom, "color": {"mode": "palette-classic"}, "thresholds": thresholds(steps), **limits},
        options={
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        interval="1m" if bars else None, **more,
    )  # fmt: skip


def ranking(title: str, description: str, target: Json, **more: Any) -> Json:
    """Bars, the longest first."""
    return panel(
        "bargauge", title, description, [target], width=8,
        defaults={"min": 0, "color": {"mode": "continuous-BlYlRd"}, "thresholds": thresholds(())},
        options={
            "displayMode": "basic", "orientation": "horizontal", "valueMode": "color", "showUnfilled": True,
            "minVizHeight": 10, "minVizWidth": 0, "namePlacement": "auto", "sizing": "auto",
            "text": {"titleSize": 13, "valueSize": 18},
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        interval="1m", maxDataPoints=MAX_BARS, **more,
    )  # fmt: skip


def table(
    title: str, description: str, target: Json, *, overrides: Sequence[Json] = (), height: int = 9,
    transformations: Sequence[Json] = (),
) -> Json:  # fmt: skip
    """Rows of a query result."""
    return panel(
        "table", title, description, [target], width=WIDTH, height=height, overrides=overrides,
        defaults={"custom": {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}, "inspect": True}},
        options={"showHeader": True, "cellHeight": "sm"}, transformations=list(transformations),
    )  # fmt: skip


def row(title: str) -> Json:
    """A heading."""
    return {
        "type": "row", "title": title, "collapsed": False, "panels": [],
        "gridPos": {"x": 0, "y": 0, "w": WIDTH, "h": 1},
    }  # fmt: skip


def folded(title: str, panels: Sequence[Json]) -> Json:
    """A heading whose panels are shown, and queried, only once somebody unfolds it; the last row of a dashboard."""
    return {**row(title), "collapsed": True, "panels": list(panels)}


def by_name(name: str, **properties: Any) -> Json:
    """An override for the field of this name; ``__`` in keys becomes a dot."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def coloured(colors: Mapping[str, str]) -> list[Json]:
    """Overrides that give series their colour by name."""
    return [by_name(name, color={"mode": "fixed", "fixedColor": color}) for name, color in colors.items()]


# --- dashboards ------------------------------------------------------------------------------------------------------


def data_source(name: str) -> Json:
    """The variable of a data source; the provisioned one unless the user picks another."""
    label = name.capitalize()
    return {
        "type": "datasource", "name": name, "label": label, "query": name, "refresh": 1, "hide": 0, "regex": "",
        "current": {"text": label, "value": name}, "options": [], "multi": False, "includeAll": False,
    }  # fmt: skip


def label_values(name: str, title: str, metric: str, label: str) -> Json:
    """A variable with the values a label has, All by default. All matches series without the label, too."""
    text = f"label_values({metric}, {label})"
    return {
        "type": "query", "name": name, "label": title, "datasource": PROMETHEUS,
        "query": {"qryType": 1, "query": text, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
        "options": [], "refresh": 2, "sort": 5, "hide": 0, "regex": "",
    }  # fmt: skip


def text_box(name: str, title: str, description: str) -> Json:
    """A variable that is typed in."""
    return {
        "type": "textbox", "name": name, "label": title, "description": description, "query": "", "hide": 0,
        "current": {"text": "", "value": ""}, "options": [{"text": "", "value": "", "selected": True}],
    }  # fmt: skip


def dashboard(uid: str, title: str, description: str, variables: Sequence[Json], panels: Sequence[Json]) -> Json:
    """A dashboard; panels are placed from left to right, line by line."""
    return {
        "uid": uid,
        "title": f"Trajectory Guard / {title}",
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards", "title": "Trajectory Guard", "tags": [TAG], "asDropdown": False,
                "icon": "external link", "includeVars": False, "keepTime": True, "targetBlank": False, "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": list(variables)},
        "panels": list(_placed(panels)),
    }  # fmt: skip


def unfolded(panels: Sequence[Json]) -> Iterator[Json]:
    """Rows and panels, those within a folded row after it."""
    for one in panels:
        yield one
        yield from one.get("panels", ())


def _placed(panels: Sequence[Json]) -> Iterator[Json]:
    x = y = line_height = 0
    fold: list[Json] | None = None
    for number, one in enumerate(unfolded(panels), start=1):
        width, height = one["gridPos"]["w"], one["gridPos"]["h"]
        if x + width > WIDTH:
            x, y, line_height = 0, y + line_height, 0
        present = {key: value for key, value in one.items() if value is not None}
        placed = {"id": number, **present, "gridPos": {"x": x, "y": y, "w": width, "h": height}}
        x, line_height = x + width, max(line_height, height)
        if fold is not None:
            fold.append(placed)
            continue
        if one.get("collapsed"):
            placed["panels"] = fold = []  # all that follow are within it
        yield placed
