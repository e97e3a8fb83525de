"""Tokens and money of the model calls that led to each step, for recorded spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.extract import model_usage
from trajectory_guard.dialects.span import SpanView


def with_usage(steps: Sequence[StepRecord], spans: Iterable[SpanView]) -> list[StepRecord]:
    """Give each step the usage of the model calls that ended before it, as live spans do: in order of their ends."""
    calls = sorted(
        ((span.end, span.span_id, span, usage) for span in spans if (usage := model_usage(span)) is not None),
        key=lambda call: call[:2], reverse=True,
    )  # fmt: skip
    ledger, spent = UsageLedger(), {}
    for step in sorted(steps, key=_end):
        while calls and calls[-1][:2] <= _end(step):
            _, _, span, usage = calls.pop()
            ledger.add(span.trace_id, span.scope, usage)
        usage_before = ledger.take(step.trace_id)
        if usage_before is not None:
            spent[step.step_id, step.trace_id] = usage_before
    return [
        step._replace(usage=found) if (found := spent.get((step.step_id, step.trace_id))) is not None else step
        for step in steps
    ]


def _end(step: StepRecord) -> tuple[float, str]:
    return step.timestamp + step.duration, step.step_id
