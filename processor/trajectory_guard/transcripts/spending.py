"""Tokens, cost and user message of the model calls before each step, for recorded spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking import model_calls
from trajectory_guard.core.tracking.scope import run_label
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.spans.identity import task_of
from trajectory_guard.transcripts.asked import with_asked


def with_usage(
    steps: Sequence[StepRecord],
    spans: Iterable[SpanView],
    conversation_of: Callable[[SpanView], str],
    table: DialectTable = DIALECTS,
) -> list[StepRecord]:
    """Charge each step for the model calls that ended before it, as live spans are: in order of their ends.

    A model call among the steps is charged for itself once it repeats another one, as the engine will find.
    """
    calls = sorted(
        ((span.end, span.span_id, span, usage) for span in spans if (usage := model_usage(span, table)) is not None),
        key=lambda call: call[:2], reverse=True,
    )  # fmt: skip
    ledger, charged = UsageLedger(), {}
    newest: dict[tuple[str, str], model_calls.Newest] = {}
    for step in sorted(steps, key=_end):
        while calls and calls[-1][:2] <= _end(step):
            _, _, span, usage = calls.pop()
            usage = with_asked(usage, span, table)
            ledger.add(span.trace_id, span.scope, usage, conversation_of(span), task=task_of(span, table), end=span.end)
        if step.model_scope is None:
            step = ledger.charge(step, step.trajectory_id)
            newest.pop((step.trajectory_id, run_label(step, {})), None)
        else:
            step = ledger.name_model_call(step, step.trajectory_id)
            run = step.trajectory_id, run_label(step, {})
            newest[run], repeated = model_calls.advance(newest.get(run, ()), step)
            if repeated is not None:
                ledger.discard_pending(step)
        charged[step.step_id, step.trace_id] = step
    return [charged[step.step_id, step.trace_id] for step in steps]


def _end(step: StepRecord) -> tuple[float, str]:
    return step.timestamp + step.duration, step.step_id
