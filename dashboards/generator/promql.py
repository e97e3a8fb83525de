"""PromQL that counts rare events exactly, from the first one on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

UPTIME: Final = "otelcol_process_uptime_seconds_total"
"""A series of every collector: its samples mark successful scrapes, and a drop marks a restart."""
YOUNG_S: Final = 120
"""Seconds: a collector younger than this that was never seen before is new, and not one Prometheus just learned of."""


class Window(NamedTuple):
    """How far to look back, and the distance of the points in between: durations, or Grafana's variables for them."""

    length: str
    step: str


STEP: Final = Window("$__interval", "$__interval")
"""From one point of a graph to the next, so that bars add up to the total."""
SHOWN: Final = Window("$__range", "$__interval")
"""The whole time range of a dashboard: the sum of its bars."""
HOUR: Final = Window("1h", "5m")
"""The hour before each point of a graph."""


def counted(metric: str, window: Window, matchers: str = "") -> str:
    """By how much a counter grew in a window, for each of its series: the sum over the steps of the window.

    ``increase()`` does not do for rare events. It misses the first one of each series, since a counter with labels is
    not there before; it extrapolates: one loop becomes 1.07 loops; and it sees a restart only where the counter fell,
    not where it climbed back to its old value before it was scraped. Steps see each of a collector's lives.

    Parameters:
        metric: name of the counter.
        window: the window to evaluate.
        matchers: label matchers, without braces.
    """
    series = f"{metric}{{{matchers}}}" if matchers else metric
    grown = _grown(series, window.step)
    if window.length == window.step:
        return grown
    # Prometheus 2 counts both ends of a window, Prometheus 3 only the later one: a millisecond on, both see the same.
    return f"sum_over_time((\n{indented(grown)}\n)[{window.length}:{window.step}] offset -1ms)"


def _grown(series: str, step: str) -> str:
    """By how much a counter grew since a step ago, given the known lifetime of its collector:

    - counted before in this life: the difference to then; after scrapes that failed, to the last one that worked,
    - not counted before, and the collector was seen before or is new: all it has counted,
    - without a collector (metrics of the span processor in process): the difference, or all if it fell.

    Series are matched with their collector as sets, so that no label of a target (a pod's name) can make it fail.
    """
    before, last = f"offset {step}", f"[1h] offset {step}"
    return (
        f"{series} - (\n"
        f"  (\n"
        f"    {series} {before}\n"
        f"    or\n"
        f"    last_over_time({series}{last}) unless on (job, instance) {UPTIME} {before}\n"
        f"  )\n"
        f"  unless on (job, instance) ({UPTIME} < {YOUNG_S} unless {UPTIME} >= last_over_time({UPTIME}{last}))\n"
        f") >= 0\n"
        "or\n"
        f"{series} + 0 and on (job, instance) ({UPTIME} < {YOUNG_S} or {UPTIME} and last_over_time({UPTIME}{last}))\n"
        "or\n"
        f"{series} + 0 and last_over_time({series}{last})"
    )


def summed(expression: str, *by: str) -> str:
    """The sum of an expression, by labels or over all."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (\n{indented(expression)}\n)"


def divided(above: str, below: str) -> str:
    """One sum by another, absent where there is nothing to divide by."""
    return f"{above}\n/\n(\n{indented(below)}\n  > 0\n)"


def share(above: str, below: str) -> str:
    """As ``divided``, and at most 1: the numerator may count events whose denominator falls before the window."""
    return f"clamp_max(\n{indented(divided(above, below))},\n  1\n)"


def or_zero(expression: str, like: str) -> str:
    """An expression, and 0 for series that only another one has: without recoveries the rate is 0, not unknown."""
    return f"(\n{indented(expression)}\n  or\n{indented(like)} * 0\n)"


def any_signal(expressions: Mapping[str, str]) -> str:
    """Joins expressions about one signal each, distinguished by the label ``signal``."""
    labelled = (
        f'label_replace(\n{indented(expression)},\n  "signal", "{signal}", "", ""\n)'
        for signal, expression in expressions.items()
    )
    return "\nor\n".join(labelled)


def indented(expression: str) -> str:
    """An expression two columns to the right."""
    return "\n".join(f"  {line}" for line in expression.split("\n"))
