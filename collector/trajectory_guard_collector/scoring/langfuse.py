"""Scores for the traces that go to Langfuse: written on change, kept across restarts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, Protocol

import orjson
from pydantic import SecretStr

from trajectory_guard.integrations.langfuse.client import INSTALL, Connection
from trajectory_guard.integrations.langfuse.scores import (
    Episode,
    EpisodeKey,
    LangfuseScore,
    ScoreBook,
    Stage,
    Target,
    environment_of,
)
from trajectory_guard.integrations.langfuse.scores import session_of as langfuse_session
from trajectory_guard.integrations.langfuse.sender import SENT, RateLimit, ScoreSender
from trajectory_guard_collector.config.client_tls import client_context
from trajectory_guard_collector.config.langfuse import base_url
from trajectory_guard_collector.config.models import ClientTls, Exporter
from trajectory_guard_collector.errors import RefusedError
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics

_log: Final = logging.getLogger(__name__)
SPACE: Final = "scores"
_EPISODE: Final = "episode"
_SCORE: Final = "score"
_SAVE_PAUSE_S: Final = 1.0

SessionOf = Callable[[StepItem], str | None]


class SavedScores(Protocol):
    """Storage of unsent scores across restarts: ``Store``."""

    async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        """All rows of a space."""

    async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int = 0) -> None:
        """Write rows in one transaction; None deletes one."""


def score_writers(
    exporters: Mapping[str, Exporter], metrics: Metrics, store: SavedScores | None, *, redact: bool,
    session_of: SessionOf | None = None,
) -> list[ScoreWriter]:  # fmt: skip
    """A writer for each Langfuse exporter with scores enabled; none, and a warning, if the package is missing.

    Parameters as those of ``ScoreWriter``.

    Raises:
        ValueError: a file of an exporter's ``tls`` section cannot be read.
    """
    wanted = {
        name: config for name, config in exporters.items() if name.split("/")[0] == "langfuse" and config.scores.enabled
    }
    if wanted and find_spec("langfuse") is None:
        _log.warning("exporters.%s.scores: no scores are written: %s", next(iter(wanted)), INSTALL)
        return []
    return [
        ScoreWriter(name, config, metrics, store, redact=redact, session_of=session_of)
        for name, config in wanted.items()
    ]


class ScoreWriter:
    """Writes the scores of one Langfuse project. All methods are for the event loop; a thread sends.

    With a store, the scores written for each loop and the unsent scores survive a restart.

    Parameters:
        name: name of the exporter.
        config: configuration section of the exporter.
        metrics: counts scores.
        store: keeps unsent scores; if None they are in memory only.
        redact: leave reasons out.
        session_of: the Langfuse session of a step; by default the one that the step's own span names.

    Raises:
        ValueError: a file of the ``tls`` section cannot be read.
    """

    def __init__(
        self, name: str, config: Exporter, metrics: Metrics, store: SavedScores | None, *, redact: bool = False,
        session_of: SessionOf | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._metrics = metrics
        self._store = store
        self._redact = redact
        self._session_of = session_of or (lambda item: langfuse_session([item.view.attributes]))
        self._book = ScoreBook(config.scores.max_episodes, on_change=self._keep_episode)
        self._sender = ScoreSender(
            connection_of(name, config), _rate_limit(config), name=f"exporters.{name}", on_finished=self._from_thread,
            on_failed=lambda status: metrics.add(catalogue.SCORE_ATTEMPTS_FAILED, exporter=name, error_type=status),
        )  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept: dict[str, LangfuseScore] = {}
        self._unsaved: dict[bytes, bytes | None] = {}
        self._saving: asyncio.Task[None] | None = None
        metrics.watch(catalogue.SCORES_WAITING, lambda: len(self._sender.waiting), exporter=name)

    # --- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the scores that were unsent before a restart, and send them."""
        self._loop = asyncio.get_running_loop()
        if self._store is None:
            return
        for key, data in await self._store.load_kv(SPACE):
            self._restore(key, data)
        if self._kept:
            self._sender.put(self._kept.values())

    def _restore(self, key: bytes, data: bytes) -> None:
        try:
            exporter, kind, *rest = orjson.loads(key)
            if exporter == self.name and kind == _EPISODE:
                scope, trajectory, number = rest
                self._book.episodes[scope, trajectory, number] = episode_of(orjson.loads(data))
            elif exporter == self.name:
                score = LangfuseScore(**orjson.loads(data))
                self._kept[score.id] = score
        except (ValueError, TypeError) as error:
            _log.error("queue.storage: discarding an unreadable saved score: %s", error)
            self._metrics.error("restore")

    async def stop(self, timeout_s: float) -> None:
        """Send waiting scores until the timeout; with a store the rest is sent after the next start. Idempotent."""
        left = await asyncio.to_thread(self._sender.stop, timeout_s)
        if left and self._store is None:
            _log.error("exporter %s: %d scores were not sent", self.name, len(left))
            self._metrics.add(catalogue.SCORES_FAILED, len(left), exporter=self.name)
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
        await self._save_once()

    # --- scores ----------------------------------------------------------------------------------------------

    def notify(self, events: Sequence[LoopEvent]) -> None:
        """Write the scores that the events change."""
        scores: list[LangfuseScore] = []
        for one in events:
            item = one.item
            scores += self._book.changes(
                one.verdict, item.view.trace_id, self._session_of(item), scope=item.tenant, redact=self._redact,
                at=item.order[0], now=time.time(),
                environment=environment_of(item.view.attributes, item.origin.attributes),
            )  # fmt: skip
        if scores:
            for score in scores:
                self._kept[score.id] = score
                self._put_row((_SCORE, score.id), score._asdict())
            self._sender.put(scores)
            self._save_soon()

    def _from_thread(self, scores: Sequence[LangfuseScore], outcome: str) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._finish, scores, outcome)

    def _finish(self, scores: Sequence[LangfuseScore], outcome: str) -> None:
        row = catalogue.SCORES_SENT if outcome == SENT else catalogue.SCORES_FAILED
        self._metrics.add(row, len(scores), exporter=self.name)
        for score in scores:
            if self._kept.get(score.id) is score:  # else a newer score waits already
                del self._kept[score.id]
                self._put_row((_SCORE, score.id), None)
        self._save_soon()

    # --- rows ------------------------------------------------------------------------------------------------

    def _keep_episode(self, key: EpisodeKey) -> None:
        episode = self._book.episodes.get(key)
        self._put_row((_EPISODE, *key), plain_episode(episode) if episode is not None else None)

    def _put_row(self, key: tuple[Any, ...], value: Any) -> None:
        if self._store is not None:
            self._unsaved[orjson.dumps((self.name, *key))] = orjson.dumps(value) if value is not None else None

    def _save_soon(self) -> None:
        if self._unsaved and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(self._save(), name=f"{self.name} scores")

    async def _save(self) -> None:
        while self._unsaved:
            if not await self._save_once():
                await asyncio.sleep(_SAVE_PAUSE_S)

    async def _save_once(self) -> bool:
        rows, self._unsaved = self._unsaved, {}
        saved = False
        try:
            if self._store is not None and rows:
                await self._store.checkpoint(SPACE, list(rows.items()))
            saved = True
        except RefusedError as error:
            _log.warning("exporter %s: scores cannot be saved: %s", self.name, error.message)
        finally:
            if not saved:
                self._unsaved = {**rows, **self._unsaved}
        return saved


