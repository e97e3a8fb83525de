"""Delivery of a batch to one backend: attempts, pauses, halving, counting."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trajectory_guard import backoff
from trajectory_guard.errors import PortableError
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.gateway.exporters.base import (
    Exporter,
    PermanentExportError,
    RetryableExportError,
)
from trajectory_guard_collector.gateway.exporters.splitting import halves
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

MAX_REFUSED_PARTS: Final = 32


class GaveUpError(PortableError):
    """A backend did not take a batch in time.

    Parameters:
        message: the last failure.
        items: number of items that the backend does not have.
        retry_after_s: seconds the backend asked to wait.
    """

    def __init__(self, message: str, *, items: int, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.items = items
        self.retry_after_s = retry_after_s


class Sender:
    """Sends batches to one backend until it has them.

    A batch that is refused for its size or for something in it is halved until the part that is refused is a single
    span, metric or log record; only that is dropped, counted and logged. After 32 dropped parts of a batch nothing is
    halved any more: the rest is sent in the parts at hand, and those that are refused are dropped whole. So a
    backend that refuses everything costs at most some hundred requests a batch.

    Parameters:
        exporter: the backend.
        retry: pauses.
        metrics: counters.
        log: for failures.
    """

    def __init__(self, exporter: Exporter, retry: Retry, metrics: Metrics, log: ThrottledLog) -> None:
        self.exporter = exporter
        self._retry = retry
        self._metrics = metrics
        self._log = log
        self._failing_since: float | None = None

    @property
    def name(self) -> str:
        """Name of the exporter."""
        return self.exporter.name

    def takes(self, signal: Signal) -> bool:
        """Whether the backend gets this signal."""
        return signal in self.exporter.signals

    async def send(
        self,
        batch: Batch,
        *,
        give_up_at: Callable[[], float] = lambda: math.inf,
        stop: asyncio.Event | None = None,
        joined: Sequence[Batch] = (),
    ) -> None:
        """Return when the backend has every item that it accepts.

        Parameters:
            batch: the batch to send.
            give_up_at: no attempt begins after this time of the event loop's clock; asked again each time.
            stop: once it is set, no attempt follows one that failed.
            joined: the requests it was made of, if several: sent one by one where it is refused and cannot be halved.

        Raises:
            GaveUpError: the time was up, or an attempt failed and ``stop`` is set.
        """
        parts, refused = [batch], 0
        while parts:
            part = parts.pop()
            try:
                await self._deliver(part, give_up_at, stop)
            except PermanentExportError as error:
                pair = await self._halves(part, error) if refused < MAX_REFUSED_PARTS else None
                if pair is None and part is batch and error.divisible and len(joined) > 1:
                    parts.extend(reversed(joined))
                elif pair is None:
                    refused += 1
                    self._drop(part, str(error))
                else:
                    parts.extend(reversed(pair))
            except GaveUpError as error:
                error.items += sum(rest.items for rest in parts)
                raise

    async def _deliver(self, part: Batch, give_up_at: Callable[[], float], stop: asyncio.Event | None) -> None:
        clock = asyncio.get_running_loop().time
        backoff, began = RetryPauses(self._retry), clock()
        while True:
            try:
                return await self._attempt(part)
            except RetryableExportError as error:
                if clock() - began > error.patience_s:
                    raise PermanentExportError(str(error), divisible=True) from error
                pause_s = backoff.next_pause_s(error.retry_after_s)
                over = clock() + pause_s > give_up_at()
                if stop is None or not stop.is_set():
                    then = "there is no time for another attempt" if over else f"the next attempt is in {pause_s:.1f} s"
                    self._report("retry", f"{error}; {then}")
                over = over or await _paused(pause_s, stop)
                if over:
                    raise GaveUpError(str(error), items=part.items, retry_after_s=error.retry_after_s) from error
            self._metrics.add(catalogue.RETRIES, exporter=self.name)

    async def _attempt(self, part: Batch) -> None:
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            result = await self.exporter.export(part)
        except RetryableExportError as error:
            self._failing_since = start if self._failing_since is None else self._failing_since
            self._note_reply(error.unreadable)
            if error.retry_after_s is not None:
                error.retry_after_s = min(error.retry_after_s, self._retry.max_retry_after_s)
            raise
        except PermanentExportError:
            raise
        except Exception as error:  # noqa: BLE001  the batch is kept, whatever an exporter raises
            self._metrics.error(f"exporter {self.name}")
            raise RetryableExportError(_unexpected(error)) from None
        finally:
            self._metrics.observe(catalogue.SEND_DURATION, clock() - start, exporter=self.name)
        self._note_reply(result.unreadable)
        if self._failing_since is not None:
            self._report("again", f"delivers again, after {start - self._failing_since:.0f} s", logging.INFO)
            self._failing_since = None
        self._metrics.add(catalogue.SENT[part.signal], part.items - result.rejected, exporter=self.name)
        if result.rejected:
            self._metrics.add(catalogue.SEND_FAILED[part.signal], result.rejected, exporter=self.name)
        if result.rejected or result.message:
            self._report("partial", f"{result.rejected} {part.signal.items} were rejected: {result.message}")

    def _note_reply(self, unreadable: bool) -> None:
        if unreadable:
            self._metrics.error("export.reply")

    async def _halves(self, part: Batch, error: PermanentExportError) -> tuple[Batch, Batch] | None:
        return await asyncio.to_thread(halves, part) if error.divisible else None

    def _drop(self, part: Batch, reason: str) -> None:
        self._metrics.add(catalogue.SEND_FAILED[part.signal], part.items, exporter=self.name)
        self._report("dropped", f"{part.items} {part.signal.items} were dropped: {reason}", logging.ERROR)

    def _report(self, kind: str, message: str, level: int = logging.WARNING) -> None:
        self._log.log(level, f"{self.name}/{kind}", f"exporter {self.name}: {message}")


def _unexpected(error: Exception) -> str:
    """Type and place of an error that no exporter expects: its text may hold the headers of the request."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name}, {Path(place.filename).name}:{place.lineno}"


async def _paused(seconds: float, stop: asyncio.Event | None) -> bool:
    """Wait. Returns whether ``stop`` was set before the time was over."""
    if stop is None:
        await asyncio.sleep(seconds)
        return False
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


class RetryPauses(backoff.Backoff):
    """Pauses of one batch at one backend.

    Parameters:
        retry: the configuration.
        uniform: random number between two bounds; for tests.
    """

    def __init__(self, retry: Retry, *, uniform: Callable[[float, float], float] = random.uniform) -> None:
        super().__init__(
            initial_s=retry.initial_interval_s,
            multiplier=retry.multiplier,
            max_s=retry.max_interval_s,
            jitter=retry.randomization_factor,
            uniform=uniform,
        )
