"""Identification: from spans to operations on trajectories.

A span names its conversation, agent and run itself, or a span above it does, which may arrive later, or another span of
its trace. This module decides to which trajectory each step and each model call belongs, and revises the decision as
more spans arrive. It knows nothing of the steps' evaluation: it calls seven operations (``Operations``), which the
trajectories of this process carry out, or which are sent to the process that holds them (``scoring.operations``).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from functools import partial
from typing import Final, Protocol

from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text_bounds import within_limit
from trajectory_guard.core.tracking.scope import GRAPH
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable, KeySet, RowKeys, recognise_keys
from trajectory_guard.integrations.langfuse.scores import session_of
from trajectory_guard.spans.extract import (
    agent_of,
    is_inner_duplicate,
    model_usage,
    read_handoff,
    read_known_step,
    trajectory_id,
    turn_around,
)
from trajectory_guard.spans.identity import (
    all_conversation_ids,
    batch_and_task,
    called_by_tool,
    conversation_id,
    instance_of,
    metadata_of,
    named_conversation,
)
from trajectory_guard.transcripts.asked import with_asked
from trajectory_guard.transcripts.messages import may_show_input
from trajectory_guard.transcripts.model_calls import dialect_of, model_call
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.scoring.calls import CALL_BYTES, read_again, read_call, revised
from trajectory_guard_collector.scoring.items import Item, Key, StepItem, UsageItem
from trajectory_guard_collector.scoring.lanes import in_lane
from trajectory_guard_collector.scoring.parser import AgentSpan, ParsedRequest
from trajectory_guard_collector.scoring.traces import SpanNode, Trace, TraceTable, is_revisable
from trajectory_guard_collector.telemetry.metrics import ScoringCounts
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1 << 20
_KEY_BYTES: Final = 24
_SPAN_ID_BYTES: Final = 8
_STEP_BYTES: Final = 2_200
"""Bytes that a step takes in memory beside its texts."""
_MAX_TRACE_STATE_CHARS: Final = 512
"""What W3C's recommendation asks to be propagated; a sender decides how long it is."""
_KEPT_BYTES: Final = 16_384
"""Steps up to this many bytes are kept whole for a second evaluation; longer ones are kept as a summary only."""


class Operations(Protocol):
    """The seven operations on trajectories that identification calls."""

    def known(self, span: bytes) -> Item | None:
        """The item of a span (trace id and span id) that was added before and can still be put in order."""

    def add(self, item: Item, key: Key) -> None:
        """Add an item to a trajectory."""

    def move(self, item: Item, key: Key | None) -> None:
        """Move an item to another trajectory; None: remove it, since it is no step of its own."""

    def refresh(self, item: Item) -> None:
        """The agent, the run or the model turn of a step, or the agent of a model call, is known now.

        All that followed from the item is no longer valid."""

    def rename(self, former: Key, key: Key) -> None:
        """The conversation of a trace is known now: what its trajectory has compacted continues under that name. The
        steps that can still be put in order are moved."""

    def name(self, key: Key, names: Iterable[str]) -> None:
        """Register further names of a trajectory."""

    def end(self, key: Key, trace_id: str) -> None:
        """The root span of a trace has ended, whose newest step is in this trajectory: a request is over."""


