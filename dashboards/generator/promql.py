"""PromQL that says of rare events what happened: how often, exactly, from the first one on."""

from __future__ import annotations

from typing import Final, NamedTuple

UPTIME: Final = "otelcol_process_uptime_seconds_total"


class Window(NamedTuple):
    """A range of time: as PromQL's duration, and as a number of seconds."""

    range: str
    seconds: str


STEP: Final = Window("$__interval", "$__interval_ms / 1000")
"""From one point of a graph to the next: bars add up to the total."""
SHOWN: Final = Window("$__range", "$__range_s")
"""All that the dashboard shows."""


def minutes(count: int) -> Window:
    """A window of whole minutes, in hours where that is shorter."""
    return Window(f"{count // 60}h" if count % 60 == 0 else f"{count}m", str(count * 60))


def counted(metric: str, window: Window, matchers: str = "") -> str:
    """By how much a counter grew in a window, for each of its series.

    ``increase()`` alone does not do for rare events. It misses the first one of each series, since a counter with labels is
    not there before, and it extrapolates: one loop becomes 1.07 loops. So, for each series:

    - there at both ends: the difference,
    - not there at the beginning, though its collector was scraped or not yet started: all it has counted,
    - anything else (a restart in between, a scrape that failed, a collector that is gone): ``increase()``.

    Parameters:
        metric: name of the counter.
        window: how far to look back.
        matchers: label matchers, without braces.
    """
    series = f"{metric}{{{matchers}}}" if matchers else metric
    before = f"offset {window.range}"
    return (
        "(\n"
        f"  {series} - {series} {before} >= 0\n"
        "  or\n"
        f"  {series} unless {series} {before}\n"
        f"    and on (job, instance) ({UPTIME} {before} or {UPTIME} < {window.seconds})\n"
        ")\n"
        f"and resets({series}[{window.range}]) == 0\n"
        "or\n"
        f"increase({series}[{window.range}])"
    )


def summed(expression: str, *by: str) -> str:
    """The sum of an expression, by labels or over all."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (\n{indented(expression)}\n)"


def indented(expression: str) -> str:
    """An expression two columns to the right."""
    return "\n".join(f"  {line}" for line in expression.split("\n"))


def divided(above: str, below: str) -> str:
    """One sum by another, absent where there is nothing to divide by."""
    return f"{above}\n/\n(\n{indented(below)}\n  > 0\n)"


def or_zero(expression: str, like: str) -> str:
    """An expression, and 0 for the series only another one has: nobody recovered is a rate of 0, not an unknown one."""
    return f"(\n{indented(expression)}\n  or\n{indented(like)} * 0\n)"
