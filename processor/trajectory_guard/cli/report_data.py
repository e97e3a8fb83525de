"""What a report says of a judged trajectory, as plain values: loops, findings, rows, figures. No HTML here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from trajectory_guard.cli.replay import Outcome
from trajectory_guard.cli.report_text import count, duration, moment, money
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import Spent, clip, nudge_text, reason_text, recommendation
from trajectory_guard.core.scoring import Level
from trajectory_guard.core.steps import Evidence, StepRecord

MAX_STEPS: Final = 400
"""Steps drawn and listed per trajectory."""
MAX_FINDINGS: Final = 60
"""Findings listed per loop."""
MAX_LOOPS: Final = 30
"""Loops described per trajectory."""
MAX_CELL_CHARS: Final = 200
"""Characters of arguments and of results in the step table."""
_LEAD_IN: Final = 20
_MIN_FOLD: Final = 8
_RANK: Final = {Level.STOP: 3, Level.NUDGE: 2, Level.OBSERVE: 1, None: 0}


class Finding(NamedTuple):
    """A step at which something fired; ``step`` is its position in input order, from 0."""

    step: int
    score: float
    level: Level
    types: list[str]
    evidence: Evidence
    reason: str


class Loop(NamedTuple):
    """One episode: from the first step of the loop to the last step at which something fired (positions from 0)."""

    number: int
    first: int
    last: int
    findings: list[Finding]
    types: list[str]
    level: Level
    nudged_at: int | None
    stopped_at: int | None
    nudge: str | None
    spent: Spent
    left_at: int | None

    @property
    def lead(self) -> Finding:
        """The finding that says most: the latest of those with the highest score."""
        return max(self.findings, key=lambda found: (found.score, found.step))

    @property
    def advice(self) -> str:
        """What a developer should look at."""
        return recommendation(self.lead.types)

    @property
    def listed(self) -> list[Finding]:
        """The findings to print: all, or the first ones if there are very many."""
        return self.findings[:MAX_FINDINGS]


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
    loops: list[int]


class Segment(NamedTuple):
    """A stretch of the step table: within loops, or between them."""

    rows: list[Row]
    looping: bool
    folded: bool


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
    spent: Spent

    @property
    def badness(self) -> tuple[int, float, int]:
        """Sorts trajectories: the worst is the greatest."""
        return _RANK[self.level], self.max_score, self.spent.steps


class Section(NamedTuple):
    """All a report says of one trajectory; ``window`` is the range of positions drawn and listed."""

    summary: Summary
    sentence: str
    facts: list[tuple[str, str]]
    loops: list[Loop]
    window: range
    outcome: Outcome
    segments: list[Segment]


def summarize(outcome: Outcome) -> Summary:
    """The overview line of a trajectory."""
    return _summary(outcome, find_loops(outcome, GuardConfig(redact=True)))


def _summary(outcome: Outcome, loops: Sequence[Loop]) -> Summary:
    nudge, stop = outcome.first_nudge, outcome.first_stop
    level = Level.STOP if stop is not None else Level.NUDGE if nudge is not None else Level.OBSERVE if loops else None
    return Summary(
        outcome.id, len(outcome.steps), outcome.max_score, level, outcome.types, nudge, stop, len(loops), _total(loops)
    )


def build_section(outcome: Outcome, config: GuardConfig) -> Section:
    """Work out everything a report shows of one trajectory."""
    loops = find_loops(outcome, config)
    window = _window(len(outcome.steps), loops)
    summary = _summary(outcome, loops)
    rows = [_row(outcome, position, loops, config) for position in window]
    sentence = _sentence(summary, loops, config)
    return Section(summary, sentence, _facts(outcome, summary), loops, window, outcome, list(_segments(rows)))


# --- loops ---------------------------------------------------------------------------------------------------


def find_loops(outcome: Outcome, config: GuardConfig) -> list[Loop]:
    """The episodes of a trajectory, in order."""
    grouped: dict[int, list[int]] = {}
    positions: dict[int, int] = {}
    left: dict[int, int] = {}
    for position, verdict in enumerate(outcome.verdicts):
        if verdict is None:
            continue
        positions[verdict.step_index] = position
        if verdict.detections:
            grouped.setdefault(verdict.episode, []).append(position)
        if verdict.recovered:
            left[verdict.episode] = position
    return [_loop(outcome, at, positions, left.get(number), config) for number, at in grouped.items()]


def _loop(
    outcome: Outcome, at: Sequence[int], positions: Mapping[int, int], left_at: int | None, config: GuardConfig
) -> Loop:
    verdicts = [verdict for position in at if (verdict := outcome.verdicts[position]) is not None]
    named = [_renumbered(verdict, outcome.steps[i], positions, config) for i, verdict in zip(at, verdicts, strict=True)]
    findings = [
        Finding(i, verdict.score, verdict.level, verdict.types, verdict.evidence, reason)
        for i, verdict, (reason, _) in zip(at, verdicts, named, strict=True)
    ]
    levels = [verdict.level for verdict in verdicts]
    first = min(positions.get(verdict.first_step, at[0]) for verdict in verdicts)
    return Loop(
        number=verdicts[0].episode,
        first=first,
        last=at[-1],
        findings=findings,
        types=list(dict.fromkeys(kind for verdict in verdicts for kind in verdict.types)),
        level=max(levels, key=lambda level: _RANK[level]),
        nudged_at=_first(at, levels, Level.NUDGE),
        stopped_at=_first(at, levels, Level.STOP),
        nudge=next((nudge for _, nudge in named if nudge), None),
        spent=verdicts[-1].spent,
        left_at=left_at,
    )


def _first(positions: Sequence[int], levels: Sequence[Level], wanted: Level) -> int | None:
    return next((at for at, level in zip(positions, levels, strict=True) if level == wanted), None)


def _renumbered(
    verdict: Verdict, step: StepRecord, positions: Mapping[int, int], config: GuardConfig
) -> tuple[str, str | None]:
    """Reason and nudge with steps numbered as in the report: the engine does not count steps that it passes over."""
    found = [_moved(result, positions) for result in verdict.detections]
    if found == list(verdict.detections):
        return verdict.reason, verdict.nudge
    excerpt = not config.redact
    nudge = nudge_text(found, step, verdict.spent, excerpt=excerpt) if verdict.nudge else None
    return reason_text(found[0], step, verdict.spent, excerpt=excerpt), nudge


def _moved(result: DetectionResult, positions: Mapping[int, int]) -> DetectionResult:
    first = result.details.get("first_step", 0)
    if positions.get(first, first) == first:
        return result
    return replace(result, details={**result.details, "first_step": positions[first]})


def _total(loops: Sequence[Loop]) -> Spent:
    """What all loops together consumed; steps that belong to two loops count once."""
    steps = {position for loop in loops for position in range(loop.first, loop.last + 1)}
    return Spent(
        len(steps),
        sum(loop.spent.seconds for loop in loops),
        sum(loop.spent.tokens for loop in loops),
        sum(loop.spent.cost_usd for loop in loops),
    )


def _window(steps: int, loops: Sequence[Loop]) -> range:
    """The positions to show: all, or a stretch around the worst loop."""
    if steps <= MAX_STEPS:
        return range(steps)
    worst = max(loops, key=lambda loop: (_RANK[loop.level], loop.lead.score, -loop.number), default=None)
    start = max(0, min(steps - MAX_STEPS, worst.first - _LEAD_IN if worst else 0))
    return range(start, start + MAX_STEPS)


# --- words ---------------------------------------------------------------------------------------------------


def _sentence(summary: Summary, loops: Sequence[Loop], config: GuardConfig) -> str:
    of = f"of {count(summary.steps, 'step')}"
    if not summary.steps:
        return "No steps were found in this trajectory."
    if not loops:
        return f"No sign of a loop in {count(summary.steps, 'step')}."
    if summary.first_nudge is None:
        return (
            f"No intervention was due: {count(sum(len(loop.findings) for loop in loops), 'finding')}, but the score "
            f"stayed at {summary.max_score:.1f}, below the nudge threshold of {config.nudge_threshold:.1f}."
        )
    stuck = next(loop for loop in loops if summary.first_nudge in [found.step for found in loop.findings])
    due = f"a nudge was due at step {summary.first_nudge + 1}"
    if summary.first_stop is not None:
        due += f" and a stop at step {summary.first_stop + 1}"
    span = f"from step {stuck.first + 1} to step {stuck.last + 1}"
    others = sum(loop.nudged_at is not None for loop in loops) - 1
    again = f", and was stuck again {others} more time{'s' if others > 1 else ''}" if others > 0 else ""
    return f"The agent was stuck {span} {of}{again}: {due}."


def _facts(outcome: Outcome, summary: Summary) -> list[tuple[str, str]]:
    """Figures of the header. What the telemetry does not tell is called unknown, not zero."""
    steps, spent = outcome.steps, summary.spent
    timed, usages = has_times(steps), [step.usage for step in steps if step.usage is not None]
    priced = any(usage.cost_usd for usage in usages)
    facts = [("Steps", f"{len(steps):,}"), ("Agents", str(len({step.agent_id for step in steps if step.agent_id})))]
    if timed:
        facts += [("Began", moment(min(_starts(steps)))), ("Took", duration(_elapsed(steps)))]
    facts.append(("Highest score", f"{summary.max_score:.2f}"))
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


def has_times(steps: Sequence[StepRecord]) -> bool:
    """Whether the steps carry times at all."""
    return any(step.timestamp or step.duration for step in steps) and bool(_starts(steps))


def _starts(steps: Sequence[StepRecord]) -> list[float]:
    return [step.timestamp for step in steps if math.isfinite(step.timestamp)]


def _elapsed(steps: Sequence[StepRecord]) -> float:
    ends = [step.timestamp + step.duration for step in steps if math.isfinite(step.timestamp + step.duration)]
    return max(ends, default=0.0) - min(_starts(steps), default=0.0)


# --- the step table ------------------------------------------------------------------------------------------


def _row(outcome: Outcome, position: int, loops: Sequence[Loop], config: GuardConfig) -> Row:
    step, verdict = outcome.steps[position], outcome.verdicts[position]
    thinking = step.thought if verdict is not None and any("MONOLOGUE" in kind for kind in verdict.types) else None
    return Row(
        position=position,
        time=_offset(outcome.steps, step),
        agent=clip(step.agent_id) if step.agent_id else None,
        tool=clip(step.tool_name),
        args=_args_cell(step, config.redact),
        outcome=step.outcome_type,
        result=_result_cell(step, config.redact),
        thought=clip(thinking, MAX_CELL_CHARS) if thinking and not config.redact else None,
        score=verdict.score if verdict is not None else None,
        level=verdict.level if verdict is not None and verdict.detections else None,
        types=verdict.types if verdict is not None else [],
        loops=[loop.number for loop in loops if loop.first <= position <= loop.last],
    )


def _offset(steps: Sequence[StepRecord], step: StepRecord) -> str:
    """Time since the first step in input order."""
    start = steps[0].timestamp
    known = (step.timestamp or step.duration or start) and math.isfinite(step.timestamp) and math.isfinite(start)
    return f"{step.timestamp - start:+,.1f} s" if known else ""


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


def _segments(rows: Sequence[Row]) -> Iterator[Segment]:
    """Cut the table at the ends of loops; what lies between loops is folded if it is long."""
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or bool(rows[end].loops) != bool(rows[start].loops):
            looping = bool(rows[start].loops)
            yield Segment(list(rows[start:end]), looping, not looping and end - start >= _MIN_FOLD)
            start = end
