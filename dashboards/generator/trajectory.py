"""The dashboard *Trajectory*: one conversation, from the spans that carry the guard's verdicts."""

from __future__ import annotations

from typing import Final

from dashboards.generator.panels import (
    ORANGE,
    RED,
    Json,
    by_name,
    dashboard,
    data_source,
    graph,
    panel,
    row,
    stat,
    table,
    text_box,
    traceql,
)

TRAJECTORY_UID: Final = "trajectory-guard-trajectory"
SCORE: Final = "trajectory_guard.loop.score"
VERDICT_COLUMNS: Final = tuple(
    f"span.{name}"
    for name in (
        "trajectory_guard.trajectory.id", "trajectory_guard.intervention", SCORE, "trajectory_guard.health",
        "trajectory_guard.episode", "trajectory_guard.step.index", "trajectory_guard.evidence", "gen_ai.tool.name",
        "trajectory_guard.reason",
    )
)  # fmt: skip
"""Without the loop types: Grafana's table leaves lists out, and the reason names them."""

# In backticks nothing is an escape: ids may have quotes and backslashes.
_TAGGED: Final = "{ span.trajectory_guard.trajectory.id = `$trajectory` }"
_MEMBERS: Final = (
    "{ span.trajectory_guard.trajectory.id = `$trajectory` || span.gen_ai.conversation.id = `$trajectory` "
    "|| trace:id = `$trajectory` }"
)
_TOOLS: Final = (
    '{ (span.gen_ai.operation.name = "execute_tool" || span.gen_ai.tool.name != nil) && name !~ "trajectory_guard.*" }'
)
_NUMBER: Final = {
    "id": "convertFieldType",
    "options": {"conversions": [{"targetField": SCORE, "destinationType": "number"}], "fields": {}},
}
_OPEN: Final = {
    "title": "Show the trace below",
    "url": f"/d/{TRAJECTORY_UID}?var-trajectory=${{trajectory:percentencode}}&var-trace=${{__value.raw:percentencode}}"
    "&${__url_time_range}",
}


def trajectory() -> Json:
    """The dashboard."""
    return dashboard(
        TRAJECTORY_UID,
        "Trajectory",
        "One conversation: its steps, its score, what the guard said and why.",
        [
            data_source("tempo"),
            text_box("trajectory", "Trajectory", "Conversation id, else thread or session id, else trace id"),
            text_box("trace", "Trace", "Trace to show at the bottom; a click on a trace id fills it in"),
        ],
        [*_summary(), _score(), row("What the guard said"), _verdicts(), row("All tool calls"), _steps(), row("Traces"),
         _traces(), _trace()],
    )  # fmt: skip


def _summary() -> list[Json]:
    own = '{ name = "trajectory_guard.intervention" && span.trajectory_guard.trajectory.id = `$trajectory` }'
    worst = stat(
        "Worst score", "The highest score of any step, 0 to 5: a nudge is due from 2, a stop from 3. Healthy: below 2.",
        traceql(f"{_TAGGED} | select(span.{SCORE})"), decimals=2, steps=[(2, ORANGE), (3, RED)],
        reduceOptions={"calcs": ["max"], "fields": f"/^{SCORE}$/", "values": False},
    )  # fmt: skip
    interventions = stat(
        "Nudges and stops", "How often the guard had to step in. Healthy: 0; 1 is one nudge.",
        traceql(own), decimals=0, steps=[(1, ORANGE), (2, RED)],
        reduceOptions={"calcs": ["count"], "fields": "/^Span ID$/", "values": False},
    )  # fmt: skip
    return [{**worst, "transformations": [_NUMBER]}, interventions]


def _score() -> Json:
    shown = graph(
        "Score", "The score after each step with a finding; steps without one halve it and are not shown. The lines "
        "are where a nudge and a stop are due. Healthy: no points above 2.",
        traceql(f"{_TAGGED} | select(span.{SCORE})"), width=16, height=4, maximum=5, steps=[(2, ORANGE), (3, RED)],
        overrides=[by_name("Duration", custom__hideFrom={"viz": True, "legend": True, "tooltip": True})],
        transformations=[_NUMBER],
    )  # fmt: skip
    shown["fieldConfig"]["defaults"]["custom"] |= {"showPoints": "always", "pointSize": 8}
    return shown


def _verdicts() -> Json:
    return table(
        "Verdicts", "Spans the guard has tagged, and its own: level, score, and the reason in words. A click on a "
        "span id opens the trace there. Healthy: empty.",
        traceql(f"{_TAGGED} | select({', '.join(VERDICT_COLUMNS)})"),
    )  # fmt: skip


def _steps() -> Json:
    columns = "span.gen_ai.tool.name, span.gen_ai.agent.name, span.trajectory_guard.intervention, status"
    return table(
        "Steps", "Tool calls of all traces in which this conversation was seen. Healthy: different tools, or the same "
        "with different answers.",
        traceql(f"({_MEMBERS} && {_TOOLS}) | {_TOOLS} | select({columns})"),  # && gives the spans of both sides
    )  # fmt: skip


def _traces() -> Json:
    return table(
        "Traces", "The traces of this conversation; a click on a trace id shows it below. Healthy: one for each turn.",
        traceql(_MEMBERS, table="traces"), overrides=[by_name("Trace ID", links=[_OPEN])], height=6,
    )  # fmt: skip


def _trace() -> Json:
    return panel(
        "traces", "Trace", "The trace picked above. Spans named trajectory_guard.* are the guard's own, right after "
        "the step they are about.", [traceql("$trace", table="traces")], width=24, height=14,
    )  # fmt: skip
