"""Tokens, cost and user message of the model calls before each step, for recorded spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.transcripts.asked import asked_in


def with_usage(
    steps: Sequence[StepRecord],
    spans: Iterable[SpanView],
    conversation_of: Callable[[SpanView], str],
    table: DialectTable = DIALECTS,
) -> list[StepRecord]:
    """Charge each step for the model calls that ended before it, as live spans are: in order of their ends."""
    calls = sorted(
        ((span.end, span.span_id, span, usage) for span in spans if (usage := model_usage(span, table)) is not None),
        key=lambda call: call[:2], reverse=True,
    )  # fmt: skip
    ledger, charged = UsageLedger(), {}
    for step in sorted(steps, key=_end):
        while calls and calls[-1][:2] <= _end(step):
            _, _, span, usage = calls.pop()
            ledger.add(span.trace_id, span.scope, usage._replace(asked=asked_in(span, table)), conversation_of(span))
        charged[step.step_id, step.trace_id] = ledger.charge(step, step.trajectory_id)
    return [charged[step.step_id, step.trace_id] for step in steps]


def _end(step: StepRecord) -> tuple[float, str]:
    return step.timestamp + step.duration, step.step_id