class Identifier:
    """Assigns the steps and model calls of parsed requests to trajectories. Single-threaded.

    Parameters:
        table: the dialects in use.
        config: as in process.
        limits: bounds of the traces that are remembered.
        operations: carries out the operations on trajectories.
        counts: counts duplicates and spans that cannot be read.
        reads_calls: read what a ledger needs of model calls.

    Attributes:
        traces: the spans that may turn out to be ancestors.
    """

    def __init__(
        self,
        table: DialectTable,
        config: GuardConfig,
        limits: Trajectories,
        operations: Operations,
        counts: ScoringCounts,
        *,
        reads_calls: bool = False,
    ) -> None:
        self._table = table
        self._max_chars = config.max_understood_chars
        self._operations = operations
        self._counts = counts
        self._reads_calls = reads_calls
        self._throttled = ThrottledLog(_log)
        self._roots: list[Trace] = []
        self.traces = TraceTable(limits.max_traces, limits.max_spans_per_trace, limits.max_traces_mib * _MIB)

    def identifying(self, parsed: ParsedRequest) -> Generator[None, None, None]:
        """Identify the spans of a request, and again the steps that waited for one of them.

        Yields wherever the event loop may do other work. Sets ``item`` of each agent span that is a step.
        """
        arrived = self._remember(parsed)
        for agent_span in parsed.agent_spans:
            try:
                self._take(agent_span)
            except Exception as error:  # noqa: BLE001  one odd span must not cost the others
                self._counts.error("evaluate.span")
                text, kind = "a span could not be scored; it is forwarded unchanged", f"span {type(error).__name__}"
                self._throttled.log(logging.ERROR, kind, text, error)
            yield
        for trace, span_id in arrived:
            self._ancestor_arrived(trace, span_id)
            yield
        for trace in self._roots:
            if trace.key is not None:
                self._operations.end(trace.key, trace.id.hex())
        self._roots.clear()

    def session_of(self, item: StepItem) -> str | None:
        """The session Langfuse puts a step into, as far as is known by now; None if it has none.

        It is that of the step's span or of the nearest one above it; else the only one that the trace's spans name.
        """
        trace = self.traces.find(item.span[:-_SPAN_ID_BYTES])
        if trace is None:
            return session_of([item.view.attributes])
        near = trace.ancestors(item.span[-_SPAN_ID_BYTES:]).known
        named = session_of(view.attributes for view in (item.view, *near))
        if named is not None:
            return named
        views = (node.view for node in trace.spans.values())
        every = {session_of([view.attributes]) for view in views if view is not None} - {None}
        return every.pop() if len(every) == 1 else None

    # --- trace context ---------------------------------------------------------------------------------------

    def _remember(self, parsed: ParsedRequest) -> list[tuple[Trace, bytes]]:
        """Remember all spans as possible ancestors. Returns those that steps of earlier requests waited for."""
        arrived = []
        for agent_span in parsed.agent_spans:
            trace = agent_span.trace = self.traces.get(agent_span.trace_id)
            self.traces.remember(trace, agent_span.span_id, SpanNode(agent_span.parent_id, agent_span.kept_view))
            if trace.waiting and agent_span.span_id in trace.waiting:
                arrived.append((trace, agent_span.span_id))
        find, early = self.traces.find, self.traces.early
        for trace_id, span_id, parent_id, _, _ in parsed.opaque_spans:
            known = find(trace_id)
            if known is None:
                early.add(trace_id, span_id, parent_id)
            else:
                if not parent_id:
                    self._roots.append(known)
                self.traces.remember(known, span_id, SpanNode(parent_id))
                if known.waiting and span_id in known.waiting:
                    arrived.append((known, span_id))
        return arrived

    def _ancestor_arrived(self, trace: Trace, span_id: bytes) -> None:
        """Identify the steps and model calls below an ancestor again, now that it has arrived."""
        for item in trace.waiting.pop(span_id, ()):
            if isinstance(item, UsageItem):
                self._read_call_again(trace, item)
            elif not item.evicted:
                self._identify_again(trace, item)

    def _learn(self, trace: Trace, conversation: str, tenant: str) -> None:
        if self.traces.learn(trace, conversation):
            if trace.conversation:  # none if it is the second one
                self._operations.rename((tenant, trace.id.hex()), (tenant, trace.conversation))
            for item in trace.by_trace:
                if item.key is not None and is_revisable(item):
                    self._follow(trace, item)

    # --- spans in --------------------------------------------------------------------------------------------

    def _take(self, agent_span: AgentSpan) -> None:
        view, trace = agent_span.view, agent_span.trace
        if view.scope == telemetry.SCOPE or trace is None:
            return  # the guard span of an in-process guard; the step itself arrives as well
        if len(agent_span.key) != _KEY_BYTES:
            self._counts.error("evaluate.ids")
            service = agent_span.origin.service
            self._throttled.log(logging.WARNING, "ids", f"a span of {service} has no valid ids: not scored")
            return
        agent_span.item = self._operations.known(agent_span.key)
        if agent_span.item is not None:
            self._counts.duplicate()
            return
        known = self._table.key_set(view.attributes)
        row = recognise_keys(view, known) if known.declared or known.built_in else None
        if row is None:
            self._take_other(agent_span, trace, known)
        else:
            self._take_step(agent_span, trace, row, known)

    def _take_other(self, agent_span: AgentSpan, trace: Trace, known: KeySet) -> None:
        view, table = agent_span.view, self._table
        metadata = metadata_of(view.attributes, known)
        conversation = named_conversation(view.attributes, known, metadata)
        if conversation is not None:
            self._learn(trace, conversation, agent_span.origin.tenant)
        if known.handoffs and self._take_handoff(agent_span, trace, known):
            return
        usage = model_usage(view, table, known)
        if usage is None:
            if not agent_span.parent_id:  # a call that is a root says nothing of the request
                self._roots.append(trace)
            return
        tenant = agent_span.origin.tenant
        above, missing = trace.ancestors(agent_span.parent_id)
        step = None
        if may_show_input(view, table):
            usage = with_asked(usage, view, table)
            by_trace = partial(self._by_trace, trace)
            step = model_call(view, lambda: above, usage, by_trace, table, is_whole=not missing)
        key = agent_span.key if step is None else usage_key(agent_span.key)
        item = UsageItem(key, (view.end, view.span_id), view.trace_id, view.scope, usage, agent_span.origin)
        item.task = batch_and_task(view, known, metadata)[1]
        trajectory = conversation or self._by_trace(trace, view)
        if self._reads_calls:
            item.call = read_call(view, above, view.resource, self._table, is_complete=not missing)
            item.size += CALL_BYTES
            if missing:
                trace.wait(missing, item, self.traces.max_spans)
        self._operations.add(item, (tenant, trajectory))
        if conversation is None:
            trace.follow(item, self.traces.max_spans)
        if step is not None:
            self._file(agent_span, trace, step, dialect_of(view, table), above, missing)

    def _take_step(self, agent_span: AgentSpan, trace: Trace, row: RowKeys, known: KeySet) -> None:
        above, missing = trace.ancestors(agent_span.parent_id)
        view, table = agent_span.view, self._table
        by_trace = partial(self._by_trace, trace)
        step = read_known_step(view, row, known, above, by_trace, table, is_whole=not missing)
        if step is None:  # a hand-off that is written as a tool
            self._take_other(agent_span, trace, known)
        else:
            self._file(agent_span, trace, step, row.row, above, missing)

    def _take_handoff(self, agent_span: AgentSpan, trace: Trace, known: KeySet) -> bool:
        """File a hand-off without a tool; False if the span, like most with such keys, stands for none."""
        view, table = agent_span.view, self._table

        def above() -> list[SpanView]:
            return trace.ancestors(agent_span.parent_id).known

        step = read_handoff(view, known, above, partial(self._by_trace, trace), table)
        if step is None:
            return False
        self._file(agent_span, trace, step, dialect_of(view, table), *trace.ancestors(agent_span.parent_id))
        return True

    def _file(
        self, agent_span: AgentSpan, trace: Trace, step: StepRecord, dialect: Dialect, above: list[SpanView],
        missing: bytes,
    ) -> None:  # fmt: skip
        """File a tool call, or a model call that may repeat, with what is known of its identity by now."""
        item = self._item(agent_span, step, dialect)
        item.flags = agent_span.span.flags
        if len(state := agent_span.span.trace_state) <= _MAX_TRACE_STATE_CHARS:
            item.trace_state = state
        agent_span.item = item
        if missing:
            item.own_agent, item.own_run = step.agent_id, step.run
            if above:
                item.own_agent = agent_of(agent_span.view, (), dialect, self._table)
                item.own_run = instance_of(agent_span.view, (), self._table)
            item.step = in_lane(step, missing)
            trace.wait(missing, item, self.traces.max_spans)
        of_tool = step.model_scope is None
        if of_tool and above and is_inner_duplicate(item.view, above, self._table, dialect):
            return
        self._assign(trace, item, above)

    def _item(self, agent_span: AgentSpan, step: StepRecord, dialect: Dialect) -> StepItem:
        if step.model_scope is not None:  # its input is not kept
            size = len(step.result or "")
            return StepItem(agent_span.key, step, agent_span.kept_view, dialect, agent_span.origin, _STEP_BYTES + size)
        size = min(agent_span.size, _KEPT_BYTES)
        if agent_span.size > _KEPT_BYTES:
            step = within_limit(step, self._max_chars)
            size += len(step.result or "")
        return StepItem(agent_span.key, step, agent_span.kept_view, dialect, agent_span.origin, _STEP_BYTES + size)

    def _assign(self, trace: Trace, item: StepItem, above: list[SpanView]) -> None:
        """Put a step into its trajectory, out of another one if it was filed before."""
        view, key = item.view, (item.tenant, item.step.trajectory_id)
        if self._names_conversation((view, *above)):
            self._learn(trace, key[1], item.tenant)
        else:
            trace.follow(item, self.traces.max_spans)
        if item.key is None:
            self._operations.add(item, key)
        elif item.key != key:
            self._operations.move(item, key)
        self._name(trace, key, view)

    def _names_conversation(self, spans: Iterable[SpanView]) -> bool:
        return any(conversation_id(span.attributes, self._table) is not None for span in spans)

    def _name(self, trace: Trace, key: Key, view: SpanView | None = None) -> None:
        """Register the trace id and all conversation ids of the span as names of the trajectory, for flag lookups."""
        if trace.key != key:
            trace.key = key
            others = all_conversation_ids(view.attributes, self._table) if view is not None else ()
            self._operations.name(key, (key[1], trace.id.hex(), *others))

    def _by_trace(self, trace: Trace, span: SpanView) -> str:
        return trace.conversation or span.trace_id

    # --- late identity ---------------------------------------------------------------------------------------

    def _identify_again(self, trace: Trace, item: StepItem) -> None:
        above, missing = trace.ancestors(item.parent_id)
        if missing:
            trace.wait(missing, item, self.traces.max_spans)
        of_model, in_tool = item.step.model_scope is not None, called_by_tool(above, self._table)
        if in_tool if of_model else is_inner_duplicate(item.view, above, self._table):
            self._operations.move(item, None)
            return
        agent = item.own_agent or agent_of(item.view, above, item.dialect, self._table)
        named = trajectory_id(item.view, above, partial(self._by_trace, trace), self._table)
        run = None if in_tool else item.own_run  # a call in a tool may name the graph of the tool
        run = run or instance_of(item.view, above, self._table, unnamed=named == item.view.trace_id)
        batch = item.step.batch if item.step.batch is not None else turn_around(item.view, above, self._table)
        step = in_lane(item.step._replace(agent_id=agent, trajectory_id=named, run=run, batch=batch), missing)
        changed = step != item.step
        if changed:
            item.step = step
        if item.key is None or named != item.key[1]:
            self._assign(trace, item, above)
        elif changed:
            self._operations.refresh(item)

    def _read_call_again(self, trace: Trace, item: UsageItem) -> None:
        call = item.call
        node = trace.spans.get(bytes.fromhex(call.span_id)) if call is not None else None
        if call is None or node is None or node.view is None:
            return
        above, missing = trace.ancestors(node.parent)
        if missing:
            trace.wait(missing, item, self.traces.max_spans)
        item.call = read_again(call, node.view, above, self._table, is_complete=not missing)
        if item.call != call:
            self._operations.refresh(item)

    def _follow(self, trace: Trace, item: Item) -> None:
        """Move an item that followed its trace to the conversation, unless a span above the item names another."""
        key: Key = (item.tenant, trace.conversation or trace.id.hex())
        if key == item.key:
            return
        if isinstance(item, StepItem):
            if self._names_conversation(trace.ancestors(item.parent_id).known):
                return
            run = item.step.run if (item.step.run or "")[:1] != GRAPH else None
            item.step = item.step._replace(trajectory_id=key[1], run=run)
        elif item.call is not None:
            item.call = revised(item.call)
        if item.evicted:  # its steps were charged; the ledger follows the conversation
            item.key = key
            self._operations.refresh(item)
            return
        self._operations.move(item, key)
        self._name(trace, key)


def usage_key(span: bytes) -> bytes:
    """Key of the usage of a model call that is also a step: the span itself is the key of the step."""
    return span[:-_SPAN_ID_BYTES] + bytes(one ^ 0xFF for one in span[-_SPAN_ID_BYTES:])
