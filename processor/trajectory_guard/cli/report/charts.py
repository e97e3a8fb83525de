"""The chart of a trajectory: steps by agent lane, loops bracketed, the score below. Drawn by matplotlib as SVG.

Colours are CSS variables of the page, so that one drawing serves light and dark; text uses the page's fonts.
Needs matplotlib: the modules that import this one do so late.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from trajectory_guard.cli.report.data import Section
from trajectory_guard.cli.report.text import visible
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text import clip

WIDE_PX: Final = 1080
NARROW_PX: Final = 360
MAX_LANES: Final = 8
"""Agents with a lane of their own; further ones share the last."""
MAX_TOOLS: Final = 6
"""Tools with a row of their own in each lane, fewer if there are many lanes; further ones share the last."""
MAX_ROWS: Final = 16
"""Rows of all lanes together, unless there are two for each lane."""

# CSS variable → the colour given to matplotlib, chosen to be found in its output
_INKS: Final[Mapping[str, str]] = {
    name: f"#{0x0A0B00 + number:06x}"
    for number, name in enumerate(("ink", "muted", "line", "panel", "step", "empty", "error", "loop", "nudge", "stop"))
}
_MARKERS: Final[Mapping[str, tuple[str, str, bool]]] = {  # outcome → marker, colour, filled
    "success": ("o", "step", True),
    "empty": ("o", "empty", False),
    "error": ("X", "error", True),
    "denied": ("D", "error", False),
    "interrupted": ("^", "muted", False),
}
_HEAD_PX, _ROW_PX, _SCORE_PX, _AXIS_PX, _GAP_PX, _BRACKET_PX = 21, 27, 130, 34, 22, 18
_LEFT_PX, _RIGHT_PX = 30, 10
_SHADE: Final[Mapping[str, Any]] = {"facecolor": _INKS["loop"], "alpha": 0.13, "linewidth": 0, "zorder": 0}
_SVG_NS: Final = "{http://www.w3.org/2000/svg}"
_XLINK_HREF: Final = "{http://www.w3.org/1999/xlink}href"
_FONT: Final = re.compile(r"font-family: [^;]*(; )?|(?<=px) '[^;]*")  # newer and older matplotlib
_DECIMALS: Final = re.compile(r"(\.\d\d)\d+")


class Place(NamedTuple):
    """Where a step is drawn: its row's height in pixels from the top of the lanes."""

    position: int
    y: float
    outcome: str
    fired: bool


class Layout(NamedTuple):
    """Rows of the lanes: agent headings and tool names with their heights, and the place of each step."""

    heads: list[tuple[float, str]]
    names: list[tuple[float, str]]
    places: list[Place]
    height: float

    @property
    def fired(self) -> list[Place]:
        """Places of the steps with a finding."""
        return [place for place in self.places if place.fired]


def draw(section: Section, config: GuardConfig, anchor: str) -> tuple[str, str]:
    """The chart as inline SVG, once for wide and once for narrow screens.

    Parameters:
        anchor: prefix of the ids of the step table's rows, which the steps in the chart link to.
    """
    return (
        _draw(section, config, anchor, WIDE_PX, "w"),
        _draw(section, config, anchor, NARROW_PX, "n"),
    )


def _draw(section: Section, config: GuardConfig, anchor: str, width: int, suffix: str) -> str:
    layout = lay_out(section, _BRACKET_PX + 6 if section.loops else 6)
    height = layout.height + _GAP_PX + _SCORE_PX + _AXIS_PX
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that matplotlib's font lacks: the browser has others
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": f"{anchor}{suffix}", "font.size": 11})
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        figure.patch.set_visible(False)
        lanes = _axes(figure, width, height, 0, layout.height)
        score = _axes(figure, width, height, layout.height + _GAP_PX, _SCORE_PX)
        _set_ranges(lanes, score, section, layout, config, width)
        _draw_loops(lanes, score, section, width)
        _draw_lanes(lanes, layout, width, anchor)
        _draw_score(score, section, config)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(svg.getvalue(), f"{anchor}{suffix}", _titles(section))


def _axes(figure: Figure, width: float, height: float, top: float, tall: float) -> Axes:
    return figure.add_axes(
        (_LEFT_PX / width, 1 - (top + tall) / height, (width - _LEFT_PX - _RIGHT_PX) / width, tall / height)
    )


def _set_ranges(
    lanes: Axes, score: Axes, section: Section, layout: Layout, config: GuardConfig, width: int
) -> None:  # fmt: skip
    window = section.window
    span = (window.start + 0.4, window.stop + 0.6)
    lanes.set_xlim(*span)
    lanes.set_ylim(layout.height, 0)
    lanes.set_axis_off()
    score.set_xlim(*span)
    score.set_ylim(0, config.max_score * 1.06)
    score.set_facecolor("none")
    for side in ("top", "right", "left"):
        score.spines[side].set_visible(False)
    score.spines["bottom"].set_color(_INKS["line"])
    score.tick_params(colors=_INKS["muted"], labelsize=11, length=3)
    score.xaxis.set_major_locator(MaxNLocator(nbins=5 if width < 500 else 12, integer=True, min_n_ticks=1))
    score.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else ""))
    score.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=config.max_score >= 3))
    score.set_xlabel("step", color=_INKS["muted"], fontsize=11)


