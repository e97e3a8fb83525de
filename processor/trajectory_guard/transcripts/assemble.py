"""From a set of spans, in any order, to the calls they stand for: identity resolved, duplicates counted once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.content.outcome import classify
from trajectory_guard.core.steps import DENIED, INTERRUPTED, SUCCESS, Evidence, StepRecord
from trajectory_guard.core.tracking.tables import NameTable
from trajectory_guard.dialects.base import RESULT_KEYS, Dialect, first
from trajectory_guard.dialects.span import GUARD_SCOPE, SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise, table_of
from trajectory_guard.spans.content import is_object_repr
from trajectory_guard.spans.duplicates import (
    MAX_ANCESTORS,
    ancestors,
    drop_duplicates,
)
from trajectory_guard.spans.extract import is_inner_duplicate, model_usage, read_handoff, read_step, trajectory_id
from trajectory_guard.spans.identity import agent_name, conversation_id, is_agent_span
from trajectory_guard.transcripts.matching import match_steps
from trajectory_guard.transcripts.messages import is_model_span
from trajectory_guard.transcripts.model_calls import model_call
from trajectory_guard.transcripts.requested_calls import Place, RequestedCall, requested_calls
from trajectory_guard.transcripts.spanless import is_handoff_span, requests_handoff, step_of
from trajectory_guard.transcripts.spending import with_usage
from trajectory_guard.transcripts.tool_results import find_results
from trajectory_guard.transcripts.transcript import ToolCall, result_text
from trajectory_guard.transcripts.workflows import agents_by_call, wrapped_call

__all__ = ["MAX_ANCESTORS", "drop_duplicates", "extract_steps", "is_inner_duplicate"]


def extract_steps(
    spans: Iterable[SpanView],
    *,
    dialects: Sequence[Dialect] = DIALECTS,
    messages: bool = True,
    model_calls: bool = False,
) -> list[StepRecord]:
    """Steps of all tool calls among ``spans``, ordered by start time; the result does not depend on their order.

    Parameters:
        dialects: the table to read tool spans with.
        messages: also count calls that left no tool span (unknown tools, refused calls, bare model clients), read from
            the messages of model spans. Their ``dialect`` ends in ``.messages``.
        model_calls: also give what the engine evaluates besides: the model calls whose input and answer the spans show,
            which are steps if they repeat, and hand-offs between agents that have a span and no tool.
    """
    assembly = _Assembly(spans, table_of(dialects))
    others = [*drop_duplicates(list(assembly.handoffs())), *(assembly.model_calls() if model_calls else ())]
    steps = sorted([*assembly.steps(messages), *others], key=lambda step: (step.timestamp, step.step_id))
    found = with_usage(steps, assembly.spans, assembly.conversation_of, assembly.table)
    return found if model_calls else [step for step in found if not step.is_toolless]  # it has taken its usage


class _Assembly:
    """One set of spans, with the conversations and ancestors that they name for each other."""

    def __init__(self, spans: Iterable[SpanView], table: DialectTable) -> None:
        self.table = table
        # In the guard's own spans another vendor's processor may have entered the signs of a tool.
        self.by_id = {(span.trace_id, span.span_id): span for span in spans if span.scope != GUARD_SCOPE}
        self.spans = sorted(self.by_id.values(), key=lambda span: (span.start, span.span_id, span.trace_id))
        self.places: dict[tuple[str, str], Place] = {}
        self.conversations = _trace_conversations(self.spans, table)

    def steps(self, messages: bool) -> list[StepRecord]:
        found = [step for span in self.spans if (step := self._tool_step(span)) is not None]
        found = self._complete_workflows(found)
        found.sort(key=lambda step: (step.timestamp, step.step_id))
        found = drop_duplicates(found)
        if messages:
            requested = requested_calls(self.spans, self._place, self._above, self.table)
            found = self._with_messages(found, requested) + self._spanless(requested)
            found.sort(key=lambda step: (step.timestamp, step.step_id))
        return found

    def model_calls(self) -> Iterator[StepRecord]:
        for span in self.spans:
            if not self.table.markers.isdisjoint(span.attributes) and recognise(span, self.table) is not None:
                continue
            usage = model_usage(span, self.table)
            if usage is not None:
                step = model_call(span, partial(self._above, span), usage, self._conversation, self.table)
                if step is not None:
                    yield step

    def handoffs(self) -> Iterator[StepRecord]:
        for span in self.spans:
            known = self.table.key_set(span.attributes)
            if known.handoffs and self._tool_step(span) is None:
                step = read_handoff(span, known, partial(self._above, span), self._conversation, self.table)
                if step is not None:
                    yield step

    def _tool_step(self, span: SpanView) -> StepRecord | None:
        dialect = None if self.table.markers.isdisjoint(span.attributes) else recognise(span, self.table)
        if dialect is None:
            return None
        above = list(self._above(span))
        if is_inner_duplicate(span, above, self.table, dialect):
            return None
        return read_step(span, dialect, above, self._conversation, self.table)

    def conversation_of(self, span: SpanView) -> str:
        """The conversation that a span names, else that of its trace."""
        named = conversation_id(span.attributes, self.table)
        return named if named is not None else self._conversation(span)

    def _conversation(self, span: SpanView) -> str:
        return self.conversations.get(span.trace_id, span.trace_id)

    def _place(self, span: SpanView) -> Place:
        key = (span.trace_id, span.span_id)
        if key not in self.places:
            named = trajectory_id(span, list(self._above(span)), self._conversation, self.table)
            self.places[key] = Place(span.trace_id, named)
        return self.places[key]

    def _above(self, span: SpanView) -> Iterator[SpanView]:
        return ancestors(span, self.by_id)

    # --- completed from other spans -----------------------------------------------------------------------------

    def _complete_workflows(self, steps: list[StepRecord]) -> list[StepRecord]:
        """Call ids and agents that stand in the workflow steps around a LlamaIndex tool span."""
        agents = agents_by_call(self.spans, self.table)
        return [self._with_agent(self._with_call_id(step), agents) for step in steps]

    def _with_call_id(self, step: StepRecord) -> StepRecord:
        if step.call_id is not None or step.dialect not in self.table.workflow_dialects:
            return step
        span = self.by_id[step.trace_id or "", step.span_id or ""]
        parent = next(self._above(span), None)
        wrapped = wrapped_call(parent, self.table) if parent is not None else None
        return step if wrapped is None else step._replace(call_id=wrapped[0])

    def _with_agent(self, step: StepRecord, agents: Mapping[tuple[str, str], str]) -> StepRecord:
        if step.agent_id is not None or step.call_id is None:
            return step
        return step._replace(agent_id=agents.get((step.trace_id or "", step.call_id)))

    # --- completed from messages --------------------------------------------------------------------------------

    def _with_messages(self, steps: list[StepRecord], requested: list[RequestedCall]) -> list[StepRecord]:
        match_steps(requested, steps)
        self._fill_arguments(requested)
        incomplete = {step.step_id for step in steps if self._lacks_result(step)}
        open_calls = [one for one in requested if one.step is None or one.step.step_id in incomplete]
        covered = {one.step.step_id for one in open_calls if one.step is not None}
        open_calls += [self._as_requested(step) for step in steps if step.step_id in incomplete - covered]
        find_results(open_calls, self.spans, self._place, self.table)
        thoughts = {one.step.step_id: one.thought for one in requested if one.step is not None and one.thought}
        results = {one.step.step_id: one for one in open_calls if one.step is not None}
        return [
            _with_result(step._replace(thought=thoughts.get(step.step_id)), results.get(step.step_id)) for step in steps
        ]

    def _fill_arguments(self, requested: Iterable[RequestedCall]) -> None:
        """Fill in arguments that only the workflow step around a call shows."""
        if not any(one.step is None and one.args is None for one in requested):
            return
        wrapped = {
            (span.trace_id, found[0]): found[1]
            for span in self.spans
            if (found := wrapped_call(span, self.table)) is not None
        }
        for one in requested:
            if one.args is None and one.call.call_id is not None:
                one.args = wrapped.get((one.span.trace_id, one.call.call_id))

    def _as_requested(self, step: StepRecord) -> RequestedCall:
        """A tool span as a call that the model call before it requested, so that its result can be found."""
        span = self.by_id[step.trace_id or "", step.span_id or ""]
        place = Place(span.trace_id, step.trajectory_id)
        asker = span
        for one in self.spans:
            if one.start > span.start:
                break
            if one.trace_id == span.trace_id and is_model_span(one, self.table):
                asker = one
        call = ToolCall(step.tool_name, step.args, step.call_id)
        return RequestedCall(asker, 0, call, step.args, step.timestamp, place, (0, 0), step=step)

    def _lacks_result(self, step: StepRecord) -> bool:
        """A call that waits for approval, or whose result is the repr of an object instead of its content."""
        if step.result is not None:
            return False
        if step.outcome_type == INTERRUPTED:
            return True
        attributes = self.by_id[step.trace_id or "", step.span_id or ""].attributes
        written = first(attributes, RESULT_KEYS)
        return isinstance(written, str) and is_object_repr(written)

    def _spanless(self, requested: Iterable[RequestedCall]) -> list[StepRecord]:
        handoffs = {span.trace_id for span in self.spans if is_handoff_span(span, self.table)}
        spanless = [one for one in requested if one.step is None and one.call.name]
        agents = self._agents() if spanless else {}
        return [
            step_of(one, list(self._above(one.span)), self.table, agents.get(one.span.trace_id, ()))
            for one in spanless
            if not requests_handoff(one, handoffs)
        ]

    def _agents(self) -> dict[str, set[str]]:
        """The names of the agents that have spans, by trace."""
        named: dict[str, set[str]] = {}
        for span in self.spans:
            if is_agent_span(span, self.table) and (name := agent_name(span, (span,), self.table)):
                named.setdefault(span.trace_id, set()).add(name)
        return named


def _with_result(step: StepRecord, requested: RequestedCall | None) -> StepRecord:
    """A step with the result that the model saw: a person's refusal, or the text behind an object's repr."""
    if requested is None or requested.result is None:
        return step
    text, kind = result_text(requested.result), step.outcome_type
    if kind == INTERRUPTED:
        if classify(text, failed=None, refused=requested.result.approved is False) != DENIED:
            return step
        kind = DENIED
    elif kind == SUCCESS:
        kind = classify(text)
    evidence = Evidence.FULL if text is not None and step.args is not None else step.evidence
    return step._replace(outcome_type=kind, result=text, state_snapshot_hash=result_hash(kind, text), evidence=evidence)


def _trace_conversations(spans: Iterable[SpanView], table: DialectTable) -> dict[str, str]:
    """Conversation id per trace, of those whose spans name one and no other."""
    found: NameTable[str, str] = NameTable(sys.maxsize)
    traces = set()
    for span in spans:
        named = conversation_id(span.attributes, table)
        if named is not None:
            found.learn(span.trace_id, named)
            traces.add(span.trace_id)
    return {trace: named for trace in traces if (named := found.find(trace)) is not None}
