"""Requests on their way from a transport to the pipeline: bounds, counts and replies, the same for gRPC and HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, NamedTuple, Protocol

from trajectory_guard_collector.config.models import GrpcReceiver, HttpReceiver
from trajectory_guard_collector.cooperative import in_turns
from trajectory_guard_collector.errors import OverloadedError, RefusedError, UnavailableError
from trajectory_guard_collector.gateway.hops import Hops
from trajectory_guard_collector.otlp.bounds import MAX_ELEMENTS, MAX_FIELDS
from trajectory_guard_collector.otlp.replies import RejectedItems
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.otlp.structure import count
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.catalogue import Metric
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

Accept = Callable[[Batch], Awaitable[RejectedItems | None]]
"""The pipeline: returns when a batch is safe to acknowledge, raises ``errors.RefusedError``. Items that it has dropped
are what it returns."""

_FIRST_SIZE: Final = 4 << 20
"""Assumed bytes of a request before any was seen: after a restart all senders send at once."""
_SIZE_WEIGHT: Final = 0.25
"""Share of the latest request in the usual size."""

_NOT_YET_S: Final = 1.0
"""Seconds after which a sender should try again while the collector starts."""

logger = logging.getLogger(__name__)


class RequestMemory(Protocol):
    """Room for requests: ``MemoryLimiter``."""

    def refuse(self, size: int = 0) -> str | None:
        """The reason why this many bytes cannot be accepted at present, None if they can."""

    def reading(self, size: int) -> AbstractContextManager[None]:
        """Context for reading this many bytes."""


class Unlimited:
    """A ``Memory`` without limit."""

    def refuse(self, size: int = 0) -> str | None:
        """Refuse nothing."""
        return None

    def reading(self, size: int) -> AbstractContextManager[None]:
        """Account for nothing."""
        return nullcontext()


class Bounds(NamedTuple):
    """Bounds of the structure of a request: ``max_elements`` and ``max_fields`` of the receiver."""

    max_elements: int = MAX_ELEMENTS
    max_fields: int = MAX_FIELDS


class RequestHandler:
    """Hands requests of one transport to the pipeline.

    Parameters:
        transport: ``grpc`` or ``http``.
        accept: the pipeline.
        metrics: counts.
        memory: limits memory; asked before a request is read, so that a refused one costs none.
        max_requests: maximum number of concurrent requests.
        bounds: bounds of the structure of a request.
        hops: recognises requests that come back.
        not_yet: the reason why no request can be taken yet, None once they can.
    """

    def __init__(
        self,
        transport: str,
        accept: Accept,
        metrics: Metrics,
        *,
        memory: RequestMemory,
        max_requests: int,
        bounds: Bounds | None = None,
        hops: Hops | None = None,
        not_yet: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._transport = transport
        self._accept = accept
        self._metrics = metrics
        self._memory = memory
        self._usual_size = float(_FIRST_SIZE)
        self._max_requests = max_requests
        self._bounds = bounds or Bounds()
        self._hops = hops or Hops()
        self._not_yet = not_yet
        self._reading = 0
        self._in_work: set[asyncio.Task[RejectedItems | None]] = set()
        self._closing = False
        self._log = ThrottledLog(logger)

    @contextmanager
    def reading(self, size: int = 0) -> Iterator[None]:
        """Context for reading a request of at least ``size`` bytes. Its full size is not known yet, so the usual one is
        assumed.

        Raises:
            OverloadedError: memory is short, or too many requests are in progress.
            UnavailableError: the collector is still starting, or the receiver is being stopped.
        """
        if self._closing:
            raise UnavailableError("shutting down")
        if why := self._not_yet():
            raise UnavailableError(why, retry_after_s=_NOT_YET_S)
        if self._reading + len(self._in_work) >= self._max_requests:
            raise OverloadedError(f"more than {self._max_requests} requests in progress")
        expected = max(size, int(self._usual_size))
        self.check_memory(expected)
        self._reading += 1
        try:
            with self._memory.reading(expected):
                yield
        finally:
            self._reading -= 1

    def check_memory(self, size: int = 0) -> None:
        """Between the parts of a request, or before ``size`` bytes are read.

        Raises:
            OverloadedError: memory is short.
        """
        if why := self._memory.refuse(size):
            raise OverloadedError(why)

    async def submit(self, signal: Signal, data: bytes, *, via: str | None = None) -> RejectedItems | None:
        """Pass a request to the pipeline and wait for the result. A sender that disconnects does not interrupt it.

        Returns:
            The items that were dropped: this collector had sent them itself, or no exporter takes their signal. None if
            all were accepted.

        Raises:
            RefusedError: the pipeline did not take it, or it cannot be decoded (``BadDataError``).
        """
        self._usual_size += _SIZE_WEIGHT * (len(data) - self._usual_size)
        max_elements, max_fields = self._bounds
        items = await in_turns(count(signal, data, max_elements=max_elements, max_fields=max_fields))
        if via and self._hops.comes_back(signal, via):
            return self._reject_own(signal, items)
        batch = Batch(signal, data, items)
        task = asyncio.ensure_future(self._hand_over(batch))
        self._in_work.add(task)
        task.add_done_callback(self._finished)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by drain(): the sender is still connected, and needs the reply that it may retry
                raise UnavailableError("shutting down") from None
            raise

    def _reject_own(self, signal: Signal, items: int) -> RejectedItems:
        """Drop a request that has come back, as a partial success: a sender does not send any of that again."""
        self._metrics.error("receiver.loop")
        reason = "this collector sent it: an exporter leads back here, directly or through others"
        self._count(catalogue.REFUSED[signal], items)
        # Python's exporters do not report a partial success themselves.
        self._log.log(logging.WARNING, signal.items, f"{self._transport}: rejected {items} {signal.items}: {reason}")
        return RejectedItems(items, reason)

    def _finished(self, task: asyncio.Task[RejectedItems | None]) -> None:
        self._in_work.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that a sender that disconnected causes no traceback

    def close(self) -> None:
        """Take no further requests."""
        self._closing = True

    async def drain(self, timeout_s: float) -> None:
        """Wait for running requests, at most ``timeout_s`` seconds, then cancel them."""
        if not self._in_work:
            return
        _, pending = await asyncio.wait(self._in_work, timeout=timeout_s)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _hand_over(self, batch: Batch) -> RejectedItems | None:
        signal, transport = batch.signal, self._transport
        try:
            rejected = await self._accept(batch)
        except RefusedError:
            self._count(catalogue.REFUSED[signal], batch.items)
            raise
        except Exception:  # the service continues, and the sender keeps the batch
            logger.exception("%s: a request of %d %s failed", transport, batch.items, signal.items)
            self._count(catalogue.FAILED[signal], batch.items)
            self._metrics.error("receiver")
            raise UnavailableError("internal error") from None
        self._count((catalogue.REFUSED if rejected is not None else catalogue.ACCEPTED)[signal], batch.items)
        return rejected

    def _count(self, row: Metric, items: int) -> None:
        self._metrics.add(row, items, receiver=catalogue.RECEIVER, transport=self._transport)


def handler_of(
    config: GrpcReceiver | HttpReceiver,
    accept: Accept,
    metrics: Metrics,
    *,
    memory: RequestMemory | None = None,
    hops: Hops | None = None,
    not_yet: Callable[[], str | None] = lambda: None,
) -> RequestHandler:
    """The handler of a receiver: transport and bounds are those of its section, the others as in ``RequestHandler``."""
    if isinstance(config, GrpcReceiver):
        transport, max_requests = "grpc", config.max_concurrent_requests
    else:
        transport, max_requests = "http", config.max_connections
    return RequestHandler(
        transport, accept, metrics, memory=memory or Unlimited(), max_requests=max_requests,
        bounds=Bounds(config.max_elements, config.max_fields), hops=hops, not_yet=not_yet,
    )  # fmt: skip


def count_request(metrics: Metrics, transport: str, status: str) -> None:
    """Count a request by the gRPC code name or HTTP status it was answered with, or the reason why it was cut off."""
    metrics.add(catalogue.REQUESTS, receiver=catalogue.RECEIVER, transport=transport, status=status)