# --- lanes ---------------------------------------------------------------------------------------------------


def lay_out(section: Section, top: float) -> Layout:
    """Give every agent a lane and every tool in it a row; those of the looping steps come first if room is short."""
    fired = {found.step for loop in section.loops for found in loop.findings}
    shown = [(position, section.outcome.steps[position]) for position in section.window]
    lanes = _limited([(step.agent_id or "", at in fired) for at, step in shown], MAX_LANES)
    heads, names, places, y = list[tuple[float, str]](), list[tuple[float, str]](), list[Place](), top
    for lane, agents in lanes.items():
        mine = [(at, step) for at, step in shown if (step.agent_id or "") in agents]
        heads.append((y, _agent_label(lane, agents)))
        y += _HEAD_PX
        limit = max(2, min(MAX_TOOLS, MAX_ROWS // len(lanes)))
        for row, tools in _limited([(step.tool_name, at in fired) for at, step in mine], limit).items():
            names.append((y, row if len(tools) == 1 else f"{len(tools)} other tools"))
            places += [Place(at, y + 18, one.outcome_type, at in fired) for at, one in mine if one.tool_name in tools]
            y += _ROW_PX
        y += 4
    return Layout(heads, names, places, y)


def _limited(values: Sequence[tuple[str, bool]], limit: int) -> dict[str, set[str]]:
    """Distinct values in order of appearance, each with itself; beyond the limit the rest share one last place.

    Kept are those with the most marked appearances, then those with the most appearances.
    """
    number = Counter(value for value, _ in values)
    if len(number) <= limit:
        return {value: {value} for value in number}
    marked = Counter(value for value, mark in values if mark)
    kept = set(sorted(number, key=lambda value: (-marked[value], -number[value]))[: limit - 1])
    rest = [value for value in number if value not in kept]
    return {**{value: {value} for value in number if value in kept}, rest[0]: set(rest)}


def _agent_label(name: str, agents: set[str]) -> str:
    if len(agents) > 1:
        return f"{len(agents)} other agents"
    return name or "agent unknown"


def _draw_lanes(axes: Axes, layout: Layout, width: int, anchor: str) -> None:
    left, right = axes.get_xlim()
    size = max(3.6, min(9.0, 0.85 * (width - _LEFT_PX - _RIGHT_PX) / (right - left)))
    chars = width // 8
    for y, name in layout.heads:
        axes.plot((left, right), (y + 2, y + 2), color=_INKS["line"], linewidth=1)
        _write(axes, left, y + 6, clip(name, chars), color=_INKS["ink"], weight="bold", size=12)
    for y, name in layout.names:
        _write(axes, left, y, clip(name, chars), color=_INKS["muted"], size=10.5)
    axes.vlines(
        [place.position + 1 for place in layout.fired], [place.y - 7 for place in layout.fired],
        [place.y + 7 for place in layout.fired], color=_INKS["loop"], linewidth=max(2.2, size * 0.6), alpha=0.55,
    )  # fmt: skip
    for outcome in _MARKERS:
        _draw_steps(axes, [place for place in layout.places if place.outcome == outcome], outcome, size, anchor)


def _draw_steps(axes: Axes, places: Sequence[Place], outcome: str, size: float, anchor: str) -> None:
    if not places:
        return
    marker, ink, filled = _MARKERS[outcome]
    axes.scatter(
        [place.position + 1 for place in places], [place.y for place in places], marker=marker, s=size**2, zorder=5,
        linewidths=0 if filled else 1.3, facecolors=_INKS[ink if filled else "panel"], edgecolors=_INKS[ink],
        clip_on=False, urls=[f"#{anchor}{place.position + 1}" for place in places],
    )  # fmt: skip


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    axes.text(x, y, visible(text), va="top", parse_math=False, clip_on=False, zorder=6, **style)


# --- loops ---------------------------------------------------------------------------------------------------


def _draw_loops(lanes: Axes, score: Axes, section: Section, width: int) -> None:
    """Shade every loop through both parts of the chart and put a bracket with its number on top."""
    left, right = lanes.get_xlim()
    per_step = (width - _LEFT_PX - _RIGHT_PX) / (right - left)
    free, y = left - 1, 16.0
    for loop in section.loops:
        start, end = max(left, loop.first + 0.55), min(right, loop.last + 1.45)
        if start >= end:
            continue
        lanes.axvspan(start, end, ymax=1 - y / lanes.get_ylim()[0], **_SHADE)
        score.axvspan(start, end, **_SHADE)
        lanes.plot((start, start, end, end), (y + 7, y, y, y + 7), color=_INKS["loop"], linewidth=2.4, zorder=4)
        label = loop.name
        half = len(label) * 3.4 / per_step
        centre = min(max((start + end) / 2, left + half), right - half)
        if centre - half > free:
            free = centre + half
            _write(lanes, centre, y - 15, label, color=_INKS["loop"], weight="bold", size=12, ha="center")


# --- score ---------------------------------------------------------------------------------------------------


def _draw_score(axes: Axes, section: Section, config: GuardConfig) -> None:
    left, right = axes.get_xlim()
    verdicts = [(at, verdict) for at in section.window if (verdict := section.outcome.verdicts[at]) is not None]
    x, y = [at + 1 for at, _ in verdicts], [verdict.score for _, verdict in verdicts]
    axes.fill_between(x, y, color=_INKS["loop"], alpha=0.18, linewidth=0)
    axes.plot(x, y, color=_INKS["loop"], linewidth=1.8, solid_joinstyle="round", zorder=4)
    for name, at in (("nudge", config.nudge_threshold), ("stop", config.stop_threshold)):
        axes.plot((left, right), (at, at), color=_INKS[name], linewidth=1.2, linestyle=(0, (5, 3)), zorder=3)
        axes.text(left, at, f" {name} at {at:g}", color=_INKS[name], va="bottom", size=10.5, zorder=6)
    for level, marker, size in ((Level.NUDGE, "^", 110), (Level.STOP, "s", 75)):
        due = list(_due(section, level))
        if due:
            axes.scatter(
                [step for step, _ in due], [score for _, score in due], marker=marker, s=size, zorder=7,
                facecolors=_INKS[level.lower()], edgecolors=_INKS["panel"], linewidths=1.2, clip_on=False,
            )  # fmt: skip


def _due(section: Section, level: Level) -> Iterator[tuple[int, float]]:
    """Step number and score where a level became due."""
    for loop in section.loops:
        for at in loop.stops if level == Level.STOP else [at for at, _ in loop.nudges]:
            verdict = section.outcome.verdicts[at]
            if verdict is not None and at in section.window:
                yield at + 1, verdict.score


# --- from matplotlib's file to a part of the page ------------------------------------------------------------


def _titles(section: Section) -> dict[str, str]:
    return {str(at + 1): _title(at, section.outcome.steps[at]) for at in section.window}


def _title(at: int, step: StepRecord) -> str:
    return visible(f"Step {at + 1}: {clip(step.tool_name, 60)}, {step.outcome_type}")


def _inline(svg: str, prefix: str, titles: Mapping[str, str]) -> str:
    """Strip the file's frame, make ids unique in the page, and hand colours and fonts over to its style sheet."""
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG_NS}metadata", f"{_SVG_NS}style"):
                parent.remove(child)
    used = _references(root)
    for element in root.iter():
        element.tag, element.tail = element.tag.removeprefix(_SVG_NS), None
        element.text = element.text if element.tag in ("text", "tspan") else None
        _adapt(element, prefix, used, titles)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "aria-hidden": "true", "focusable": "false"})
    return ET.tostring(root, encoding="unicode")


