"""Content of a report on an evaluated trajectory, as plain values: loops, findings, rows, figures. No HTML here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.cli.report.loops import Loop, elapsed, find_loops, has_times, start_times
from trajectory_guard.cli.report.position import Position, position_of
from trajectory_guard.cli.report.text import clock, count, duration, moment, money
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text import clip

MAX_STEPS: Final = 400
"""Steps drawn and listed per trajectory."""
MAX_LOOPS: Final = 30
"""Loops described per trajectory."""
MAX_CELL_CHARS: Final = 180
"""Characters of arguments and of results in the step table."""
_LEAD_IN: Final = 20
_MIN_FOLD: Final = 8
_MANY_ROWS, _HEAD_ROWS, _TAIL_ROWS = 30, 15, 5
_MAX_CAPTIONED: Final = 6


class Row(NamedTuple):
    """A line of the step table. ``score`` is None if the step did not count."""

    position: int
    time: str
    agent: str | None
    tool: str
    args: str | None
    outcome: str
    result: str | None
    thought: str | None
    score: float | None
    level: Level | None
    types: list[str]
    loops: list[str]


class Segment(NamedTuple):
    """A stretch of the step table: around findings, or between them and folded."""

    rows: list[Row]
    folded: bool

    @property
    def in_loop(self) -> bool:
        """Whether some of the steps lie within a loop."""
        return any(row.loops for row in self.rows)

    @property
    def findings(self) -> int:
        """Number of steps with a finding."""
        return sum(bool(row.types) for row in self.rows)


class Summary(NamedTuple):
    """A line of the overview. Steps are positions from 0, None if it did not come to that."""

    id: str
    steps: int
    max_score: float
    level: Level | None
    types: list[str]
    first_nudge: int | None
    first_stop: int | None
    loops: int
    suspected: int
    spent: Spent
    position: Position

    def to_json(self) -> dict[str, Any]:
        """The line that ``report --json`` prints."""
        return {
            **self._asdict(),
            "level": str(self.level) if self.level is not None else None,
            "max_score": round(self.max_score, 6),
            "spent": self.spent._asdict(),
            "position": self.position._asdict(),
        }

    @property
    def badness(self) -> tuple[int, float, int]:
        """Sorts trajectories: the worst is the greatest."""
        return -1 if self.level is None else self.level.rank, self.max_score, self.spent.steps


class Section(NamedTuple):
    """Content of the report on one trajectory; ``window`` is the range of positions drawn and listed."""

    summary: Summary
    sentence: str
    facts: list[tuple[str, str]]
    loops: list[Loop]
    window: range
    outcome: Outcome
    segments: list[Segment]
    caption: str

    @property
    def timed(self) -> bool:
        """Whether the steps carry times."""
        return has_times(self.outcome.steps)

    @property
    def described(self) -> list[Loop]:
        """The loops to describe, in order: all, or the worst if there are very many."""
        worst = sorted(self.loops, key=lambda loop: loop.badness, reverse=True)[:MAX_LOOPS]
        return sorted(worst, key=lambda loop: loop.number)


def summarize(outcome: Outcome) -> Summary:
    """The overview line of a trajectory."""
    return _summary(outcome, find_loops(outcome))


def _summary(outcome: Outcome, loops: Sequence[Loop]) -> Summary:
    nudge, stop = outcome.first_nudge, outcome.first_stop
    level = Level.STOP if stop is not None else Level.NUDGE if nudge is not None else Level.OBSERVE if loops else None
    certain = [loop for loop in loops if loop.certain]
    return Summary(
        outcome.id, len(outcome.steps), outcome.max_score, level, outcome.types, nudge, stop,
        len(certain), len(loops) - len(certain), _total(certain), position_of(outcome.steps),
    )  # fmt: skip


def build_section(outcome: Outcome, config: GuardConfig, recorded: Counter[str] | None = None) -> Section:
    """Work out everything a report shows of one trajectory; ``recorded`` counts interventions in its spans by level."""
    loops = find_loops(outcome)
    window = _window(len(outcome.steps), loops)
    summary = _summary(outcome, loops)
    start = min(start_times(outcome.steps)) if has_times(outcome.steps) else None
    rows = [_row(outcome, position, start, loops, config) for position in window]
    sentence, caption = _sentence(summary, loops, config), _caption(outcome, loops, window)
    facts = _facts(outcome, summary)
    if recorded:
        facts.append(("Raised while it ran", interventions(recorded)))
    return Section(summary, sentence, facts, loops, window, outcome, list(_segments(rows, loops)), caption)


def interventions(recorded: Counter[str]) -> str:
    """Interventions by level, in words.

    >>> interventions(Counter(NUDGE=2, STOP=1))
    '2 nudges, 1 stop'
    """
    return ", ".join(count(number, level.lower()) for level, number in sorted(recorded.items()))


# --- figures and words ---------------------------------------------------------------------------------------


def _total(loops: Sequence[Loop]) -> Spent:
    spents = [loop.spent for loop in loops]
    return Spent(
        sum(spent.steps for spent in spents),
        sum(spent.seconds for spent in spents),
        sum(spent.tokens for spent in spents),
        sum(spent.cost_usd for spent in spents),
    )


def _window(steps: int, loops: Sequence[Loop]) -> range:
    """The positions to show: all, or a stretch around the worst loop."""
    if steps <= MAX_STEPS:
        return range(steps)
    worst = max(loops, key=lambda loop: loop.badness, default=None)
    start = max(0, min(steps - MAX_STEPS, worst.first - _LEAD_IN if worst else 0))
    return range(start, start + MAX_STEPS)


def _sentence(summary: Summary, loops: Sequence[Loop], config: GuardConfig) -> str:
    if not summary.steps:
        return "No steps were found in this trajectory."
    if not loops:
        return f"No sign of a loop in {count(summary.steps, 'step')}."
    if summary.first_nudge is None:
        return (
            f"No intervention was due: {count(sum(len(loop.findings) for loop in loops), 'finding')}, but the score "
            f"stayed at {summary.max_score:.1f}, below the nudge threshold of {config.nudge_threshold:.1f}."
        )
    stuck = next(loop for loop in loops if loop.first <= summary.first_nudge <= loop.last)
    due = f"a nudge was due at step {summary.first_nudge + 1}"
    if summary.first_stop is not None:
        due += f" and a stop at step {summary.first_stop + 1}"
    others = sum(bool(loop.nudges) for loop in loops) - 1
    again = f" and {'once' if others == 1 else f'{others} times'} more later" if others > 0 else ""
    span = f"from step {stuck.first + 1} to step {stuck.last + 1} of {summary.steps:,}"
    return f"The agent was stuck {span}{again}: {due}."


def _caption(outcome: Outcome, loops: Sequence[Loop], window: range) -> str:
    """The chart in words: what a person sees who cannot see it."""
    if not window:
        return ""
    shown = [outcome.steps[position] for position in window]
    lanes = count(len({step.agent_id for step in shown}), "agent")
    which = f"Steps {window.start + 1:,} to {window.stop:,}" if len(window) > 1 else f"Step {window.stop:,}"
    text = f"{which}, a lane per agent ({lanes}) and a row per tool"
    text += f" ({count(len({step.tool_name for step in shown}), 'tool')}), with the loop score below. "
    for loop in loops[:_MAX_CAPTIONED]:
        due = [f"nudge due at step {loop.nudges[0][0] + 1}" if loop.nudges else ""]
        due += [f"stop due at step {loop.stops[0] + 1}" if loop.stops else ""]
        text += f"{loop.name.capitalize()}: steps {loop.first + 1} to {loop.last + 1}, "
        text += ", ".join([f"score up to {loop.lead.score:.2f}", *filter(None, due)]) + ". "
    if len(loops) > _MAX_CAPTIONED:
        text += f"{count(len(loops) - _MAX_CAPTIONED, 'more loop')}. "
    return text + ("" if loops else "No loop.")


def _facts(outcome: Outcome, summary: Summary) -> list[tuple[str, str]]:
    """Figures of the header. A figure missing in the telemetry is called unknown, not zero."""
    steps, spent = outcome.steps, summary.spent
    timed, usages = has_times(steps), [step.usage for step in steps if step.usage is not None]
    priced = any(usage.cost_usd for usage in usages)
    facts = [("Steps", f"{len(steps):,}"), ("Agents", str(len({step.agent_id for step in steps if step.agent_id})))]
    if timed:
        began = moment(min(start_times(steps)))
        facts += [("Began", began)] if began else []
        facts.append(("Took", duration(elapsed(steps))))
    facts.append(("Highest score", f"{summary.max_score:.2f}"))
    facts.append(("Cursor", summary.position.words))
    if summary.suspected:
        facts.append(("Suspected loops", str(summary.suspected)))
    if summary.loops:
        facts += [
            ("Loops", str(summary.loops)),
            ("Steps in loops", f"{spent.steps:,} of {len(steps):,}"),
            ("Time in loops", duration(spent.seconds) if timed else "unknown"),
            ("Tokens in loops", f"{spent.tokens:,}" if usages else "unknown"),
            ("Money in loops", money(spent.cost_usd) if priced else "unknown"),
        ]
    seen = Counter(str(step.evidence) for step in steps)
    facts.append(("Evidence", ", ".join(f"{name} {number}" for name, number in sorted(seen.items())) or "none"))
    dialects = sorted({step.dialect for step in steps if step.dialect})
    return [*facts, ("Dialect", ", ".join(dialects))] if dialects else facts


# --- the step table ------------------------------------------------------------------------------------------


def _row(
    outcome: Outcome, position: int, start: float | None, loops: Sequence[Loop], config: GuardConfig
) -> Row:  # fmt: skip
    step, verdict = outcome.steps[position], outcome.verdicts[position]
    thinking = step.thought if verdict is not None and any("MONOLOGUE" in kind for kind in verdict.types) else None
    return Row(
        position=position,
        time=_offset(start, step),
        agent=clip(step.agent_id) if step.agent_id else None,
        tool=clip(step.tool_name),
        args=_args_cell(step, config.redact),
        outcome=step.outcome_type,
        result=_result_cell(step, config.redact),
        thought=clip(thinking, MAX_CELL_CHARS) if thinking and not config.redact else None,
        score=verdict.score if verdict is not None else None,
        level=verdict.level if verdict is not None and verdict.detections else None,
        types=verdict.types if verdict is not None else [],
        loops=[loop.name for loop in loops if loop.first <= position <= loop.last],
    )


def _offset(start: float | None, step: StepRecord) -> str:
    """Time since the earliest step."""
    return clock(step.timestamp - start) if start is not None and math.isfinite(step.timestamp) else ""


def _args_cell(step: StepRecord, redact: bool) -> str | None:
    if redact:
        return _hash(step.tool_args_hash)
    args = step.args
    if args is None or isinstance(args, str):
        return args if args is None else clip(args, MAX_CELL_CHARS)
    if isinstance(args, dict) and list(args) == ["__single__"]:
        args = args["__single__"]
    return clip(_as_json(args), MAX_CELL_CHARS)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        return "…"


def _result_cell(step: StepRecord, redact: bool) -> str | None:
    if redact:
        return _hash(step.state_snapshot_hash)
    if step.result is None:
        return step.error_class and clip(step.error_class, MAX_CELL_CHARS)
    return clip(step.result[: MAX_CELL_CHARS * 20], MAX_CELL_CHARS)


def _hash(value: str | None) -> str | None:
    """Equal hashes show repeats where the content is kept out."""
    return f"#{value[:10]}" if value else None


def _segments(rows: Sequence[Row], loops: Sequence[Loop]) -> Iterator[Segment]:
    """Cut the table: what surrounds the findings is open, long stretches without any are folded."""
    begun = {loop.first for loop in loops}
    notable = [index for index, row in enumerate(rows) if row.types or row.position in begun]
    fold_from = _MIN_FOLD if notable else _MANY_ROWS
    start = 0
    for before, after in pairwise([-1, *notable, len(rows)]):
        if after - before > fold_from:
            yield from _open(rows[start : before + 1])
            yield Segment(list(rows[before + 1 : after]), folded=True)
            start = after
    yield from _open(rows[start:])


def _open(rows: Sequence[Row]) -> Iterator[Segment]:
    """An open stretch; if it is very long, only its beginning and its end are."""
    head, tail = (_HEAD_ROWS, len(rows) - _TAIL_ROWS) if len(rows) > _MANY_ROWS else (len(rows), len(rows))
    for part, folded in ((rows[:head], False), (rows[head:tail], True), (rows[tail:], False)):
        if part:
            yield Segment(list(part), folded)
