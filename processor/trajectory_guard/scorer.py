"""What the guard of a process finds, as scores in Langfuse."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.langfuse_client import CLOUD, INSTALL, Connection
from trajectory_guard.langfuse_scores import ScoreBook, environment_of
from trajectory_guard.langfuse_sender import Pace, ScoreSender

_log: Final = logging.getLogger(telemetry.LOGGER)
_KEYS: Final = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")


class Scorer:
    """Writes scores when something changes. Thread-safe; never waits for the network.

    Parameters:
        sender: sends them.
        max_episodes: episodes remembered, so that nothing is written twice.
        redact: leave reasons out.
        environment: Langfuse's environment of spans that name none.
    """

    def __init__(
        self, sender: ScoreSender, *, max_episodes: int = 10_000, redact: bool = False, environment: str | None = None
    ) -> None:
        self.sender = sender
        self._book = ScoreBook(max_episodes)
        self._redact = redact
        self._environment = environment
        self._lock = threading.Lock()

    def tell(self, verdict: Verdict, trace_id: str | None, span: ReadableSpan | None = None) -> None:
        """Write what has changed with a verdict.

        Parameters:
            verdict: what was found.
            trace_id: trace of the step, 32 hex digits, None if there is none.
            span: the step's span, which may name Langfuse's environment.
        """
        environment = environment_of(span.attributes or {}, span.resource.attributes) if span is not None else None
        with self._lock:
            scores = self._book.changes(
                verdict, trace_id, environment=environment or self._environment, redact=self._redact, now=time.time()
            )
        if scores:
            self.sender.put(scores)

    def flush(self, timeout_s: float) -> bool:
        """Wait for scores to be sent; whether all were in time."""
        return self.sender.flush(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Send what waits as far as the time allows. A later score is sent all the same."""
        left = self.sender.stop(timeout_s)
        if left:
            _log.error("trajectory_guard: %d scores did not reach Langfuse in %.0f s", len(left), timeout_s)


def scorer_of(config: GuardConfig, counts: Counter[str], environ: Mapping[str, str] | None = None) -> Scorer | None:
    """The scorer a configuration asks for, with the address and keys in Langfuse's own environment variables.

    None if it asks for none, or if the package ``langfuse`` or a key is missing: that is logged, the guard goes on.

    Parameters:
        config: ``langfuse_scores`` and the keys beside it.
        counts: where scores are counted.
        environ: environment variables, those of the process by default.
    """
    if not config.langfuse_scores:
        return None
    environ = os.environ if environ is None else environ
    missing = [name for name in _KEYS if not environ.get(name)]
    if find_spec("langfuse") is None:
        _log.error("trajectory_guard: langfuse_scores: no scores are written: %s", INSTALL)
        return None
    if missing:
        _log.error("trajectory_guard: langfuse_scores: no scores are written: %s is not set", " and ".join(missing))
        return None
    connection = Connection(
        base_url=environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST") or CLOUD,
        public_key=environ[_KEYS[0]],
        secret_key=environ[_KEYS[1]],
    )
    pace = Pace(max_waiting=config.langfuse_max_waiting, batches_per_minute=config.langfuse_batches_per_minute)
    return Scorer(
        ScoreSender(connection, pace, counts=counts),
        max_episodes=config.max_trajectories,
        redact=config.redact,
        environment=environment_of({"langfuse.environment": environ.get("LANGFUSE_TRACING_ENVIRONMENT", "")}, {}),
    )