def _references(root: ET.Element) -> set[str]:
    """Ids that something in the drawing refers to; the others are dropped."""
    found = set()
    for element in root.iter():
        href = element.get(_XLINK_HREF, "")
        if element.tag == f"{_SVG_NS}use" and href.startswith("#"):
            found.add(href[1:])
        for value in element.attrib.values():
            found.update(re.findall(r"url\(#([\w-]+)\)", value))
    return found


def _adapt(element: ET.Element, prefix: str, used: set[str], titles: Mapping[str, str]) -> None:
    identifier = element.attrib.pop("id", None)
    if identifier in used:
        element.set("id", f"{prefix}-{identifier}")
    target = element.attrib.pop(_XLINK_HREF, None)
    if target is not None and element.tag == "use":
        element.set("href", f"#{prefix}-{target[1:]}")
    elif target is not None and element.tag == "a":
        element.attrib.clear()
        element.attrib.update({"href": target, "tabindex": "-1"})
        title = ET.SubElement(element, "title")
        title.text = titles.get(target[len(target.rstrip("0123456789")) :], "")
    for name, value in element.attrib.items():
        if name in ("d", "x", "y"):
            element.set(name, " ".join(_DECIMALS.sub(r"\1", value).split()))
        element.set(name, element.attrib[name].replace("url(#", f"url(#{prefix}-"))
    if "style" in element.attrib:
        element.set("style", _themed(element.attrib["style"]))


def _themed(style: str) -> str:
    for name, colour in _INKS.items():
        style = style.replace(colour, f"var(--{name})")
    return _FONT.sub(lambda found: "" if found[0].startswith("f") else " var(--font)", style)
