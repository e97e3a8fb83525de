"""The report as one HTML page. Needs jinja2 and matplotlib, which the extra ``report`` brings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trajectory_guard import __version__
from trajectory_guard.cli.report.charts import draw
from trajectory_guard.cli.report.data import Section, Summary
from trajectory_guard.cli.report.text import count, duration, money, visible
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI
from trajectory_guard.core.policy import Level

MAX_OVERVIEW: Final = 1000
"""Lines of the overview table."""
_MIN_UNFOLDED: Final = 30
MEANING: Final = {
    TYPE_I: "stutter: the same call again",
    TYPE_II: "insanity: the same request in other words",
    TYPE_III: "phantom: other calls, nothing changes",
    TYPE_IV: "ping-pong: a cycle of agents or calls",
    TYPE_V: "error streak: one kind of error again and again",
    TYPE_VI: "monologue: the same message again",
}
EVIDENCE: Final = {
    "full": "arguments and results were visible",
    "no_result": "results were not visible",
    "name_only": "only tool names were visible",
    "fingerprint_only": "arguments or result were too long to be understood",
}
_SEPARATED: Final = re.compile(r"[^/_.:-]+[/_.:-]*|[/_.:-]+")
OUTCOMES: Final = {"success": "●", "empty": "○", "error": "✕", "denied": "◇", "interrupted": "△"}
LEVELS: Final = {Level.STOP: ("■", "stop"), Level.NUDGE: ("▲", "nudge"), Level.OBSERVE: ("●", "observe")}


class Charted(NamedTuple):
    """A section with its anchor in the page and its chart for wide and for narrow screens."""

    section: Section
    anchor: str
    wide: Markup
    narrow: Markup


class Page(NamedTuple):
    """Content of a page: an overview line per trajectory, the worst first, and sections for the first of them."""

    sources: Sequence[str]
    summaries: Sequence[Summary]
    sections: Sequence[Section]
    problems: Sequence[str]
    left_out: int = 0
    recorded: str = ""  # interventions that the spans report, in words


def render(page: Page, config: GuardConfig) -> str:
    """The page as HTML text: the same input gives the same bytes."""
    charted = [_charted(section, f"t{number}", config) for number, section in enumerate(page.sections, 1)]
    text = _environment().get_template("report.html.j2").render(
        page=page, charted=charted, config=config, version=__version__, overview=page.summaries[:MAX_OVERVIEW],
        unfolded=max(_MIN_UNFOLDED, len(charted)),
        totals=_totals(page.summaries), meaning=MEANING, evidence=EVIDENCE, outcomes=OUTCOMES, levels=LEVELS,
    )  # fmt: skip
    return text.lstrip()


def _charted(section: Section, anchor: str, config: GuardConfig) -> Charted:
    if not section.outcome.steps:
        return Charted(section, anchor, Markup(), Markup())
    wide, narrow = draw(section, config, f"{anchor}-s")
    return Charted(section, anchor, Markup(wide), Markup(narrow))


def _totals(summaries: Sequence[Summary]) -> dict[str, int]:
    return {
        "trajectories": len(summaries),
        "steps": sum(one.steps for one in summaries),
        "nudged": sum(one.first_nudge is not None for one in summaries),
        "stopped": sum(one.first_stop is not None for one in summaries),
        "looping": sum(one.spent.steps for one in summaries),
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trajectory_guard", "cli/report/templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_finalize,
    )  # fmt: skip
    environment.filters.update(count=count, duration=duration, money=money, breakable=breakable)
    return environment


def breakable(name: str) -> Markup:
    """An identifier that a browser may break after its separators, and need not break inside a word.

    >>> breakable("read_file<b>")
    Markup('read_<wbr>file&lt;b&gt;')
    """
    return Markup("<wbr>").join(_SEPARATED.findall(visible(name)))


def _finalize(value: Any) -> Any:
    """Everything that reaches the page passes here: text that is not markup loses its power to mislead."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)
