"""Tokens and money of the model calls that led to each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.dialects.extract import model_name, model_usage
from trajectory_guard.dialects.span import SpanView

Price = Callable[[str, int, int], float]
"""USD for a model's name, input tokens and output tokens."""


def with_usage(
    steps: Sequence[StepRecord],
    spans: Iterable[SpanView],
    trajectory_of: Callable[[SpanView], str],
    price: Price | None = None,
) -> list[StepRecord]:
    """Give each step the usage of the model calls that ended before it started and after the step before.

    Parameters:
        steps: ordered by start time.
        price: puts a price on calls whose span names none.
    """
    spent: dict[str, list[tuple[float, Usage]]] = {}
    for span, usage in _once(spans):
        spent.setdefault(trajectory_of(span), []).append((span.end, _priced(span, usage, price)))
    for calls in spent.values():
        calls.sort(key=lambda call: call[0], reverse=True)  # the next one is taken from the end
    return [_with(step, spent.get(step.trajectory_id)) for step in steps]


def _with(step: StepRecord, calls: list[tuple[float, Usage]] | None) -> StepRecord:
    total = Usage()
    while calls and calls[-1][0] <= step.timestamp:
        total = total.plus(calls.pop()[1])
    return step if total == Usage() else step._replace(usage=total)


def _once(spans: Iterable[SpanView]) -> list[tuple[SpanView, Usage]]:
    """Model spans with usage, of one instrumentation per trace: two at once tell of every call twice."""
    by_trace: dict[str, dict[str, list[tuple[SpanView, Usage]]]] = {}
    for span in spans:
        usage = model_usage(span)
        if usage is not None and usage != Usage():
            by_trace.setdefault(span.trace_id, {}).setdefault(span.scope, []).append((span, usage))
    chosen = (max(scopes.items(), key=lambda item: (len(item[1]), item[0]))[1] for scopes in by_trace.values())
    return [call for calls in chosen for call in calls]


def _priced(span: SpanView, usage: Usage, price: Price | None) -> Usage:
    name = model_name(span)
    if usage.cost_usd or price is None or name is None:
        return usage
    return usage._replace(cost_usd=price(name, usage.input_tokens, usage.output_tokens))
