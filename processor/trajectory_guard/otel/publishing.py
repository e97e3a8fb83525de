"""A gate's own verdicts in logs, trace and Langfuse, as the span processor writes those of spans."""

from __future__ import annotations

from opentelemetry import trace

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.engine import Verdict
from trajectory_guard.logs import log_recovery, log_verdict
from trajectory_guard.otel.content_watch import withholds_content
from trajectory_guard.otel.pipelines import provider_for
from trajectory_guard.otel.verdict_spans import VerdictSpans


def publish(verdict: Verdict, board: FlagBoard, *, redact: bool) -> None:
    """Log a verdict of a gate, and emit its span; without its reason where spans hold no content either."""
    span = trace.get_current_span()
    if verdict.reason and not redact and withholds_content(board):
        verdict, redact = verdict._replace(reason=""), True
    if verdict.recovered:
        log_recovery(verdict)
    log_verdict(verdict, redact=redact)
    if verdict.intervenes:
        spans = VerdictSpans(provider_for(board, span), board.counts)
        first = board.step_id(verdict.trajectory_id, verdict.first_step) or str(verdict.first_step)
        spans.emit(verdict, first_step=first, live_parent=span)
    if board.reporter is not None:
        context = span.get_span_context()
        board.reporter.report(verdict, f"{context.trace_id:032x}" if context.is_valid else None)


def publish_by_hand(verdict: Verdict, board: FlagBoard) -> None:
    """Emit the span of an intervention that a person asked for; it has no step to link."""
    span = trace.get_current_span()
    VerdictSpans(provider_for(board, span), board.counts).emit(verdict, first_step="", live_parent=span)


def quotes_nothing(board: FlagBoard) -> bool:
    """Whether no log line may quote arguments and results: by the configuration, or because telemetry holds none."""
    return board.config.redact or withholds_content(board)
