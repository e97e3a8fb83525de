"""The Langfuse reporter of a process: verdicts as scores in Langfuse."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import Final, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.tracking.tables import NameTable
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.integrations.langfuse.client import CLOUD, INSTALL, Connection
from trajectory_guard.integrations.langfuse.scores import ScoreBook, environment_of, session_of
from trajectory_guard.integrations.langfuse.sender import RateLimit, ScoreSender
from trajectory_guard.process.forking import after_fork
from trajectory_guard.process.locks import OwnedLock

_log: Final = logging.getLogger(telemetry.LOGGER)
_KEYS: Final = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_TRACING: Final = "LANGFUSE_TRACING_ENABLED"
_OFF: Final = "langfuse_off"


class LangfuseReporter:
    """Writes scores when something changes. Thread-safe; never waits for the network.

    Parameters:
        sender: sends them.
        max_episodes: episodes remembered, so that nothing is written twice, and traces whose session is known.
        redact: leave reasons out.
        environment: Langfuse's environment of spans that name none.
    """

    def __init__(
        self, sender: ScoreSender, *, max_episodes: int = 10_000, redact: bool = False, environment: str | None = None
    ) -> None:
        self.sender = sender
        self._max_episodes = max_episodes
        self._book = ScoreBook(max_episodes)
        self._sessions: NameTable[str, str] = NameTable(max_episodes)  # that spans name for their traces
        self._redact = redact
        self._environment = environment
        self._lock = OwnedLock()
        after_fork(self._after_fork)

    def _after_fork(self) -> None:
        """Another thread may have been at work here when the process forked: it stayed with the parent."""
        if self._lock.locked():
            self._book = ScoreBook(self._max_episodes)
            self._sessions = NameTable(self._max_episodes)
        self._lock = OwnedLock()

    def learn(self, span: SpanView) -> None:
        """Remember the session that a span, which is no step, names for its trace."""
        named = session_of([span.attributes])
        if named is not None:
            with self._lock:
                self._sessions.learn(span.trace_id, named)

    def report(
        self, verdict: Verdict, trace_id: str | None, span: ReadableSpan | None = None, above: Iterable[SpanView] = ()
    ) -> None:
        """Queue the scores that change with a verdict.

        Parameters:
            verdict: verdict of the step.
            trace_id: trace of the step, 32 hex digits, None if there is none.
            span: the step's span, by default the current one; it may name Langfuse's environment and session.
            above: the live spans above it, nearest first.
        """
        around: object = trace.get_current_span() if span is None else span
        own = (around.attributes or {}) if isinstance(around, ReadableSpan) else {}
        session = session_of(chain([own], (one.attributes for one in above)))
        environment = environment_of(own, around.resource.attributes) if isinstance(around, ReadableSpan) else None
        now = time.time()
        ended = (span.end_time or 0) / 1e9 if span is not None else 0.0
        with self._lock:
            scores = self._book.changes(
                verdict, trace_id, session or self._sessions.find(trace_id or ""), at=ended or now, now=now,
                environment=environment or self._environment, redact=self._redact,
            )  # fmt: skip
        if scores:
            self.sender.put(scores)

    def flush(self, timeout_s: float) -> bool:
        """Wait for scores to be sent; whether all were in time."""
        return self.sender.flush(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Send queued scores until the time is up. A score reported later is sent all the same."""
        left = self.sender.stop(timeout_s)
        if left:
            _log.error("trajectory_guard: %d scores did not reach Langfuse in %.0f s", len(left), timeout_s)


def reporter_of(
    config: GuardConfig, counts: Counter[str], environ: Mapping[str, str] | None = None
) -> LangfuseReporter | None:
    """The reporter of a configuration, with the address and keys from Langfuse's own environment variables.

    None if scores or Langfuse's tracing are switched off, or if the package ``langfuse`` or a key is missing:
    that is logged once for each ``counts``, and the guard goes on.

    Parameters:
        config: ``langfuse_scores`` and the keys beside it.
        counts: where scores are counted.
        environ: environment variables, those of the process by default.
    """
    if not config.langfuse_scores:
        return None
    environ = os.environ if environ is None else environ
    why = _why_not(environ)
    if why is not None:
        if not counts[_OFF]:
            _log.log(why.level, "trajectory_guard: langfuse_scores: no scores are written: %s", why.reason)
        counts[_OFF] += 1
        return None
    connection = Connection(
        base_url=environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST") or CLOUD,
        public_key=environ[_KEYS[0]].strip(),  # a key from a file mostly ends with a line break
        secret_key=environ[_KEYS[1]].strip(),
    )
    rate_limit = RateLimit(
        max_waiting=config.langfuse_max_waiting, batches_per_minute=config.langfuse_batches_per_minute
    )
    return LangfuseReporter(
        ScoreSender(connection, rate_limit, counts=counts),
        max_episodes=config.max_trajectories,
        redact=config.redact,
        environment=environment_of({"langfuse.environment": environ.get("LANGFUSE_TRACING_ENVIRONMENT", "")}, {}),
    )


class _Off(NamedTuple):
    reason: str
    level: int = logging.ERROR


def _why_not(environ: Mapping[str, str]) -> _Off | None:
    """Why no scores can be written, None if they can."""
    if environ.get(_TRACING, "true").lower() == "false":  # as the SDK reads it; scores of traces that never exist
        return _Off(f"{_TRACING} is false", logging.WARNING)
    if find_spec("langfuse") is None:
        return _Off(INSTALL)
    missing = [name for name in _KEYS if not environ.get(name, "").strip()]
    return _Off(f"{' and '.join(missing)} is not set") if missing else None
