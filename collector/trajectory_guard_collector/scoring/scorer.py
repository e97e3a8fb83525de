"""The scorer of requests: takes trace requests and returns them with the verdicts written in.

The scorer is called from the event loop only, so that nothing needs a lock. The same spans give the same verdicts as
in process: the same dialects read the spans, and the same engine evaluates the steps in the order in which they ended.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags

from trajectory_guard import __version__, telemetry
from trajectory_guard.board.configured_spending import spending_of
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.langfuse_tags import with_tags
from trajectory_guard.spending.prices import PriceTable
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.otlp.structure import TooDeepError, decoded
from trajectory_guard_collector.scoring.booking import BookedOperations, Bookings
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.identification import Identifier
from trajectory_guard_collector.scoring.items import EventKind, StepItem
from trajectory_guard_collector.scoring.parser import OpaqueSpan, ParsedRequest, RequestParser, any_value
from trajectory_guard_collector.scoring.registry import Attributes, TrajectoryRegistry
from trajectory_guard_collector.telemetry.metrics import Metrics, ScoringCounts
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

WalEntryOf = Callable[[ParsedRequest], bytes]
"""Makes the write-ahead entry of a parsed request, from which a restart replays it."""
_SCOPE: Final = InstrumentationScope(name=telemetry.SCOPE, version=__version__).SerializeToString()
_NANO: Final = 1_000_000_000
_LAST: Final = 2**64 - 1
"""The last time that OTLP can express. A time that was rounded to seconds with a fraction may lie behind it."""


class ScoredRequest(NamedTuple):
    """The result of scoring a request.

    Fields:
        data: the bytes to send on, unchanged if nothing was found.
        spans: number of spans in ``data``, the guard's own included.
        agent_spans: number of agent spans in the request.
        events: loop events to publish.
        wal_entry: entry from which a restart replays the request; None if the request has no agent span.
    """

    data: bytes
    spans: int
    agent_spans: int
    events: list[LoopEvent]
    wal_entry: bytes | None = None


class RequestScorer:
    """Scores trace requests.

    Parameters:
        config: detection, as in process.
        limits: memory of trajectories and traces.
        metrics: counts steps and findings.
        clock: monotonic seconds; for tests.
        learns_limits: as for ``RequestParser``.

    Attributes:
        spending: the ledger of all services, None if none is configured.

    Raises:
        ConfigError: the file of the ledger cannot be used.
    """

    def __init__(
        self,
        config: GuardConfig,
        limits: Trajectories,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        learns_limits: bool = False,
    ) -> None:
        table = table_with(config.dialects)
        self.metrics = metrics
        self.counts = ScoringCounts(metrics)
        self._prices = PriceTable()
        engine = Engine(config.engine_settings(), price=self._prices.cost)
        self.registry = TrajectoryRegistry(engine, config, limits, self.counts, clock=clock)
        self.spending = spending_of(config, self._prices, Counter())
        self._bookings = Bookings(self.spending, self.counts) if self.spending is not None else None
        operations = BookedOperations(self.registry, self._bookings) if self._bookings is not None else self.registry
        books = self._bookings is not None
        self.identifier = Identifier(table, config, limits, operations, self.counts, reads_calls=books)
        self._reader = RequestParser(table, limits.separate_by, learns_limits=learns_limits)
        self._tagger = Tagger(self.registry)
        self._log = ThrottledLog(logging.getLogger(__name__))

    def score(self, data: bytes, *, wal_entry_of: WalEntryOf | None = None) -> ScoredRequest:
        """Score the spans of a serialized ``ExportTraceServiceRequest``.

        Parameters:
            wal_entry_of: makes the write-ahead entry of a request with agent spans, before the request is tagged.

        Raises:
            google.protobuf.message.DecodeError: the bytes are no such request.
        """
        return at_once(self.scoring(data, wal_entry_of=wal_entry_of))

    def scoring(
        self, data: bytes, *, wal_entry_of: WalEntryOf | None = None, evaluate_s: float = math.inf
    ) -> Generator[None, None, ScoredRequest]:
        """``score`` as a generator that yields wherever the event loop may do other work. Run one at a time.

        Parameters, errors: as of ``score``.
            evaluate_s: seconds after which further steps are left to ``catching_up``.
        """
        until = time.monotonic() + evaluate_s
        parsed = yield from self._reader.parsing(data)
        if parsed.too_deep:
            self._pass_over(parsed.too_deep)
        yield from self.identifier.identifying(parsed)
        if self._bookings is not None:
            yield from self._bookings.committing()
        events = yield from self.registry.scoring(until)
        wal_entry = wal_entry_of(parsed) if wal_entry_of is not None and parsed.agent_spans else None
        tagged, guard_spans = self._tagger.tag(parsed, data, events)
        return ScoredRequest(tagged, parsed.count + guard_spans, len(parsed.agent_spans), events, wal_entry)

    def _pass_over(self, spans: int) -> None:
        self.metrics.error("parse.depth", spans)
        text = f"{spans} agent spans with values nested too deeply to be read are forwarded unchanged"
        self._log.log(logging.WARNING, "parse.depth", text)

    def maintain(self) -> ScoredRequest:
        """Evaluate steps whose reorder wait is over, and evict trajectories that were idle for too long.

        No request may be under evaluation. The result holds guard spans only.
        """
        if self._bookings is not None:
            at_once(self._bookings.committing())
        return self._unrequested(self.registry.maintain())

    def catching_up(self, evaluate_s: float) -> Generator[None, None, ScoredRequest]:
        """Evaluate steps for which their requests did not wait, for some seconds. Run as ``scoring``."""
        return self._unrequested((yield from self.registry.catching_up(time.monotonic() + evaluate_s)))

    def finish(self, evaluate_s: float = math.inf) -> ScoredRequest:
        """As ``maintain``, and evaluate all steps that wait for earlier steps, or as many as there is time for."""
        return at_once(self.finishing(evaluate_s))

    def finishing(self, evaluate_s: float = math.inf) -> Generator[None, None, ScoredRequest]:
        """``finish`` as a generator. Run as ``scoring``."""
        events = yield from self.registry.finishing(time.monotonic() + evaluate_s)
        return self._unrequested([*events, *self.registry.maintain()])

    def _unrequested(self, events: list[LoopEvent]) -> ScoredRequest:
        data, count = self._tagger.guard_spans(events)
        return ScoredRequest(data, count, 0, events)

    def shed(self) -> bool:
        """Free half of the memory that only serves late spans, and the names of attributes; scores are kept.

        Returns whether there was any of the former.
        """
        self._reader.shed()
        self.identifier.traces.shed()
        if self._bookings is not None:
            self._bookings.shed()
        return self.registry.shed()


class Tagger:
    """Writes verdicts into requests. A span that is delivered repeatedly gets the same attributes each time."""

    def __init__(self, registry: TrajectoryRegistry) -> None:
        self._registry = registry

    def tag(self, parsed: ParsedRequest, data: bytes, events: Sequence[LoopEvent]) -> tuple[bytes, int]:
        """The request with tags and guard spans, and the number of guard spans.

        Returns ``data``, the request as received, if there is nothing to write.
        """
        changed = False
        described: set[bytes] = set()
        pending_tags, has_pending_tags = self._registry.pending_tags, self._registry.has_pending_tags
        for agent_span in parsed.agent_spans:
            item = agent_span.item
            own = self._registry.attributes(item) if isinstance(item, StepItem) else None
            attributes = own or (pending_tags(agent_span.key) if has_pending_tags else None)
            encoded = encoded_attributes(attributes) if attributes else b""
            if attributes:
                agent_span.holder[agent_span.place] = tagged(agent_span.span, attributes, encoded)
                changed = True
            if isinstance(item, StepItem) and item.announced is not None and item.key is not None:
                described.add(item.span)
                _add_guard_span(agent_span.group, guard_span(item, item.announced, encoded if own else b""))
        if has_pending_tags:
            changed = self._tag_opaque(parsed.opaque_spans) or changed
        late = self._add_guard_spans(parsed.request, [event for event in events if event.item.span not in described])
        changed = changed or bool(described or late)
        return parsed.request.SerializeToString() if changed else data, len(described) + late

    def guard_spans(self, events: Sequence[LoopEvent]) -> tuple[bytes, int]:
        """A request with the guard spans of events that belong to no received request, and their number."""
        request = Request()
        count = self._add_guard_spans(request, events)
        return request.SerializeToString(), count

    def _add_guard_spans(self, request: Any, events: Sequence[LoopEvent]) -> int:
        items = [event.item for event in events if event.kind is not None]
        groups: dict[int, Any] = {}  # steps of one application share its resource
        for item in items:
            group = groups.get(id(item.origin))
            if group is None:
                group = groups[id(item.origin)] = request.resource_spans.add(resource=_resource(item))
            own = self._registry.attributes(item)
            encoded = encoded_attributes(own) if own else b""
            _add_guard_span(group, guard_span(item, item.announced or EventKind.START, encoded))
        return len(items)

    def _tag_opaque(self, spans: Iterable[OpaqueSpan]) -> bool:
        changed = False
        for trace_id, span_id, _, holder, place in spans:
            attributes = self._registry.pending_tags(trace_id + span_id)
            if attributes:
                with suppress(TooDeepError):
                    holder[place] = tagged(decoded(Span, holder[place]), attributes)
                    changed = True
        return changed


def tagged(span: Span, attributes: Attributes, encoded: bytes = b"") -> bytes:
    """The span with these attributes; its other attributes are kept, and Langfuse tags are added to existing ones.

    Parameters:
        encoded: ``encoded_attributes(attributes)``, if the caller needs it as well.
    """
    if attributes.keys().isdisjoint([attribute.key for attribute in span.attributes]):
        return span.SerializeToString() + (encoded or encoded_attributes(attributes))
    kept = [attribute for attribute in span.attributes if attribute.key not in attributes]
    before = next((attribute.value for attribute in span.attributes if attribute.key == telemetry.LANGFUSE_TAGS), None)
    values = dict(attributes)
    if before is not None and telemetry.LANGFUSE_TAGS in values:
        new = values[telemetry.LANGFUSE_TAGS]
        values[telemetry.LANGFUSE_TAGS] = with_tags(any_value(before), new)  # type: ignore[arg-type]
    result = Span.FromString(span.SerializeToString())
    del result.attributes[:]
    result.attributes.extend([*kept, *key_values(values)])
    return result.SerializeToString()


def guard_span(item: StepItem, kind: EventKind, encoded: bytes) -> bytes:
    """The guard's own span about a step, serialized. Its id derives from the step, so that a second delivery repeats
    the span. It stands under the parent of the step, so that trace state and flags of both are the same.

    Parameters:
        encoded: ``encoded_attributes`` of the finding.
    """
    end = min(round(item.view.end * _NANO), _LAST)
    span_id = item.span[16:]
    own = {telemetry.TOOL: item.step.tool_name}
    if kind is not EventKind.START and item.verdict is not None and item.verdict.certificate is not None:
        own[telemetry.CERTIFICATE] = item.verdict.certificate.to_json()
    span = Span(
        trace_id=item.span[:16],
        span_id=blake2b(item.span + kind.value.encode(), digest_size=8, person=b"guard-span").digest(),
        trace_state=item.trace_state,
        parent_span_id=item.parent_id or span_id,
        name=telemetry.LOOP_SPAN_NAME if kind is EventKind.START else telemetry.SPAN_NAME,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=end,
        end_time_unix_nano=end,
        flags=item.flags,
    )
    # The flags of a link say whether the linked span is a remote one; those of a span, whether its parent is.
    local = item.flags & ~SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    span.links.add(trace_id=item.span[:16], span_id=span_id, trace_state=item.trace_state, flags=local)
    return span.SerializeToString() + encoded + encoded_attributes(own)


def _add_guard_span(group: Any, span: bytes) -> None:
    group.scope_spans.add(scope=_SCOPE, spans=[span])


def _resource(item: StepItem) -> bytes:
    """The resource of a step as within its request, as far as it was kept."""
    attributes = {"service.name": item.service, **item.origin.attributes}
    return Resource(attributes=key_values(attributes)).SerializeToString()


def encoded_attributes(attributes: Mapping[str, Any]) -> bytes:
    """Attributes as a serialized span without anything else: behind the bytes of a span they become attributes of it,
    since serialized messages that follow each other are one message."""
    fields: Any = [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]
    return Span(attributes=fields).SerializeToString()


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes in OTLP's form."""
    return [KeyValue(key=key, value=_any_value(value)) for key, value in attributes.items()]


def _any_value(value: Any) -> Any:
    """Fields of an ``AnyValue``: as a mapping, they take a third of the time of a message of their own."""
    if isinstance(value, str):
        return {"string_value": str(value)}
    if isinstance(value, bool):
        return {"bool_value": value}
    if isinstance(value, int):
        return {"int_value": value}
    if isinstance(value, float):
        return {"double_value": value}
    if isinstance(value, (list, tuple)):
        return {"array_value": {"values": [_any_value(one) for one in value]}}
    if isinstance(value, Mapping):
        return {"kvlist_value": {"values": [{"key": key, "value": _any_value(one)} for key, one in value.items()]}}
    if value is None:
        return {}
    return {"string_value": str(value)}
