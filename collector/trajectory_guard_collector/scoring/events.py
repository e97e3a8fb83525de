"""Loop events and counts of evaluated steps. Late steps may move a finding to another step: the scorer publishes and
counts each finding once. For people, it also prints a line for each event, or logs it as in process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.core.text import printable
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard.logs import log_recovery, log_verdict
from trajectory_guard_collector.scoring.items import EventKind, ResourceInfo, StepItem
from trajectory_guard_collector.scoring.published import Published
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

_WORDS: Final = {EventKind.START: "loop", EventKind.NUDGE: "NUDGE", EventKind.STOP: "STOP", None: "recovered"}


class LoopEvent(NamedTuple):
    """A loop event to publish.

    Fields:
        kind: a loop began, or a nudge or a stop is due; None if an agent has recovered.
        verdict, item: the finding, and its step.
        renamed: the event was published before, under the name of the trajectory until its conversation became known.
    """

    kind: EventKind | None
    verdict: Verdict
    item: StepItem
    renamed: bool = False


def publish(trajectory: Trajectory, item: StepItem, counts: ScoringCounts) -> list[LoopEvent]:
    """Count a step after each evaluation and update the current verdicts. Returns the loop events to publish."""
    verdict, first_time = item.verdict, not item.evaluated
    item.evaluated = True
    if verdict is None and item.step.model_scope is not None:
        return []  # it repeats no other model call, and counts as no step
    if not first_time:
        counts.evaluated_again()
    trajectory.last_seen = max(trajectory.last_seen, item.order[0])
    if verdict is None:
        if first_time and item.repeats:
            counts.duplicate()
        return []
    if first_time:
        counts.step(item.service)
        if verdict.evidence is Evidence.FINGERPRINT:
            counts.fingerprinted(item.service)
    trajectory.describe(item)
    trajectory.current = trajectory.current.after_item(item)
    recovery = _recovered(trajectory, item, verdict, counts) if verdict.recovered else None
    finding = None
    if verdict.detections:
        _count(trajectory, item, verdict, counts, first_time=first_time)
        finding = _found(trajectory, item, verdict, counts)
    return [event for event in (recovery, finding) if event is not None]


def recovered_when_idle(
    trajectory: Trajectory, verdict: Verdict, item: StepItem, counts: ScoringCounts
) -> LoopEvent | None:
    """The recovery of a run that became idle or was evicted, None if it was published; ``item`` is its newest step."""
    trajectory.current = trajectory.current.after_recovery(verdict.run)
    return _recovered(trajectory, item, verdict, counts)


def _recovered(trajectory: Trajectory, item: StepItem, verdict: Verdict, counts: ScoringCounts) -> LoopEvent | None:
    published = trajectory.published(verdict.episode)
    if published.recovered:
        return None
    published.recovered = True
    renamed, item.recovered = item.recovered, True
    if not renamed:
        counts.recovery(item.service, item.step.agent_id or "")
    return LoopEvent(None, verdict, item, renamed)


def _found(trajectory: Trajectory, item: StepItem, verdict: Verdict, counts: ScoringCounts) -> LoopEvent | None:
    kind = _event_kind(trajectory, item, verdict)
    if kind is None:
        return None
    renamed, item.announced, item.announced_as = item.announced_as is kind, kind, kind
    if kind is not EventKind.START and not renamed:
        counts.intervention(str(verdict.level), *_labels(item, verdict))
    return LoopEvent(kind, verdict, item, renamed)


def _count(
    trajectory: Trajectory, item: StepItem, verdict: Verdict, counts: ScoringCounts, *, first_time: bool
) -> None:
    """Count findings, loops and usage that were not counted before, under another name or in an earlier evaluation."""
    if first_time:
        for kind in verdict.types:
            counts.detection(item.service, kind)
    published = trajectory.published(verdict.episode)
    begins, published.counted = not published.counted, True
    spent = _spent_more(published, verdict)
    if not item.moved:
        counts.loop_spent(item.service, str(verdict.certainty or ""), spent.steps, spent.tokens, spent.cost_usd)
        if begins:
            counts.episode(*_labels(item, verdict))
    item.moved = False


def _spent_more(published: Published, verdict: Verdict) -> Spent:
    """Resources that a loop has consumed since the last call."""
    before, spent = published.spent, verdict.spent
    most = published.spent = Spent(
        max(spent.steps, before.steps), spent.seconds, max(spent.tokens, before.tokens),
        max(spent.cost_usd, before.cost_usd),
    )  # fmt: skip
    return Spent(most.steps - before.steps, 0.0, most.tokens - before.tokens, most.cost_usd - before.cost_usd)


def _labels(item: StepItem, verdict: Verdict) -> tuple[str, str, str, str, str, str]:
    return (
        item.service, item.step.agent_id or "", item.step.tool_name, verdict.types[0], item.view.trace_id,
        str(verdict.certainty or ""),
    )  # fmt: skip


def _event_kind(trajectory: Trajectory, item: StepItem, verdict: Verdict) -> EventKind | None:
    """Kind of the guard span: the first finding of an episode, each of its nudges, and its first stop get one."""
    published = trajectory.published(verdict.episode)
    starts, published.started = not published.started, True
    if verdict.level is Level.STOP:
        if published.stopped:
            return None
        published.stopped = True
        return EventKind.STOP
    if verdict.nudge is not None:
        nth = trajectory.nth_nudge(item)
        if published.nudges >= nth:
            return None
        published.nudges = nth
        return EventKind.NUDGE
    return EventKind.START if starts and item.announced is None else None


def stand_in(trajectory: Trajectory, verdict: Verdict) -> StepItem:
    """A substitute for the evicted step of a verdict, with the service, agent, trace and end that are still known."""
    (tenant, name), agent = trajectory.key, trajectory.agents[-1] if trajectory.agents else None
    view = SpanView("", {}, trajectory.trace_id, verdict.step_id, start=trajectory.last_seen, end=trajectory.last_seen)
    origin = ResourceInfo({}, trajectory.services[-1] if trajectory.services else "", tenant)
    step = StepRecord(verdict.step_id, name, "", agent_id=agent, trace_id=trajectory.trace_id)
    item = StepItem(bytes.fromhex(trajectory.trace_id + verdict.step_id), step, view, DIALECTS[-1], origin, 0)
    item.key = trajectory.key
    return item


class VerdictPrinter:
    """Prints one line per loop event.

    Parameters:
        redact: print no excerpts of arguments or results.
        write: receives the lines; prints them on standard output by default.
    """

    def __init__(self, *, redact: bool = False, write: Callable[[str], object] = print) -> None:
        self._redact = redact
        self._write = write

    def notify(self, events: Sequence[LoopEvent]) -> None:
        """Print the events."""
        for event in (event for event in events if not event.renamed):
            self._write(self._line(event))

    def _line(self, event: LoopEvent) -> str:
        verdict, item = event.verdict, event.item
        who = f"{item.service}/{item.step.agent_id}" if item.step.agent_id else item.service
        types = ",".join(verdict.types) or "-"
        reason = "" if self._redact else verdict.reason
        word = _WORDS[event.kind]
        line = f"{word:<9} {who}  {verdict.trajectory_id}  score {verdict.score:.2f}  {types}  {reason}"
        return printable(line).rstrip()  # senders supply nearly all of it: strip line breaks and escape sequences


class VerdictLog:
    """Logs verdicts as in process: one JSON object each, on the logger ``trajectory_guard``."""

    def __init__(self, *, redact: bool = False) -> None:
        self._redact = redact

    def notify(self, events: Sequence[LoopEvent]) -> None:
        """Log the events."""
        for event in (event for event in events if not event.renamed):
            if event.kind is None:
                log_recovery(event.verdict)
            else:
                log_verdict(event.verdict, redact=self._redact)
