"""The path of a batch through the collector: limiter, scoring, tagger, delivery."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from trajectory_guard_collector.cooperative import in_turns
from trajectory_guard_collector.errors import BadDataError, OverloadedError, RefusedError
from trajectory_guard_collector.otlp.replies import RejectedItems
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.otlp.structure import RequestPart, parts
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.scorer import RequestScorer, ScoredRequest, WalEntryOf
from trajectory_guard_collector.state.wal import join_wal_entries
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import Metric
from trajectory_guard_collector.telemetry.metrics import Metrics

_log: Final = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 1.0
_MAX_SPANS: Final = 2_048
_MAX_BYTES: Final = 1 << 20
"""Requests with more spans or bytes than these are scored in parts, so that other requests get their turn."""
_MAX_UNSENT: Final = 64
_CATCH_UP_S: Final = 0.05
"""Seconds for which other requests wait while steps are evaluated that no request waits for."""
_FINISH_S: Final = 5.0

Listener = Callable[[Sequence[LoopEvent]], None]
"""Called with loop events, in the event loop, before the batch is delivered."""


class Deliver(Protocol):
    """Receives scored batches: ``Delivery``."""

    async def deliver(self, batch: Batch, *, key: bytes = b"", wal_entry: bytes | None = None) -> RejectedItems | None:
        """Return when the batch is safe to acknowledge: the items that no exporter takes, None if there are none."""


class Pipeline:
    """Accepts batches from receivers, scores traces, and delivers.

    The pipeline scores traces in the event loop: a thread would cost more than scoring a usual batch, since both need
    the interpreter lock. Scoring can be interrupted after every span, and scores one request at a time; large batches
    are scored in parts, so that other batches get their turn.

    Parameters:
        scorer: scores traces.
        delivery: delivers batches to the exporters.
        metrics: counts batches and measures scoring time.
        refuse: returns the reason why no batch can be accepted at present; None if batches can be.
        wal_entry_of: makes the write-ahead entry that delivery stores for a restart; None without storage.
        listeners: called with loop events.
        evaluate_s: seconds for which a request waits for the evaluation of its steps.
    """

    def __init__(
        self,
        scorer: RequestScorer,
        delivery: Deliver,
        metrics: Metrics,
        *,
        refuse: Callable[[], str | None] = lambda: None,
        wal_entry_of: WalEntryOf | None = None,
        listeners: Sequence[Listener] = (),
        evaluate_s: float = math.inf,
    ) -> None:
        self._evaluate_s = evaluate_s
        self._scorer = scorer
        self._delivery = delivery
        self._metrics = metrics
        self._refuse = refuse
        self._wal_entry_of = wal_entry_of
        self._listeners = listeners
        self._scoring = asyncio.Lock()
        self.has_spans = False  # whether any have been taken over
        self._unsent: deque[Batch] = deque(maxlen=_MAX_UNSENT)  # guard spans that no request carries

    async def accept(self, batch: Batch) -> RejectedItems | None:
        """Return when the batch is scored, if it holds traces, and safe to acknowledge.

        Returns:
            Metrics or logs that are dropped, since no exporter takes them.

        Raises:
            RefusedError: the batch is not safe; the sender still has it.
        """
        reason = self._refuse()
        if reason is not None:
            self._metrics.add(catalogue.LIMITER_REFUSED[batch.signal], batch.items)
            raise OverloadedError(reason, retry_after_s=_RETRY_AFTER_S)
        if batch.signal is Signal.TRACES:
            await self._accept_traces(batch)
            return None
        return await self._delivery.deliver(batch, key=_digest(batch.data))

    async def maintain(self) -> None:
        """Publish loop events that no request causes: of steps that have waited, and of agents that have recovered."""
        while self._scorer.registry.is_behind:
            async with self._scoring:
                scored = await in_turns(self._scorer.catching_up(_CATCH_UP_S))
            await self._publish(scored)
            await asyncio.sleep(0)
        async with self._scoring:
            scored = self._scorer.maintain()
        await self._publish(scored)

    async def finish(self) -> None:
        """As ``maintain``, for all waiting steps: no further spans are going to arrive."""
        async with self._scoring:
            scored = self._scorer.finish(_FINISH_S)
        await self._publish(scored)

    async def _publish(self, scored: ScoredRequest) -> None:
        if scored.events:
            self._notify(scored.events)
        if scored.spans:
            if len(self._unsent) == _MAX_UNSENT:
                self._metrics.error("guard_spans")
                _log.warning("%d guard spans are dropped: %d batches wait already", self._unsent[0].items, _MAX_UNSENT)
            self._unsent.append(Batch(Signal.TRACES, scored.data, scored.spans))
        while self._unsent:
            try:
                await self._delivery.deliver(self._unsent[0])
            except RefusedError as rejection:
                _log.warning("guard spans are kept for the next attempt: %s", rejection.message)
                return
            self._count(catalogue.OUTGOING, self._unsent.popleft().items)

    async def _accept_traces(self, batch: Batch) -> None:
        self._count(catalogue.INCOMING, batch.items)
        small = batch.items <= _MAX_SPANS and len(batch.data) <= _MAX_BYTES
        scored = await (self._scored(batch, self._evaluate_s) if small else self._scored_in_parts(batch))
        tagged = Batch(Signal.TRACES, scored.data, scored.spans)
        await self._delivery.deliver(tagged, key=_digest(batch.data), wal_entry=scored.wal_entry)
        self.has_spans = True
        self._count(catalogue.OUTGOING, scored.spans)

    async def _scored_in_parts(self, batch: Batch) -> ScoredRequest:
        """Score a request part by part and join the results: concatenated serialized requests are one request."""
        cut, results, same, left_s = parts(batch.data), [], True, self._evaluate_s
        while (part := await in_turns(_next(cut))) is not None:
            started = time.monotonic()
            scored = await self._scored(Batch(batch.signal, part.data, part.spans), left_s)
            left_s -= time.monotonic() - started
            same = same and scored.data is part.data
            results.append(scored)
            await asyncio.sleep(0)
        return ScoredRequest(
            batch.data if same else b"".join(scored.data for scored in results),
            sum(scored.spans for scored in results),
            sum(scored.agent_spans for scored in results),
            [event for scored in results for event in scored.events],
            join_wal_entries([scored.wal_entry for scored in results if scored.wal_entry is not None]),
        )

    async def _scored(self, batch: Batch, evaluate_s: float) -> ScoredRequest:
        started = time.perf_counter()
        try:
            async with self._scoring:
                work = self._scorer.scoring(batch.data, wal_entry_of=self._wal_entry_of, evaluate_s=evaluate_s)
                scored = await in_turns(work)
        except DecodeError as error:
            raise BadDataError(f"not a valid ExportTraceServiceRequest: {error}") from None
        except Exception:  # noqa: BLE001  the guard fails, the telemetry goes on
            self._metrics.error("evaluate")
            _log.exception("a request of %d spans could not be scored; it is forwarded unchanged", batch.items)
            return ScoredRequest(batch.data, batch.items, 0, [])
        seconds = time.perf_counter() - started
        self._metrics.observe(catalogue.SCORING_DURATION, seconds, processor=catalogue.PROCESSOR)
        if scored.agent_spans:
            self._metrics.observe(catalogue.LATENCY, seconds / scored.agent_spans)
        if scored.events:  # those of a part: a later part may be refused, and what was found is found only once
            self._notify(scored.events)
        return scored

    def _count(self, row: Metric, spans: int) -> None:
        self._metrics.add(row, spans, processor=catalogue.PROCESSOR, otel_signal=Signal.TRACES.value)

    def _notify(self, events: Sequence[LoopEvent]) -> None:
        for listener in self._listeners:
            self._notify_one(listener, events)

    def _notify_one(self, listener: Listener, events: Sequence[LoopEvent]) -> None:
        try:
            listener(events)
        except Exception:  # noqa: BLE001  a listener that fails must not cost the batch
            self._metrics.error("listener")
            _log.exception("a listener failed to process loop events")


def _next(cut: Iterator[RequestPart]) -> Generator[None, None, RequestPart | None]:
    """The next part, in a turn of its own."""
    yield
    return next(cut, None)


def _digest(data: bytes) -> bytes:
    """Hash that identifies a batch sent again; a cryptographic hash would take a tenth of the processing time."""
    return hash(data).to_bytes(8, "big", signed=True)
