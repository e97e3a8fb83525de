"""Context of each trace: its spans as possible ancestors, its conversation, and the steps that wait for either."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Final, NamedTuple

from trajectory_guard.dialects.span import SpanView
from trajectory_guard.spans.duplicates import MAX_ANCESTORS
from trajectory_guard_collector.scoring.items import Item, Key, UsageItem

_SEVERAL: Final = ""
_NODES_PER_TRACE: Final = 4
_NODE_BYTES: Final = 300
_VIEW_BYTES: Final = 1_500
"""Bytes that an agent span takes beside its attribute values, with the step that may wait for another span."""
_SLOT_BYTES: Final = 30
_IDS_BYTES: Final = 16 + 8 + 8
"""Bytes of the ids of a span, of its trace and of its parent: longer ones are not ids, and could be of any length."""


class SpanNode:
    """A span that may turn out to be an ancestor.

    Attributes:
        parent: id of its parent, empty for a root.
        view: the span without content; None if it has no agent attributes.
        size: approximate bytes in memory.
    """

    __slots__ = ("parent", "size", "view")

    def __init__(self, parent: bytes, view: SpanView | None = None) -> None:
        self.parent = parent
        self.view = view
        self.size = _NODE_BYTES
        if view is not None:
            values = view.attributes.values()
            self.size += _VIEW_BYTES + sum(map(getsizeof, values)) + _SLOT_BYTES * len(values)


class Ancestors(NamedTuple):
    """Spans above a span, nearest first, and the id of the first one that has not arrived (empty: none is missing)."""

    known: list[SpanView]
    missing: bytes


class Trace:
    """One trace.

    Attributes:
        id: sixteen bytes.
        spans: span nodes by span id.
        conversation: the conversation id that its spans name; None if none does, empty if they name several.
        waiting: steps, and model calls for a ledger, by the id of the ancestor that has not arrived.
        by_trace: steps and usage that only the trace assigns to a trajectory.
        key: trajectory of its newest step.
    """

    __slots__ = ("by_trace", "conversation", "id", "key", "spans", "waiting")

    def __init__(self, trace_id: bytes) -> None:
        self.id = trace_id
        self.spans: dict[bytes, SpanNode] = {}
        self.conversation: str | None = None
        self.waiting: dict[bytes, list[Item]] = {}
        self.by_trace: list[Item] = []
        self.key: Key | None = None

    def ancestors(self, parent: bytes) -> Ancestors:
        """The known ancestors of a span with this parent, nearest first."""
        known: list[SpanView] = []
        for _ in range(MAX_ANCESTORS):
            if not parent:
                break
            node = self.spans.get(parent)
            if node is None:
                return Ancestors(known, parent)
            if node.view is not None:
                known.append(node.view)
            parent = node.parent
        return Ancestors(known, b"")

    def wait(self, missing: bytes, item: Item, limit: int) -> None:
        """Let a step or a model call wait for an ancestor."""
        if len(self.waiting) < limit:
            item.held = True
            self.waiting[missing] = _bounded(self.waiting.get(missing, []), limit, item)

    def follow(self, item: Item, limit: int) -> None:
        """Let an item follow the trace's conversation once that becomes known."""
        item.held = True
        self.by_trace = _bounded(self.by_trace, limit, item)
        if len(self.by_trace) > limit:
            del self.by_trace[0]


def _bounded(items: list[Item], limit: int, item: Item) -> list[Item]:
    """``items`` with one more. Beyond the limit those that can be put in order stay, and the newest that are booked."""
    items.append(item)
    surplus = len(items) - limit
    if surplus <= 0:
        return items
    kept = [one for one in items if is_revisable(one)]
    surplus -= len(items) - len(kept)
    booked = [one for one in kept if one.evicted]
    given_up = set(map(id, booked[: max(0, surplus)]))
    return [one for one in kept if id(one) not in given_up]


def is_revisable(item: Item) -> bool:
    """Whether it still matters whose an item is: it can be put in order, or a ledger has booked it."""
    return not item.evicted or (isinstance(item, UsageItem) and item.call is not None)


