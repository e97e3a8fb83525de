"""Spans of model calls into the ledger, and its alerts into the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan, Span

from trajectory_guard import telemetry
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import Usage
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.otel.verdict_spans import write_to
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.spans.extract import model_name, requested_model, response_id
from trajectory_guard.spans.identity import agent_name
from trajectory_guard.spending.duplicates import ReportedCall, ReportedCalls
from trajectory_guard.spending.ledger import LedgerEntry, nano_usd, writable
from trajectory_guard.spending.spending import Alert, Booked, Spending, log_booked


class SpendingFeed:
    """Books the model calls that a span processor sees, each once."""

    def __init__(self) -> None:
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()
        self._reported = ReportedCalls()

    def book(
        self,
        spending: Spending,
        span: ReadableSpan,
        view: SpanView,
        usage: Usage,
        *,
        trajectory: str,
        above: Sequence[SpanView],
        table: DialectTable,
        live: Span | None,
    ) -> None:
        """Book a model call that has ended; its alerts go to the log and to the live span around it.

        Parameters:
            view, usage: the span as dialects read it, and what the call consumed.
            trajectory: its trajectory.
            above: spans around it, nearest first.
            live: the span around it, if it is still recording.
        """
        tokens = (usage.input_tokens, usage.output_tokens)
        call = ReportedCall(
            view.scope, view.span_id, view.start, view.end, tokens, response_id(view, table),
            frozenset(one.span_id for one in above), has_cost=usage.cost_usd > 0,
        )  # fmt: skip
        with self._lock:
            second = self._reported.is_second(view.trace_id, call)
        if second:
            spending.counts["spending.duplicates"] += 1
            return
        models = writable(model_name(view, table) or ""), writable(requested_model(view, table) or "")
        entry = LedgerEntry(
            f"{view.trace_id}{view.span_id}", writable(trajectory), writable(agent_name(view, above, table) or ""),
            _service(span), spending.day_of(view.end), spending.model_of(*models), *tokens,
            nano_usd(usage.cost_usd) if usage.cost_usd else None,
        )  # fmt: skip
        booked = spending.book(entry)
        if booked.alerts or booked.outliers:
            log_booked(booked)
            if live is not None and live.is_recording():
                _annotate(live, booked)


def _service(span: ReadableSpan) -> str:
    name = span.resource.attributes.get("service.name")
    return writable(bounded_name(str(name))) if name else ""


def _annotate(live: Span, booked: Booked) -> None:
    for alert in booked.alerts:
        live.add_event(telemetry.BUDGET_ALERT_EVENT, alert_attributes(alert))
        write_to(live, {telemetry.BUDGET_LEVEL: str(alert.state.level), telemetry.BUDGET_USED: alert.state.used})
    for entry, outlier in booked.outliers:
        live.add_event(
            telemetry.OUTLIER_EVENT,
            {
                telemetry.OUTLIER_TOKENS: entry.tokens,
                telemetry.OUTLIER_USUAL: round(outlier.mean),
                telemetry.OUTLIER_DEVIATIONS: outlier.deviations,
            },
        )


def alert_attributes(alert: Alert) -> Mapping[str, str | int | float]:
    """Attributes of the event of an alert."""
    state = alert.state
    return {
        telemetry.BUDGET_SCOPE: state.account.scope,
        telemetry.BUDGET_NAME: state.account.name,
        telemetry.BUDGET_LIMIT: state.budget.words,
        telemetry.BUDGET_LEVEL: str(state.level),
        telemetry.BUDGET_USED: state.used,
        telemetry.BUDGET_PERCENT: alert.percent,
    }
