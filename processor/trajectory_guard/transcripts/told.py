"""Calls that left no tool span of their own: unknown tools, refused calls, bare model clients.

They are read from what the model said, and their results from what it was told next. Everything here looks at a whole
set of spans and gives the same answer whatever their order; nothing of it runs in the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise
from trajectory_guard.spans.arguments import decode_arguments
from trajectory_guard.transcripts.messages import (
    defined_tools,
    input_messages,
    is_model_span,
    output_messages,
    text_of,
    transcript_messages,
)
from trajectory_guard.transcripts.transcript import Message, ToolAnswer, ToolCall, linked, trailing_calls


class Place(NamedTuple):
    """Where a span belongs: its trace and its trajectory. Two places meet if either is the same."""

    trace_id: str
    trajectory_id: str


@dataclass
class Told:
    """A call as a model asked for it.

    Attributes:
        span: the span that told of it.
        index: ordinal among the calls of that span.
        call: as the model wrote it.
        args: decoded arguments, None if unknown.
        time: seconds since the epoch: end of the model call, or spread over the span of a transcript.
        place: trace and trajectory.
        turn: number of calls in the same model message block, and the ordinal in it.
        thought: text of the model message, on the first call of a turn only.
        tools: tools the model could choose from, where known (name to whether a person must approve).
        transcript: told by a transcript that is its own source of answers, not by one model call.
        answer: what the model was told about it, None if unknown.
        step: the tool span that stands for it, if there is one.
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
    answer: ToolAnswer | None = None
    step: StepRecord | None = None
    asked: bool = field(default=False, repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids the call is known by."""
        return tuple(one for one in (self.call.call_id, self.call.item_id) if one)


# --- reading -------------------------------------------------------------------------------------------------


def told_calls(
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    above: Callable[[SpanView], Iterable[SpanView]],
    table: DialectTable = DIALECTS,
) -> list[Told]:
    """All calls the models in ``spans`` asked for, once each, in order of time. ``spans`` are in order of time."""
    found: list[Told] = []
    models = [span for span in spans if is_model_span(span, table)]
    for span in models:
        found += _of_model(span, output_messages(span, table), place_of(span), table)
    found = _without_copies(found, above)
    found += _from_next_input(models, found, place_of, table)
    with_models = {span.trace_id for span in models}
    others = [span for span in spans if span.trace_id not in with_models]
    found += _from_transcripts(others, place_of, above, table)
    found.sort(key=lambda told: (told.time, told.span.span_id, told.index))
    return found


def _of_model(span: SpanView, messages: list[Message], place: Place, table: DialectTable) -> list[Told]:
    calls = [call for message in messages for call in message.calls]
    if not calls:
        return []
    thought, tools = text_of(messages), defined_tools(span, table)
    return [
        Told(
            span, index, call, decode_arguments(call.arguments).value, span.end, place, (len(calls), index),
            thought if index == 0 else None, tools=tools,
        )
        for index, call in enumerate(calls)
    ]  # fmt: skip


def _without_copies(found: list[Told], above: Callable[[SpanView], Iterable[SpanView]]) -> list[Told]:
    """Two instrumentations of one model call tell the same calls: nested spans, or overlapping ones with one id."""
    telling = {(told.span.trace_id, told.span.span_id) for told in found}
    kept: list[Told] = []
    recent: dict[tuple[str, str], Told] = {}
    nested: dict[tuple[str, str], bool] = {}
    for told in sorted(found, key=lambda told: (told.span.start, told.span.span_id, told.index)):
        key = (told.span.trace_id, told.span.span_id)
        if key not in nested:
            nested[key] = any((one.trace_id, one.span_id) in telling for one in above(told.span))
        if nested[key] or any(_overlaps(recent.get((told.call.name, one)), told) for one in told.ids):
            continue
        kept.append(told)
        recent.update({(told.call.name, one): told for one in told.ids})
    return kept


def _overlaps(first: Told | None, second: Told) -> bool:
    if first is None or first.span is second.span or not meets(first.place, second.place):
        return False
    return second.span.start < first.span.end and first.span.start < second.span.end


def meets(one: Place, other: Place) -> bool:
    """Whether two places share the trace or the trajectory."""
    return one.trace_id == other.trace_id or one.trajectory_id == other.trajectory_id


def is_named(place: Place) -> bool:
    """Whether something names the conversation; else the trace is the trajectory."""
    return place.trace_id != place.trajectory_id


def _from_next_input(
    models: Sequence[SpanView], found: Sequence[Told], place_of: Callable[[SpanView], Place], table: DialectTable
) -> list[Told]:
    """Calls of model spans that keep no output, read from the end of the next input in the same trace."""
    silent: dict[str, dict[str | None, SpanView]] = {}
    known = {(told.span.trace_id, one) for told in found for one in told.ids}
    added: list[Told] = []
    for span in models:
        waiting = silent.setdefault(span.trace_id, {})
        if waiting:
            before = waiting.get(span.parent_id) or max(waiting.values(), key=lambda one: (one.start, one.span_id))
            asking = trailing_calls(input_messages(span, table=table))
            fresh = _of_model(before, asking, place_of(before), table)
            added += [told for told in fresh if not any((span.trace_id, one) in known for one in told.ids)]
            known |= {(span.trace_id, one) for told in fresh for one in told.ids}
        if output_messages(span, table):
            waiting.pop(span.parent_id, None)
        else:
            waiting[span.parent_id] = span
    return added


def _from_transcripts(
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    above: Callable[[SpanView], Iterable[SpanView]],
    table: DialectTable,
) -> list[Told]:
    """Calls in the transcripts that agent and workflow spans keep where nothing shows the model calls themselves."""
    read = {
        (span.trace_id, span.span_id): (span, pairs)
        for span in spans
        if _may_hold_transcript(span, table) and (pairs := _pairs(span, table))
    }
    outer = {(one.trace_id, one.span_id) for span, _ in read.values() for one in above(span)}
    seen: set[tuple[str, str]] = set()
    found: list[Told] = []
    for key, (span, pairs) in read.items():
        if key in outer:
            continue
        for index, (call, answer, agent) in enumerate(pairs):
            if call.call_id is not None and (span.trace_id, call.call_id) in seen:
                continue
            seen |= {(span.trace_id, call.call_id)} if call.call_id is not None else set()
            time = span.start + (span.end - span.start) * (index + 1) / (len(pairs) + 1)
            found.append(
                Told(span, index, call, decode_arguments(call.arguments).value, time, place_of(span),
                     agent=agent, transcript=True, answer=answer)
            )  # fmt: skip
    return found


def _may_hold_transcript(span: SpanView, table: DialectTable) -> bool:
    """Whether a span is neither a tool call, nor a pending copy of a span, nor a protocol message."""
    return (
        table.no_transcript.isdisjoint(span.attributes)
        and not any(test(span) for test in table.copy_tests)
        and recognise(span, table) is None
    )


def _pairs(span: SpanView, table: DialectTable) -> list[tuple[ToolCall, ToolAnswer | None, str | None]]:
    messages = transcript_messages(span, table)
    authors = [message.agent for message in messages for _ in message.calls]
    return [(call, answer, author) for (call, answer), author in zip(linked(messages), authors, strict=True)]