def plain_episode(episode: Episode) -> list[Any]:
    """The scores written for an episode as JSON-able data."""
    stages = [[*target, stage] for target, stage in episode.stages.items()]
    return [episode.timestamp, stages, episode.start_s, episode.until, episode.environment, episode.nudged]


def episode_of(plain: list[Any]) -> Episode:
    """Read ``plain_episode``."""
    timestamp, stages, *times = plain
    start_s, until = times[:2] or (timestamp, timestamp)  # rows of older collectors hold no times
    environment, nudged = (*times[2:4], None, None)[:2]
    return Episode(
        timestamp,
        {Target(name, session): Stage(stage) for name, session, stage in stages},
        start_s=start_s,
        until=until,
        environment=environment,
        nudged=nudged,
    )


class Project(Protocol):
    """A section of a configuration that names a Langfuse project."""

    endpoint: str | None
    public_key: SecretStr | None
    secret_key: SecretStr | None
    headers: Mapping[str, SecretStr]
    timeout_s: float
    tls: ClientTls


def connection_of(name: str, config: Project) -> Connection:
    """The connection to a project.

    Parameters:
        name: of the section, for messages.

    Raises:
        ValueError: a file of the ``tls`` section cannot be read.
    """
    return Connection(
        base_url=base_url(config.endpoint),
        public_key=config.public_key.get_secret_value() if config.public_key is not None else "",
        secret_key=config.secret_key.get_secret_value() if config.secret_key is not None else "",
        timeout_s=config.timeout_s,
        verify=client_context(name, config.tls),
        headers={key: value.get_secret_value() for key, value in config.headers.items()},
    )


def _rate_limit(config: Exporter) -> RateLimit:
    retry, scores = config.retry_on_failure, config.scores
    return RateLimit(
        max_waiting=scores.max_waiting,
        batches_per_minute=scores.batches_per_minute,
        initial_s=retry.initial_interval_s,
        multiplier=retry.multiplier,
        max_s=retry.max_interval_s,
        jitter=retry.randomization_factor,
        refused_s=retry.max_interval_s,
        max_requested_s=retry.max_retry_after_s,
    )
