"""What every batch goes through: limiter, engine, tagger, delivery."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from trajectory_guard_collector.cooperative import in_turns
from trajectory_guard_collector.errors import BadDataError, OverloadedError, Refusal
from trajectory_guard_collector.otlp.signals import Batch, Receipt, Signal
from trajectory_guard_collector.otlp.structure import Part, parts
from trajectory_guard_collector.scoring.events import News
from trajectory_guard_collector.scoring.scorer import Judge, Judged
from trajectory_guard_collector.state.wal import join_journals
from trajectory_guard_collector.telemetry.metrics import Metrics

_log: Final = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 1.0
_MAX_SPANS: Final = 2_048
_MAX_BYTES: Final = 1 << 20
_MAX_UNSENT: Final = 64
"""Requests with more spans or bytes than these are judged in parts, so that others get their turn in between."""

Listener = Callable[[Sequence[News]], None]
"""Hears what there is to tell, in the event loop, before the batch is delivered."""


class Deliver(Protocol):
    """Where batches go: ``Delivery``."""

    async def deliver(self, batch: Batch, *, key: bytes = b"", journal: bytes | None = None) -> None:
        """Return when the batch is safe to acknowledge."""


class Pipeline:
    """Takes batches from receivers and answers for them.

    Traces are judged in the event loop: handing them to a thread costs more than the judging of a usual batch, since
    both want the interpreter. It can be interrupted after every span, and one request is judged at a time; large
    batches are judged in parts, so that other batches get their turn in between.

    Parameters:
        judge: judges traces.
        delivery: takes what goes on.
        metrics: counts.
        refuse: why nothing can be taken right now, None if something can.
        journaled: whether delivery keeps a journal for restarts.
        listeners: hear of news.
    """

    def __init__(
        self,
        judge: Judge,
        delivery: Deliver,
        metrics: Metrics,
        *,
        refuse: Callable[[], str | None] = lambda: None,
        journaled: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._judge = judge
        self._delivery = delivery
        self._metrics = metrics
        self._refuse = refuse
        self._journaled = journaled
        self._listeners = listeners
        self._judging = asyncio.Lock()
        self._unsent: deque[Batch] = deque(maxlen=_MAX_UNSENT)  # guard spans that no request carries

    async def accept(self, batch: Batch, transport: str) -> Receipt:
        """Return when the batch is judged, if it holds traces, and safe to acknowledge.

        Raises:
            Refusal: it is not; the sender still has it.
        """
        reason = self._refuse()
        if reason is not None:
            self._metrics.limiter_refused(batch.signal, batch.items)
            raise OverloadedError(reason, retry_after_s=_RETRY_AFTER_S)
        if batch.signal is Signal.TRACES:
            await self._accept_traces(batch)
        else:
            await self._delivery.deliver(batch, key=_digest(batch.data))
        return Receipt()

    async def rest(self) -> None:
        """Publish what was found without a request: of steps that have waited, and of agents that have recovered."""
        async with self._judging:
            judged = self._judge.rest()
        await self._publish(judged)

    async def finish(self) -> None:
        """As ``rest``, for all steps that wait: nothing more is going to arrive."""
        async with self._judging:
            judged = self._judge.finish()
        await self._publish(judged)

    async def _publish(self, judged: Judged) -> None:
        if judged.news:
            self._tell(judged.news)
        if judged.spans:
            self._unsent.append(Batch(Signal.TRACES, judged.data, judged.spans))
        while self._unsent:
            try:
                await self._delivery.deliver(self._unsent[0])
            except Refusal as refusal:
                _log.warning("guard spans wait for the next try: %s", refusal.message)
                return
            self._metrics.outgoing(Signal.TRACES, self._unsent.popleft().items)

    async def _accept_traces(self, batch: Batch) -> None:
        self._metrics.incoming(batch.signal, batch.items)
        small = batch.items <= _MAX_SPANS and len(batch.data) <= _MAX_BYTES
        judged = await (self._judged(batch) if small else self._judged_in_parts(batch))
        if judged.news:
            self._tell(judged.news)
        tagged = Batch(Signal.TRACES, judged.data, judged.spans)
        await self._delivery.deliver(tagged, key=_digest(batch.data), journal=judged.journal)
        self._metrics.outgoing(batch.signal, judged.spans)

    async def _judged_in_parts(self, batch: Batch) -> Judged:
        """Concatenated requests are one request: so parts can be judged one by one, and put together again."""
        cut, results, same = parts(batch.data), [], True
        while (part := await in_turns(_next(cut))) is not None:
            judged = await self._judged(Batch(batch.signal, part.data, part.spans))
            same = same and judged.data is part.data
            results.append(judged)
            await asyncio.sleep(0)
        return Judged(
            batch.data if same else b"".join(judged.data for judged in results),
            sum(judged.spans for judged in results),
            sum(judged.agent_spans for judged in results),
            [news for judged in results for news in judged.news],
            join_journals([judged.journal for judged in results if judged.journal is not None]),
        )

    async def _judged(self, batch: Batch) -> Judged:
        started = time.perf_counter()
        try:
            async with self._judging:
                judged = await in_turns(self._judge.judging(batch.data, journaled=self._journaled))
        except DecodeError as error:
            raise BadDataError(f"not a valid ExportTraceServiceRequest: {error}") from None
        except Exception:  # noqa: BLE001  the guard fails, the telemetry goes on
            self._metrics.error("judge")
            _log.exception("a request of %d spans could not be judged; it is forwarded as it is", batch.items)
            return Judged(batch.data, batch.items, 0, [])
        self._metrics.judge_duration(time.perf_counter() - started, judged.agent_spans)
        return judged

    def _tell(self, news: Sequence[News]) -> None:
        for listener in self._listeners:
            self._tell_one(listener, news)

    def _tell_one(self, listener: Listener, news: Sequence[News]) -> None:
        try:
            listener(news)
        except Exception:  # noqa: BLE001  who listens must not cost the batch
            self._metrics.error("listener")
            _log.exception("news could not be told")


def _next(cut: Iterator[Part]) -> Generator[None, None, Part | None]:
    """The next part, in a turn of its own."""
    yield
    return next(cut, None)


def _digest(data: bytes) -> bytes:
    """Tells a batch that is sent again from others; a cryptographic hash would take a tenth of all the time."""
    return hash(data).to_bytes(8, "big", signed=True)
