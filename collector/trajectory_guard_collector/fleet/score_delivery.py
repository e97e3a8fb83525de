"""Sends scores to Langfuse, one batch after the other, until each is accepted or rejected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from trajectory_guard.backoff import Backoff
from trajectory_guard.integrations.langfuse.client import (
    Connection,
    RefusedAccessError,
    RetryableScoreError,
    ScoresClient,
    SendOutcome,
)
from trajectory_guard.integrations.langfuse.scores import LangfuseScore
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.telemetry.catalogue import SCORE_ATTEMPTS_FAILED, SCORES_FAILED, SCORES_SENT
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
EXPORTER: Final = "langfuse"
_MAX_BATCH: Final = 15


class Rejected(NamedTuple):
    """A score that Langfuse will never take, and the reason."""

    score: LangfuseScore
    reason: str


class StoppedError(Exception):
    """The program is to end before everything was sent."""


class ScoreDelivery:
    """Sends scores until Langfuse has accepted or rejected each, with pauses: failures are retried without limit.

    Parameters:
        project: address, keys and timeouts.
        retry: pauses after failures.
        batches_per_minute: requests, evenly spread.
        metrics: counts scores and failed attempts.
        wait: waits for some seconds; raises ``StoppedError`` if the program is to end.
    """

    def __init__(
        self, project: Connection, retry: Retry, batches_per_minute: float, metrics: Metrics,
        wait: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._project, self._metrics, self._wait = project, metrics, wait
        self._interval_s, self._refused_s = 60.0 / batches_per_minute, retry.max_interval_s
        self._backoff = Backoff(
            initial_s=retry.initial_interval_s, multiplier=retry.multiplier, max_s=retry.max_interval_s,
            jitter=retry.randomization_factor, max_requested_s=retry.max_retry_after_s,
        )  # fmt: skip
        self._client: ScoresClient | None = None
        self._throttled = ThrottledLog(_log)
        self._not_before = 0.0

    def send(self, scores: Sequence[LangfuseScore]) -> Iterator[Rejected]:
        """Send scores, of those with one id the newest; yields those that are rejected.

        Raises:
            StoppedError: not all were sent; what is sent again later overwrites itself.
        """
        waiting = {score.id: score for score in scores}
        alone: set[str] = set()  # of a list with rejected scores: the answer does not say which
        while waiting:
            first = next(iter(waiting))
            batch = [waiting[first]] if first in alone else list(islice(waiting.values(), _MAX_BATCH))
            for outcome in self._attempt(batch):
                if outcome.rejected and len(outcome.scores) > 1:
                    alone.update(score.id for score in outcome.scores)
                    continue
                for score in outcome.scores:
                    del waiting[score.id]
                row = SCORES_FAILED if outcome.rejected else SCORES_SENT
                self._metrics.add(row, len(outcome.scores), exporter=EXPORTER)
                if outcome.rejected:
                    yield Rejected(outcome.scores[0], outcome.reason)

    def _attempt(self, batch: Sequence[LangfuseScore]) -> list[SendOutcome]:
        """The part of a batch that is accepted or rejected now; none, after a pause, if the request failed."""
        self._wait(max(0.0, self._not_before - time.monotonic()))
        self._client = self._client or ScoresClient(self._project)
        outcomes: list[SendOutcome] = []
        before, refused_s = self._client.requests, 0.0
        try:
            for one in self._client.send(batch):
                outcomes.append(one)  # noqa: PERF402  those before a failure count
            self._backoff.reset()
        except (RetryableScoreError, RefusedAccessError) as error:
            requested_s = error.retry_after_s if isinstance(error, RetryableScoreError) else None
            refused_s = self._refused_s if isinstance(error, RefusedAccessError) else 0.0
            self._metrics.add(SCORE_ATTEMPTS_FAILED, exporter=EXPORTER, error_type=error.status)
            pause_s = max(self._backoff.next_pause_s(requested_s), refused_s)
            self._throttled.log(logging.WARNING, error.status, f"scores wait, next attempt in {pause_s:.1f} s: {error}")
            self._not_before = time.monotonic() + pause_s
            return outcomes
        self._not_before = time.monotonic() + self._interval_s * max(1, self._client.requests - before)
        return outcomes
