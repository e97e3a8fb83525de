"""``/debug/trajectories`` as one HTML page: no script, no external assets, everything escaped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from trajectory_guard.core.text import printable

PATH: Final = "/debug/trajectories"
REFRESH_S: Final = 5
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STYLE: Final = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
_LEVELS: Final = {"STOP": ("stop", "■"), "NUDGE": ("nudge", "▲"), "OBSERVE": ("observe", "●")}
_COLUMNS: Final = ("Trajectory", "Score", "Last verdict", "Steps", "Agents", "Why", "Seen")
_AGES: Final = ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h"))


class PageView(NamedTuple):
    """Contents of the page.

    Fields:
        rows: the trajectories shown, worst first.
        matching: number of trajectories that match the search.
        total: number of trajectories in memory.
        query: the search text.
        limit: maximum number of rows.
        max_score: the score that fills the bar.
        now: unix seconds.
        refreshes: whether the page reloads itself.
    """

    rows: Sequence[Mapping[str, Any]]
    matching: int
    total: int
    query: str
    limit: int
    max_score: float
    now: float
    refreshes: bool


def render(view: PageView) -> str:
    """The page as HTML text."""
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if view.refreshes else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{refresh}
<title>Trajectories · trajectory_guard</title>
<style>{_STYLE}</style>
</head>
<body>
{_header(view)}
<main>
{_table(view) if view.rows else _empty(view)}
</main>
<footer>Score 0 to {view.max_score:g}; the bar marks where the agent stands. The same as
<a href="{_link(view, format="json")}">JSON</a>. Updated {_clock(view.now)} UTC.</footer>
</body>
</html>
"""


def _header(view: PageView) -> str:
    toggle = "Pause" if view.refreshes else "Resume"
    link = _link(view, refresh="0") if view.refreshes else _link(view)
    hidden = "" if view.refreshes else '<input type="hidden" name="refresh" value="0">'
    return f"""<header>
<h1>Trajectories</h1>
<p class="count">{_count(view)}</p>
<form method="get" action="{PATH}" role="search">
<input type="search" name="q" value="{_text(view.query)}" placeholder="conversation, agent, trace…"
 aria-label="Search trajectories">
<input type="hidden" name="limit" value="{view.limit}">{hidden}
<button>Search</button>
<a class="button" href="{link}">{toggle}</a>
</form>
</header>"""


def _count(view: PageView) -> str:
    shown, matching, total = len(view.rows), f"{view.matching:,}", f"{view.total:,}"
    if view.query:
        return f"{matching} of {total} match" + (f", worst {shown:,} shown" if shown < view.matching else "")
    return f"worst {shown:,} of {total}" if shown < view.total else f"{total} in memory"


def _empty(view: PageView) -> str:
    if view.query:
        return f'<p class="empty">No trajectory matches “{_text(view.query)}”. <a href="{PATH}">Show all</a></p>'
    return '<p class="empty">No trajectory yet. It appears here with its first tool span.</p>'


def _table(view: PageView) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    body = "\n".join(_row(row, view) for row in view.rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _row(row: Mapping[str, Any], view: PageView) -> str:
    kind, sign = _LEVELS.get(str(row.get("level")), _LEVELS["OBSERVE"])
    score = _number(row.get("score"))
    share = 100 * min(max(score / view.max_score, 0.0), 1.0)
    name = _text(row.get("trajectory_id"))
    return f"""<tr class="{kind}">
<th scope="row" data-label="Trajectory"><span class="id">{name}</span>{_small(_where(row))}</th>
<td data-label="Score"><span class="score"><span class="bar"><i style="width:{share:.0f}%"></i></span>
<b>{score:.2f}</b></span>{_small(f"health {_number(row.get('health')):.0%}")}</td>
<td data-label="Last verdict"><span class="level">{sign} {kind}</span>{_small(_episodes(row))}</td>
<td data-label="Steps" class="number">{_number(row.get("steps")):,.0f}</td>
<td data-label="Agents">{_chips(row.get("agents"))}</td>
<td data-label="Why" class="why">{_chips(row.get("types"), "type")}<span>{_text(row.get("reason"))}</span></td>
<td data-label="Seen" class="number">{_age(view.now - _number(row.get("last_seen")))}</td>
</tr>"""


def _where(row: Mapping[str, Any]) -> str:
    trace = _text(row.get("trace_id"))
    known = trace and trace != _text(row.get("trajectory_id"))
    tenant, service = _text(row.get("tenant")), _text(row.get("service"))
    return " · ".join(filter(None, (tenant, service, _short_trace(trace) if known else "")))


def _short_trace(trace: str) -> str:
    return f'<abbr title="{trace}">trace {trace[:8]}…</abbr>'


def _episodes(row: Mapping[str, Any]) -> str:
    episode, nudges = _number(row.get("episode")), _number(row.get("nudges"))
    return f"episode {episode:.0f}, {nudges:.0f} nudge{'' if nudges == 1 else 's'}" if episode or nudges else ""


def _small(html: str) -> str:
    return f"<small>{html}</small>" if html else ""


def _chips(values: Iterable[Any] | None, kind: str = "") -> str:
    return "".join(f'<span class="chip {kind}">{_text(value)}</span>' for value in values or ())


def _age(seconds: float) -> str:
    for below, unit, name in _AGES:
        if seconds < below:
            return f"{max(seconds, 0) / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def _clock(now: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(now))


def _link(view: PageView, **further: str) -> str:
    return escape(f"{PATH}?{urlencode({'q': view.query, 'limit': view.limit, **further}, errors='replace')}")


def _text(value: Any) -> str:
    """Escape text of unknown origin: it must neither become markup nor reverse the direction of text."""
    return "" if value is None else escape(printable(str(value)))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
