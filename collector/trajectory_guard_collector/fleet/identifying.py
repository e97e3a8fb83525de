"""The first stage: spans of one trace in, operations on trajectories out. Its state is the trace.

A record is the ``ExportTraceServiceRequest`` that the OpenTelemetry Collector's Kafka exporter writes for one trace,
under the trace's id in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.steps import Usage
from trajectory_guard.dialects.custom import table_with
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.fleet.live import Content, LiveObjects, State, StoredPart
from trajectory_guard_collector.fleet.records import Output, PoisonError, operation_records
from trajectory_guard_collector.scoring.identification import Identifier
from trajectory_guard_collector.scoring.item_codec import (
    dialects_by_name,
    item_of,
    plain_item,
    plain_view,
    view_from,
)
from trajectory_guard_collector.scoring.items import Item, ResourceInfo, StepItem, UsageItem
from trajectory_guard_collector.scoring.operations import OperationLog
from trajectory_guard_collector.scoring.parser import ParsedRequest, RequestParser
from trajectory_guard_collector.scoring.traces import EarlySpans, SpanNode, Trace
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

FORMAT_VERSION: Final = 1
_NO_VIEW, _OF_ITEM, _OWN = 0, 1, 2
"""Kinds of span nodes: without agent attributes, with the view of its step, with a view of its own."""
_NODE, _ITEM = "n", "i"
_OBJECT_BYTES: Final = 4_096
_NO_ORIGIN: Final = ResourceInfo({}, "", "")


class LiveTrace:
    """Identification of one trace: the trace, and the log of the operations that it calls."""

    __slots__ = ("id", "identifier", "log")

    def __init__(self, trace_id: bytes, identifier: Identifier, log: OperationLog) -> None:
        self.id = trace_id
        self.identifier = identifier
        self.log = log

    @property
    def trace(self) -> Trace | None:
        """The trace; None before its first agent span."""
        return self.identifier.traces.find(self.id)


class IdentifyingStage:
    """Identifies the spans of traces.

    Parameters:
        config: detection, as in process.
        limits: bounds of a trace; ``max_traces`` bounds the spans that are remembered of traces without agents.
        counts: counts duplicates and spans that cannot be read.
        output: takes operations.
        ttl_s, max_bytes: as of ``LiveObjects``.
        with_sessions: write the Langfuse session of each step with it.
    """

    def __init__(
        self,
        config: GuardConfig,
        limits: Trajectories,
        counts: ScoringCounts,
        output: Output,
        ttl_s: float,
        max_bytes: float,
        *,
        with_sessions: bool = False,
    ) -> None:
        table = table_with(config.dialects)
        self._parser = RequestParser(table, limits.separate_by)
        self._table, self._config, self._counts, self._output = table, config, counts, output
        self._early = EarlySpans(limits.max_traces)
        self._limits, self._with_sessions = limits.model_copy(update={"max_traces": 1}), with_sessions
        self._dialects = dialects_by_name(table)
        self.live: LiveObjects[LiveTrace] = LiveObjects(self, ttl_s, max_bytes, lambda: counts.error("state.trace"))

    def take(self, key: bytes | None, data: bytes, state: State, at_ms: int) -> None:
        """Identify the spans of a record, and write the operations that follow.

        Parameters:
            key: the trace's id in hexadecimal.
            data: the serialized request.
            at_ms: time of the record in milliseconds since the epoch.

        Raises:
            PoisonError: the record, or a span of it, can never be processed; the other spans are.
            FatalError: the state store or the output failed.
        """
        try:
            parsed = self._parser.read(data)
        except DecodeError as error:
            raise PoisonError(f"no ExportTraceServiceRequest: {error}") from None
        if not parsed.count:
            return
        trace_id = _checked_key(key, parsed)
        if not parsed.agent_spans and not self.live.is_stored(state):
            for _, span_id, parent_id, _, _ in parsed.opaque_spans:
                self._early.add(trace_id, span_id, parent_id)
            return
        live = self.live.open(trace_id.hex().encode(), state, at_ms)
        if live.trace is None:
            self._remember_early(live)
        at_once(live.identifier.identifying(parsed))
        for trajectory, operations in operation_records(live.log.take()):
            self._output.send("operations", trajectory, operations, at_ms)

    def _remember_early(self, live: LiveTrace) -> None:
        """The first agent span of a trace has arrived: remember its earlier spans too.

        They stay in memory, because the records of a commit that fails are read again.
        """
        traces = live.identifier.traces
        for span_id, parent_id in self._early.of(live.id).items():
            traces.remember(traces.get(live.id), span_id, SpanNode(parent_id))

    # --- form of a trace -------------------------------------------------------------------------------------

    def new(self, key: bytes) -> LiveTrace:
        """See ``Form``."""
        log = OperationLog(2 * self._limits.max_spans_per_trace)
        identifier = Identifier(self._table, self._config, self._limits, log, self._counts)
        log.session_of = identifier.session_of if self._with_sessions else None
        return LiveTrace(bytes.fromhex(key.decode("ascii")), identifier, log)

    def prepare_commit(self, value: LiveTrace) -> None:
        """See ``Form``: nothing is put off."""

    def size(self, value: LiveTrace) -> int:
        """See ``Form``."""
        return _OBJECT_BYTES + value.identifier.traces.size + sum(one.size for one in value.log.items if one.held)

    def content(self, value: LiveTrace) -> Content | None:
        """See ``Form``. Steps whose identity is final are known by their span only."""
        trace = value.trace
        if trace is None:
            return None
        known = value.log.items
        held = {item.span: item for item in (*known, *_held(trace)) if item.held and not item.evicted}
        head: dict[str, Any] = {
            "v": FORMAT_VERSION,
            "nodes": [],
            "conversation": trace.conversation,
            "key": trace.key,
            "waiting": [
                [span.hex(), [one.span[16:].hex() for one in some if not one.evicted]]
                for span, some in trace.waiting.items()
            ],
            "by_trace": [one.span[16:].hex() for one in trace.by_trace if not one.evicted],
            "known": [one.span[16:].hex() for one in known],
        }
        parts = {f"{_ITEM}{span[16:].hex()}": _item_part(item) for span, item in held.items()}
        for span, node in trace.spans.items():
            view, item = node.view, held.get(trace.id + span)
            kind = _NO_VIEW if view is None else _OF_ITEM if isinstance(item, StepItem) and item.view is view else _OWN
            head["nodes"].append([span.hex(), node.parent.hex(), kind])
            if view is not None and kind == _OWN:
                parts[f"{_NODE}{span.hex()}"] = StoredPart(view, partial(plain_view, view))
        return Content(head, parts)

    def load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> LiveTrace:
        """See ``Form``."""
        try:
            return self._load(key, head, parts)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"damaged trace: {type(error).__name__}: {error}") from None

    def _load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> LiveTrace:
        if head["v"] != FORMAT_VERSION:
            raise ValueError(f"trace format version {head['v']!r} is unknown")
        live = self.new(key)
        trace = live.identifier.traces.get(live.id)
        trace.conversation = head["conversation"]
        trace.key = tuple(head["key"]) if head["key"] is not None else None
        items: dict[str, Item] = {}
        for name, plain in parts.items():
            if name.startswith(_ITEM):
                item = item_of(plain["item"], self._dialects)
                item.held, item.key = True, tuple(plain["key"]) if plain["key"] is not None else None
                items[name[1:]] = item
        for span, parent, kind in head["nodes"]:
            view = None
            if kind == _OWN:
                view = view_from(parts[f"{_NODE}{span}"])
            elif kind == _OF_ITEM and isinstance(item := items[span], StepItem):
                view = item.view
            live.identifier.traces.remember(trace, bytes.fromhex(span), SpanNode(bytes.fromhex(parent), view))
        for span in head["known"]:
            known = items.get(span)
            live.log.restore(
                known if known is not None else _final(live.id + bytes.fromhex(span)),
                known.key if known is not None else None,
            )
        for span, some in head["waiting"]:
            trace.waiting[bytes.fromhex(span)] = [item for name in some if isinstance(item := items[name], StepItem)]
        trace.by_trace = [items[name] for name in head["by_trace"]]
        return live


def _checked_key(key: bytes | None, parsed: ParsedRequest) -> bytes:
    """The trace of a record: all its spans are of one trace, under whose id it was written."""
    traces = {agent_span.trace_id for agent_span in parsed.agent_spans}
    traces |= {opaque_span[0] for opaque_span in parsed.opaque_spans}
    trace_id = traces.pop()
    if traces:
        raise PoisonError("the record has spans of several traces: set partition_traces_by_id in the kafka exporter")
    if key is None or key.lower() != trace_id.hex().encode():
        shown = "none" if key is None else repr(key[:40])
        raise PoisonError(
            f"the record's key is {shown}, not the id of its trace: set partition_traces_by_id in the kafka exporter"
        )
    if len(trace_id) != 16:
        raise PoisonError(f"a trace id has 16 bytes, this one {len(trace_id)}")
    return trace_id


def _held(trace: Trace) -> Iterator[Item]:
    """Items that may still get another identity."""
    for some in trace.waiting.values():
        yield from some
    yield from trace.by_trace


def _final(span: bytes) -> UsageItem:
    """A stand-in for a span whose identity is final: a second delivery must be recognized, no more."""
    return UsageItem(span, (0.0, ""), "", "", Usage(), _NO_ORIGIN)


def _item_part(item: Item) -> StoredPart:
    version = (item.key, item.step, item.moved) if isinstance(item, StepItem) else (item.key,)
    return StoredPart(version, lambda: {"key": item.key, "item": plain_item(item)})
