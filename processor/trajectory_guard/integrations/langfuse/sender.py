"""Sends scores to Langfuse from its own thread: bounded, rate-limited, retried; it never blocks the application."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from trajectory_guard import telemetry
from trajectory_guard.backoff import MAX_REQUESTED_PAUSE_S, Backoff
from trajectory_guard.integrations.langfuse.client import (
    Connection,
    RefusedAccessError,
    RetryableScoreError,
    ScoresClient,
    SendOutcome,
)
from trajectory_guard.integrations.langfuse.scores import LangfuseScore
from trajectory_guard.process.forking import ForkDelay, after_fork, load_here
from trajectory_guard.process.suppression import suppressed

_log: Final = logging.getLogger(telemetry.LOGGER)
_MAX_BATCH: Final = 15
_EXIT_TIMEOUT_S: Final = 5.0
_FINALIZER: Final = 10
_IMPORT: Final = ForkDelay()

SENT: Final = "sent"
REJECTED: Final = "rejected"
DROPPED: Final = "dropped"


class RateLimit(NamedTuple):
    """Queue size, rate limit and retry delays of a sender.

    Fields:
        max_waiting: scores in the queue; beyond it the oldest are dropped (and counted).
        batches_per_minute: requests, evenly spread: of up to 15 scores, or of one where the server takes no lists. The
            default is the limit of the smallest plan of Langfuse Cloud. Of queued scores with one id the newest stays.
        initial_s, multiplier, max_s: first delay in seconds, its growth factor, and the maximum in seconds.
        jitter: share (0 to 1) by which each delay is varied.
        refused_s: delay in seconds while the keys are wrong.
        max_requested_s: longest delay in seconds that the server can ask for.
    """

    max_waiting: int = 1_000
    batches_per_minute: float = 30.0
    initial_s: float = 1.0
    multiplier: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.2
    refused_s: float = 60.0
    max_requested_s: float = MAX_REQUESTED_PAUSE_S


OnFinished = Callable[[Sequence[LangfuseScore], str], None]
"""Called on the sender's thread with scores that left the queue, and the outcome: sent, rejected or dropped."""
OnFailed = Callable[[str], None]
"""Called on the sender's thread after a failed attempt with HTTP status, ``unreachable``, ``invalid`` or ``error``."""


