"""Calls that models requested, read from their answers and from transcripts.

Calls of unknown tools, refused calls and calls of bare model clients leave no tool span: nothing but messages shows
them. The functions look at a whole set of spans; their result does not depend on the order of the spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, is_copy, recognise
from trajectory_guard.spans.content import decode_arguments
from trajectory_guard.transcripts.messages import (
    defined_tools,
    input_messages,
    is_model_span,
    output_messages,
    text_of,
    transcript_messages,
)
from trajectory_guard.transcripts.react import asks_in_text
from trajectory_guard.transcripts.transcript import Message, ToolCall, ToolResult, linked, trailing_calls


class Place(NamedTuple):
    """Where a span belongs: its trace and its trajectory. Two places share a scope if either is the same."""

    trace_id: str
    trajectory_id: str


@dataclass
class RequestedCall:
    """A call as a model requested it.

    Attributes:
        span: the span whose messages show it.
        index: ordinal among the calls of that span.
        call: as the model wrote it.
        args: decoded arguments, None if unknown.
        time: seconds since the epoch: end of the model call, or spread over the span of a transcript.
        place: trace and trajectory.
        turn: number of calls in the same model message block, and the ordinal in it.
        thought: text of the model message, on the first call of a turn only.
        tools: tools the model could choose from, where known (name to whether a person must approve).
        transcript: read from a transcript, which has the results as well, and not from one model call.
        result: the result that the model saw, None if unknown.
        step: the tool span that stands for it, if there is one.
        passed: a later model call has shown results, so that none can be assigned by position any more.
    """

    span: SpanView
    index: int
    call: ToolCall
    args: Any
    time: float
    place: Place
    turn: tuple[int, int] = (1, 0)
    thought: str | None = None
    agent: str | None = None
    tools: Mapping[str, bool] | None = None
    transcript: bool = False
    result: ToolResult | None = None
    step: StepRecord | None = None
    passed: bool = field(default=False, repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids the call is known by."""
        return tuple(one for one in (self.call.call_id, self.call.item_id) if one)


# --- reading -------------------------------------------------------------------------------------------------


def requested_calls(
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    above: Callable[[SpanView], Iterable[SpanView]],
    table: DialectTable = DIALECTS,
) -> list[RequestedCall]:
    """All calls that the models in ``spans`` requested, once each, in order of time. ``spans`` are in order of time."""
    found: list[RequestedCall] = []
    models = [span for span in spans if is_model_span(span, table)]
    in_text: set[str] = set()
    for span in models:
        answer = output_messages(span, table)
        found += _of_model(span, answer, place_of(span), table)
        if any(asks_in_text(message.text) for message in answer):
            in_text.add(span.trace_id)  # the observation follows in the transcript only
    found = _without_copies(found, above)
    found += _from_next_input(models, found, place_of, table)
    with_models = {span.trace_id for span in models} - in_text
    others = [span for span in spans if span.trace_id not in with_models]
    found += _from_transcripts(others, place_of, above, table)
    found.sort(key=lambda requested: (requested.time, requested.span.span_id, requested.index))
    return found


def _of_model(span: SpanView, messages: list[Message], place: Place, table: DialectTable) -> list[RequestedCall]:
    calls = [call for message in messages for call in message.calls]
    if not calls:
        return []
    thought, tools = text_of(messages), defined_tools(span, table)
    return [
        RequestedCall(
            span, index, call, decode_arguments(call.arguments).value, span.end, place, (len(calls), index),
            thought if index == 0 else None, tools=tools,
        )
        for index, call in enumerate(calls)
    ]  # fmt: skip


def _without_copies(found: list[RequestedCall], above: Callable[[SpanView], Iterable[SpanView]]) -> list[RequestedCall]:
    """Two instrumentations of one model call report the same calls: nested spans, or overlapping ones with one id."""
    reporting = {(requested.span.trace_id, requested.span.span_id) for requested in found}
    kept: list[RequestedCall] = []
    recent: dict[tuple[str, str], RequestedCall] = {}
    nested: dict[tuple[str, str], bool] = {}
    for requested in sorted(
        found, key=lambda requested: (requested.span.start, requested.span.span_id, requested.index)
    ):
        key = (requested.span.trace_id, requested.span.span_id)
        if key not in nested:
            nested[key] = any((one.trace_id, one.span_id) in reporting for one in above(requested.span))
        if nested[key] or any(_overlaps(recent.get((requested.call.name, one)), requested) for one in requested.ids):
            continue
        kept.append(requested)
        recent.update({(requested.call.name, one): requested for one in requested.ids})
    return kept


