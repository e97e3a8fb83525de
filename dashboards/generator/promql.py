"""PromQL that says of rare events what happened: how often, exactly, from the first one on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SCRAPES: Final = "otelcol_process_uptime_seconds_total"
"""Any metric a collector always has: its samples are the scrapes that worked."""
STEP: Final = "$__interval"
"""From one point of a graph to the next, so that bars add up to the total."""
SHOWN: Final = "$__range"
"""All that a dashboard shows."""


def counted(metric: str, window: str, matchers: str = "") -> str:
    """By how much a counter grew in a window, for each of its series.

    ``increase()`` alone does not do for rare events. It misses the first one of each series, since a counter with
    labels is not there before, and it extrapolates: one loop becomes 1.07 loops. So, for each series:

    - there at both ends: the difference,
    - not there at first, while its collector was already scraped, then or before it appeared: all it has counted,
    - anything else (a restart in between, a scrape that failed, a collector that is gone): ``increase()``.

    Parameters:
        metric: name of the counter.
        window: a duration, or Grafana's variable for one.
        matchers: label matchers, without braces.
    """
    series = f"{metric}{{{matchers}}}" if matchers else metric
    before = f"{series} offset {window}"
    return (
        "(\n"
        f"  {series} - {before} >= 0\n"
        "  or\n"
        f"  {series} unless {before}\n"
        f"    and on (job, instance) {SCRAPES} offset {window}\n"
        "  or\n"
        f"  {series} unless {before}\n"
        f"    and count_over_time({series}[{window}])\n"
        f"      < on (job, instance) group_left () count_over_time({SCRAPES}[{window}])\n"
        ")\n"
        f"and resets({series}[{window}]) == 0\n"
        "or\n"
        f"increase({series}[{window}])"
    )


def summed(expression: str, *by: str) -> str:
    """The sum of an expression, by labels or over all."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (\n{indented(expression)}\n)"


def divided(above: str, below: str) -> str:
    """One sum by another, absent where there is nothing to divide by."""
    return f"{above}\n/\n(\n{indented(below)}\n  > 0\n)"


def or_zero(expression: str, like: str) -> str:
    """An expression, and 0 for the series only another one has: nobody recovered is a rate of 0, not an unknown one."""
    return f"(\n{indented(expression)}\n  or\n{indented(like)} * 0\n)"


def any_signal(expressions: Mapping[str, str]) -> str:
    """Expressions about one signal each as one, told apart by the label ``signal``."""
    labelled = (
        f'label_replace(\n{indented(expression)},\n  "signal", "{signal}", "", ""\n)'
        for signal, expression in expressions.items()
    )
    return "\nor\n".join(labelled)


def indented(expression: str) -> str:
    """An expression two columns to the right."""
    return "\n".join(f"  {line}" for line in expression.split("\n"))
