"""The calls that a model requests in one span, as steps that have not been taken yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.content import decode_arguments
from trajectory_guard.spans.extract import agent_of, trajectory_id
from trajectory_guard.spans.identity import instance_of
from trajectory_guard.transcripts.asked import asked_in
from trajectory_guard.transcripts.messages import output_messages
from trajectory_guard.transcripts.model_calls import MAX_ATTRIBUTES, dialect_of, is_long_answer


def proposals_in(
    span: SpanView,
    above: Callable[[], Iterable[SpanView]],
    trajectory_of: Callable[[SpanView], str] | None = None,
    table: DialectTable = DIALECTS,
) -> Iterator[StepRecord]:
    """The tool calls that a model span requests, without outcome; none if its output is hidden or very long.

    Parameters:
        above: the spans above it, nearest first; called only if there are such calls.
        trajectory_of: as for ``spans.extract.read_step``.
    """
    if len(span.attributes) > MAX_ATTRIBUTES or is_long_answer(span, table):
        return
    calls = [call for message in output_messages(span, table) for call in message.calls]
    if not calls:
        return
    ancestors, dialect, asked = list(above()), dialect_of(span, table), asked_in(span, table)
    trajectory = trajectory_id(span, ancestors, trajectory_of, table)
    agent, instance = agent_of(span, ancestors, dialect, table), instance_of(span, ancestors, table)
    for place, call in enumerate(calls):
        args = decode_arguments(call.arguments).value
        yield StepRecord(
            f"{span.span_id}/{place}", trajectory, bounded_name(call.name), args_hash(args), agent_id=agent,
            timestamp=span.end, call_id=bounded_name(call.call_id or call.item_id or "") or None, dialect=dialect.name,
            trace_id=span.trace_id, span_id=span.span_id, args=args, batch=span.span_id, run=instance, asked=asked,
        )  # fmt: skip