def _overlaps(first: RequestedCall | None, second: RequestedCall) -> bool:
    if first is None or first.span is second.span or not shares_scope(first.place, second.place):
        return False
    return second.span.start < first.span.end and first.span.start < second.span.end


def shares_scope(one: Place, other: Place) -> bool:
    """Whether two places share the trace or the trajectory."""
    return one.trace_id == other.trace_id or one.trajectory_id == other.trajectory_id


def is_named(place: Place) -> bool:
    """Whether something names the conversation; else the trace is the trajectory."""
    return place.trace_id != place.trajectory_id


def _from_next_input(
    models: Sequence[SpanView],
    found: Sequence[RequestedCall],
    place_of: Callable[[SpanView], Place],
    table: DialectTable,
) -> list[RequestedCall]:
    """Calls of model spans that keep no output, read from the next input in the same trace."""
    silent: dict[str, dict[str | None, SpanView]] = {}
    known = {(requested.span.trace_id, one) for requested in found for one in requested.ids}
    added: list[RequestedCall] = []
    for span in models:
        waiting = silent.setdefault(span.trace_id, {})
        if waiting:
            before = waiting.get(span.parent_id) or max(waiting.values(), key=lambda one: (one.start, one.span_id))
            asking = _added_calls(input_messages(before, table=table), input_messages(span, table=table))
            fresh = _of_model(before, asking, place_of(before), table)
            added += [
                requested for requested in fresh if not any((span.trace_id, one) in known for one in requested.ids)
            ]
            known |= {(span.trace_id, one) for requested in fresh for one in requested.ids}
        if output_messages(span, table):
            waiting.pop(span.parent_id, None)
        else:
            waiting[span.parent_id] = span
    return added


def _added_calls(earlier: list[Message], later: list[Message]) -> list[Message]:
    """The model messages with calls that were added to a conversation, else those of its last turn. Each of several
    calls of one turn may stand in a message of its own, with its result behind it (Pipecat).
    """
    if earlier and later[: len(earlier)] == earlier:
        return [message for message in later[len(earlier) :] if message.calls]
    return trailing_calls(later)


def _from_transcripts(
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    above: Callable[[SpanView], Iterable[SpanView]],
    table: DialectTable,
) -> list[RequestedCall]:
    """Calls in the transcripts that agent and workflow spans keep where nothing shows the model calls themselves."""
    read = {
        (span.trace_id, span.span_id): (span, pairs)
        for span in spans
        if _may_hold_transcript(span, table) and (pairs := _pairs(span, table))
    }
    outer = {(one.trace_id, one.span_id) for span, _ in read.values() for one in above(span)}
    seen: set[tuple[str, str]] = set()
    found: list[RequestedCall] = []
    for key, (span, pairs) in read.items():
        if key in outer:
            continue
        for index, (call, result, agent) in enumerate(pairs):
            if call.call_id is not None and (span.trace_id, call.call_id) in seen:
                continue
            seen |= {(span.trace_id, call.call_id)} if call.call_id is not None else set()
            time = span.start + (span.end - span.start) * (index + 1) / (len(pairs) + 1)
            found.append(
                RequestedCall(span, index, call, decode_arguments(call.arguments).value, time, place_of(span),
                     agent=agent, transcript=True, result=result)
            )  # fmt: skip
    return found


def _may_hold_transcript(span: SpanView, table: DialectTable) -> bool:
    """Whether a span is neither a tool call, nor a pending copy of a span, nor a protocol message."""
    return (
        table.no_transcript.isdisjoint(span.attributes) and not is_copy(span, table) and recognise(span, table) is None
    )


def _pairs(span: SpanView, table: DialectTable) -> list[tuple[ToolCall, ToolResult | None, str | None]]:
    messages = transcript_messages(span, table)
    authors = [message.agent for message in messages for _ in message.calls]
    return [(call, result, author) for (call, result), author in zip(linked(messages), authors, strict=True)]