class EarlySpans:
    """Spans without agent attributes of traces that have no agent span yet; the traces that wait longest go first.

    Most of them belong to traces without agents. But one may stand between a step and its agent, and does not come
    again: without it the step would count for no agent, or for another run.

    Parameters:
        max_spans: spans of all traces together.
    """

    def __init__(self, max_spans: int) -> None:
        self._max_spans = max_spans
        self._parents: OrderedDict[bytes, dict[bytes, bytes]] = OrderedDict()  # of each span by id, by trace id
        self._spans = 0

    def add(self, trace_id: bytes, span_id: bytes, parent: bytes) -> None:
        """Remember a span; beyond the limit, forget the oldest traces."""
        if len(trace_id) + len(span_id) + len(parent) > _IDS_BYTES:
            return
        parents = self._parents.get(trace_id)
        if parents is None:
            self._parents[trace_id] = {span_id: parent}
        elif span_id in parents:
            return
        else:
            parents[span_id] = parent
        self._spans += 1
        while self._spans > self._max_spans:
            self._spans -= len(self._parents.popitem(last=False)[1])

    def of(self, trace_id: bytes) -> Mapping[bytes, bytes]:
        """The ids of the parents of a trace's spans, by span id."""
        return self._parents.get(trace_id, {})

    def take(self, trace_id: bytes) -> Mapping[bytes, bytes]:
        """As ``of``, and forget them."""
        parents = self._parents.pop(trace_id, {})
        self._spans -= len(parents)
        return parents

    def clear(self) -> None:
        """Forget all spans."""
        self._parents.clear()
        self._spans = 0


class TraceTable:
    """Traces by id; evicts the least recently used first.

    Parameters:
        max_traces: traces remembered.
        max_spans_per_trace: spans remembered of each trace, and four per trace on average over all of them.
        max_bytes: approximate bytes that all traces together may take in memory.

    A trace is known from its first agent span on.

    Attributes:
        early: spans that arrive before, as many as ``max_traces``.
        size: approximate bytes in memory.
        find: the trace with an id if it is known; asked once for each span, so no function of its own.
        changed: conversations by trace id that became known, or (None) were forgotten, since the state writer last
            saved and cleared them; None without a state writer.
    """

    def __init__(self, max_traces: int, max_spans_per_trace: int, max_bytes: float) -> None:
        self._max_traces = max_traces
        self.max_spans = max_spans_per_trace
        self._max_nodes = max(max_spans_per_trace, _NODES_PER_TRACE * max_traces)
        self._max_bytes = max_bytes
        self._nodes = 0
        self.size = 0
        self.changed: dict[bytes, str | None] | None = None
        self._traces: OrderedDict[bytes, Trace] = OrderedDict()
        self.early = EarlySpans(max_traces)
        self.find: Callable[[bytes], Trace | None] = self._traces.get

    def __len__(self) -> int:
        return len(self._traces)

    def get(self, trace_id: bytes) -> Trace:
        """The trace; creates it if it is not known."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = Trace(trace_id)
            if len(self._traces) > self._max_traces:
                self._forget_oldest()
            for span_id, parent in self.early.take(trace_id).items():
                self.remember(trace, span_id, SpanNode(parent))
        else:
            self._traces.move_to_end(trace_id)
        return trace

    def learn(self, trace: Trace, conversation: str) -> bool:
        """Record the conversation that a span of the trace names. Returns whether the trace's conversation changed."""
        if trace.conversation in (conversation, _SEVERAL):
            return False
        trace.conversation = conversation if trace.conversation is None else _SEVERAL
        if self.changed is not None:
            self.changed[trace.id] = trace.conversation
        return True

    def remember(self, trace: Trace, span_id: bytes, node: SpanNode) -> None:
        """Remember a span of a trace; beyond the limits, evict the trace's oldest spans, then the oldest traces."""
        spans = trace.spans
        if (before := spans.get(span_id)) is not None:
            self._discount(before)
        spans[span_id] = node
        self._nodes += 1
        self.size += node.size
        while len(spans) > self.max_spans or (self.size > self._max_bytes and len(self._traces) == 1 < len(spans)):
            self._discount(spans.pop(next(iter(spans))))
        while (self._nodes > self._max_nodes or self.size > self._max_bytes) and len(self._traces) > 1:
            self._forget_oldest()

    def _discount(self, node: SpanNode) -> None:
        self._nodes -= 1
        self.size -= node.size

    def shed(self) -> None:
        """Evict the less recently used half of the traces, and spans of traces that are not known."""
        self.early.clear()
        for _ in range(len(self._traces) // 2):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, oldest = self._traces.popitem(last=False)
        for node in oldest.spans.values():
            self._discount(node)
        if oldest.conversation is not None and self.changed is not None:
            self.changed[oldest.id] = None
