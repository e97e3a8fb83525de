"""The alerts as files: rules for Prometheus, and the same as Grafana-managed rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dashboards.generator.alerts import Alert, alerts
from dashboards.generator.panels import Json, unfolded
from dashboards.generator.promql import indented
from dashboards.generator.recordings import USUAL, Windows, recordings

FOLDER: Final = "Trajectory Guard"
PROMETHEUS_UID: Final = "prometheus"


def prometheus_rules(windows: Windows = USUAL, *, interval: str = "1m", hold: str | None = None) -> Json:
    """The content of ``rules.yml``.

    Parameters:
        windows: how far rules look back.
        interval: time between evaluations.
        hold: instead of each alert's own ``for``.
    """
    return {
        "groups": [
            {
                "name": "trajectory-guard-recordings",
                "interval": interval,
                "rules": [{"record": one.name, "expr": one.expression} for one in recordings(windows)],
            },
            *(
                {
                    "name": f"trajectory-guard-{concerns}",
                    "interval": interval,
                    "rules": [_rule(one, hold) for one in of],
                }
                for concerns, of in _by_concern().items()
            ),
        ]
    }


def _by_concern() -> Mapping[str, list[Alert]]:
    groups: dict[str, list[Alert]] = {}
    for one in alerts():
        groups.setdefault(f"{one.concerns}s", []).append(one)
    return groups


def _rule(alert: Alert, hold: str | None) -> Json:
    return {
        "alert": alert.name,
        "expr": f"{_grouped(alert.expression)} > {alert.above:g}",
        "for": hold or alert.hold,
        "labels": _labels(alert),
        "annotations": _annotations(alert),
    }


def _grouped(expression: str) -> str:
    """In parentheses where the comparison would bind closer."""
    return f"(\n{indented(expression)}\n)" if "\n" in expression or " " in expression else expression


def _labels(alert: Alert) -> dict[str, str]:
    return {"severity": alert.severity, "concerns": alert.concerns}


def _annotations(alert: Alert) -> dict[str, str]:
    address = f"/d/{alert.dashboard}" + (f"?{alert.link}" if alert.link else "")
    return {
        "summary": alert.summary,
        "description": f"Where to look: Grafana, {address}, panel '{alert.panel}'. {alert.look}",
        "action": alert.action,
        "dashboard": address,
    }


# --- Grafana ---------------------------------------------------------------------------------------------------------


def grafana_rules(dashboards: Sequence[Json]) -> Json:
    """The same alerts for Grafana's own alerting, recording rules written out, so that Prometheus needs none.

    Parameters:
        dashboards: to find the panels alerts refer to.
    """
    panels = {(board["uid"], one["title"]): one["id"] for board in dashboards for one in unfolded(board["panels"])}
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1, "name": f"trajectory-guard-{concerns}", "folder": FOLDER, "interval": "1m",
                "rules": [_grafana_rule(one, panels[one.dashboard, one.panel]) for one in of],
            }
            for concerns, of in _by_concern().items()
        ],
    }  # fmt: skip


def _grafana_rule(alert: Alert, panel: int) -> Json:
    return {
        "uid": "tg-" + re.sub(r"(?<!^)(?=[A-Z])", "-", alert.name).lower(),
        "title": alert.name,
        "condition": "B",
        "data": [_query(written_out(alert.expression)), _threshold(alert.above)],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": alert.hold,
        "labels": _labels(alert),
        "annotations": {name: text.replace("$value", "$values.A.Value") for name, text in _annotations(alert).items()},
        "dashboardUid": alert.dashboard,
        "panelId": panel,
    }


def written_out(expression: str, windows: Windows = USUAL) -> str:
    """An expression with the names of recording rules replaced by their expressions."""
    for one in reversed(recordings(windows)):
        expression = expression.replace(one.name, f"(\n{indented(one.expression)}\n)")
    return expression


def _query(expression: str) -> Json:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": PROMETHEUS_UID,
        "model": {"refId": "A", "expr": expression, "instant": True, "range": False, "editorMode": "code"},
    }


def _threshold(above: float) -> Json:
    model: dict[str, Any] = {
        "refId": "B",
        "type": "threshold",
        "expression": "A",
        "datasource": {"type": "__expr__", "uid": "__expr__"},
        "conditions": [{"type": "query", "evaluator": {"type": "gt", "params": [above]}}],
    }
    return {"refId": "B", "relativeTimeRange": {"from": 0, "to": 0}, "datasourceUid": "__expr__", "model": model}