class ScoreSender:
    """A queue of scores and the thread that sends them. The thread starts with the first score.

    Requests that fail temporarily (429, 5xx, no connection) are retried without limit, with growing delays and not
    before ``Retry-After``; while the keys are wrong nothing is sent. Rejected scores are counted and logged.

    Parameters:
        connection: address, keys and timeouts.
        rate_limit: queue size, requests per minute, and retry delays.
        name: of the thread, and in log lines.
        counts: where scores are counted by outcome (``scores.sent`` and so on), and failures
            (``score_attempts.`` and the status, ``errors.langfuse``).
        on_finished: called with scores that left the queue.
        on_failed: called after a failed attempt.
    """

    def __init__(
        self,
        connection: Connection,
        rate_limit: RateLimit | None = None,
        *,
        name: str = "langfuse",
        counts: Counter[str] | None = None,
        on_finished: OnFinished | None = None,
        on_failed: OnFailed = lambda status: None,
    ) -> None:
        self._connection = connection
        self._rate_limit = rate_limit or RateLimit()
        self._name = name
        self._on_finished = on_finished
        self._on_failed = on_failed
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._waiting: OrderedDict[str, LangfuseScore] = OrderedDict()
        rate_limit = self._rate_limit
        self._backoff = Backoff(
            initial_s=rate_limit.initial_s,
            multiplier=rate_limit.multiplier,
            max_s=rate_limit.max_s,
            jitter=rate_limit.jitter,
            max_requested_s=rate_limit.max_requested_s,
        )
        load_here("httpx", "numpy")
        self._reset()
        after_fork(self._after_fork)
        self._at_exit = _weakly(self.stop)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._threadless = False  # there should be one, but it could not be started
        self._finalizer: Any = None
        self._stopping = False
        self._give_up_at = 0.0
        self._not_before = self._paused_until = 0.0
        self._backoff.reset()
        self._interval_s = 60.0 / self._rate_limit.batches_per_minute
        self._in_flight: dict[str, LangfuseScore] = {}
        # of those in flight, the ones that have lost their place in the queue
        self._displaced: dict[str, LangfuseScore] = {}
        self._failing = ""

    def _after_fork(self) -> None:
        """Start empty in a forked child: the thread stayed in the parent, which sends the queued scores."""
        self._waiting.clear()
        self._reset()

    # --- in --------------------------------------------------------------------------------------------------

    def put(self, scores: Iterable[LangfuseScore]) -> None:
        """Send scores soon. Returns at once; a newer score takes the place of a waiting one with the same id."""
        dropped = []
        with self._changed:
            for score in scores:
                self._waiting[score.id] = score
                self._displaced.pop(score.id, None)
                if len(self._waiting) > self._rate_limit.max_waiting:
                    dropped += self._displace_oldest()
            self._start()
            self._changed.notify_all()
        self._finish(dropped, DROPPED)

    def _displace_oldest(self) -> list[LangfuseScore]:
        """Take the oldest score out of the queue. It is dropped, unless it is being sent: then it may still arrive."""
        key, oldest = self._waiting.popitem(last=False)
        if self._in_flight.get(key) is not oldest:
            return [oldest]
        self._displaced[key] = oldest
        return []

    def _start(self) -> None:
        self._stopping = False
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"{self._name}-scores", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or too many run: ``stop`` sends, or the next score tries again
            self._threadless = True
            return
        self._thread, self._threadless = thread, False
        atexit.register(self._at_exit)
        self._finalizer = self._finalizer or _at_exit_of_worker(self._at_exit)

    @property
    def waiting(self) -> list[LangfuseScore]:
        """Queued scores, oldest first."""
        with self._changed:
            return list(self._waiting.values())

    # --- out -------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty; returns whether it was in time. The rate limit still applies."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._thread is None, timeout_s)
            return not self._waiting

    def stop(self, timeout_s: float = _EXIT_TIMEOUT_S) -> list[LangfuseScore]:
        """Send queued scores until the time is up, and end the thread. Idempotent; a later score starts it again.

        Where no thread could be started, as while the interpreter ends, this sends itself: the last request may then
        take half of the time longer.

        Returns:
            The scores that were not sent.
        """
        with self._changed:
            thread = self._thread
            self._stopping, self._give_up_at = True, time.monotonic() + timeout_s
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout_s)
        elif self._threadless and timeout_s > 0:
            self._threadless = False
            self._run(self._connection._replace(timeout_s=min(self._connection.timeout_s, timeout_s / 2)))
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
            self._finalizer = None
        with self._changed:
            return [*self._displaced.values(), *self._waiting.values()]

    # --- the thread ------------------------------------------------------------------------------------------

    def _run(self, connection: Connection | None = None) -> None:
        client: ScoresClient | None = None
        with suppressed():
            while batch := self._next():
                before = client.requests if client is not None else 0
                client = self._attempt(client, batch, connection or self._connection)
                self._end_flight()
                if client is not None:
                    self._not_before += self._interval_s * max(0, client.requests - before - 1)
        if client is not None:
            client.close()

    def _attempt(
        self, client: ScoresClient | None, batch: Sequence[LangfuseScore], connection: Connection
    ) -> ScoresClient | None:
        refused_s = self._rate_limit.refused_s
        try:
            if client is None:
                with _IMPORT:
                    client = ScoresClient(connection)
            for part in client.send(batch):
                self._take(part)
            self._backoff.reset()
            self._failing = ""
        except RetryableScoreError as error:
            self._failed("langfuse_retries", error.status, str(error), requested_s=error.retry_after_s)
        except RefusedAccessError as error:
            self._failed("errors.langfuse", error.status, str(error), least_s=refused_s)
        except Exception as error:  # noqa: BLE001  the thread goes on, whatever happens
            self._failed(
                "errors.langfuse", "error", f"{type(error).__name__}: {connection.hide(str(error))}", least_s=refused_s
            )
        return client

    def _next(self) -> list[LangfuseScore]:
        """The next batch, as soon as it may be sent; none when the thread is to end."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._stopping and (not self._waiting or now >= self._give_up_at):
                    self._thread = None
                    return []
                pause_s = max(self._paused_until, 0.0 if self._stopping else self._not_before) - now
                if self._waiting and pause_s <= 0:
                    self._not_before = now + self._interval_s
                    batch = list(islice(self._waiting.values(), _MAX_BATCH))
                    self._in_flight = {score.id: score for score in batch}
                    return batch
                self._changed.wait(self._bounded(pause_s, now) if self._waiting else None)

    def _bounded(self, pause_s: float, now: float) -> float:
        return min(pause_s, self._give_up_at - now) if self._stopping else pause_s

    def _end_flight(self) -> None:
        """Drop the scores that have neither arrived nor a place in the queue."""
        with self._changed:
            lost = list(self._displaced.values())
            self._in_flight, self._displaced = {}, {}
        self._finish(lost, DROPPED)

    def _take(self, part: SendOutcome) -> None:
        """Count and report scores that have arrived, and only then let ``flush`` find the queue without them."""
        try:
            self._finish(part.scores[part.rejected :], SENT)
            self._finish(part.scores[: part.rejected], REJECTED, part.reason)
        finally:
            with self._changed:
                for score in part.scores:
                    self._displaced.pop(score.id, None)
                    if self._waiting.get(score.id) is score:  # else a newer one waits already
                        del self._waiting[score.id]
                self._changed.notify_all()

    def _finish(self, scores: Sequence[LangfuseScore], outcome: str, reason: str = "") -> None:
        if not scores:
            return
        number = len(scores)
        self.counts[f"scores.{outcome}"] += number  # other threads count, too
        if outcome != SENT:
            _log.error("trajectory_guard: %s: %d scores %s %s", self._name, number, outcome, reason)
        if self._on_finished is not None:
            self._on_finished(scores, outcome)

    def _failed(
        self, kind: str, status: str, message: str, *, requested_s: float | None = None, least_s: float = 0.0
    ) -> None:
        self.counts[kind] += 1
        self.counts[f"score_attempts.{status}"] += 1
        self._on_failed(status)
        wait_s = max(self._backoff.next_pause_s(requested_s), least_s)
        self._paused_until = time.monotonic() + wait_s
        if self._failing != kind:  # once per kind until something is taken again
            self._failing = kind
            _log.warning("trajectory_guard: %s: scores wait, next attempt in %.1f s: %s", self._name, wait_s, message)


def _at_exit_of_worker(call: Callable[[], None]) -> Any:
    """The finalizer of a ``multiprocessing`` worker, None elsewhere: a forked one ends without ``atexit``."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is None or util is None or process.parent_process() is None:
        return None
    return util.Finalize(None, call, exitpriority=_FINALIZER)


def _weakly(method: Callable[..., object]) -> Callable[[], None]:
    """Calls a bound method as long as its object lives, so that registering it does not keep the object alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
