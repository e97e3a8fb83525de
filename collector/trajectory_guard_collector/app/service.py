"""The collector: assembles receivers, scorer and delivery."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from trajectory_guard.config import ConfigError
from trajectory_guard.core.policy import Level
from trajectory_guard.spending.stores import LedgerError
from trajectory_guard_collector.api.access import Readers
from trajectory_guard_collector.api.admin import AdminServer
from trajectory_guard_collector.api.budgets import CallerBudgets
from trajectory_guard_collector.api.flags import FlagService, RegistryFlags
from trajectory_guard_collector.app import descriptors
from trajectory_guard_collector.app.pipeline import Listener, Pipeline
from trajectory_guard_collector.app.silence import Silence
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.models import CollectorConfig, GrpcReceiver, HttpReceiver
from trajectory_guard_collector.config.tokens import HANDS
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.gateway.hops import Hops
from trajectory_guard_collector.gateway.memory_limiter import MemoryLimiter
from trajectory_guard_collector.gateway.receivers.grpc_server import GrpcServer
from trajectory_guard_collector.gateway.receivers.http_server import HttpServer
from trajectory_guard_collector.gateway.receivers.request_handler import RequestHandler, handler_of
from trajectory_guard_collector.gateway.storage.store import DatabaseError, Store
from trajectory_guard_collector.scoring.events import VerdictLog, VerdictPrinter
from trajectory_guard_collector.scoring.langfuse import score_writers
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.state.wal import wal_entry_of
from trajectory_guard_collector.state.writer import StateWriter
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.logs import Output
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.spending import SpendingMetrics

_log: Final = logging.getLogger(__name__)
_SHOWN: Final = 10_000
_MAINTENANCE_INTERVAL_S: Final = 1.0
_SCORES_TIMEOUT_S: Final = 2.0
_STARTING: Final = "starting"


class _Server(Protocol):
    async def start(self) -> int: ...

    async def stop(self, grace_s: float) -> None: ...


class Collector:
    """One collector. ``start`` and ``stop`` it in one event loop; it cannot be started again.

    Parameters:
        config: the whole configuration.
        output: writes what the debug exporter prints, and counts the lines it drops; None: print at once.

    Raises:
        ConfigError: the token file, or that of the ledger, cannot be used.
        StartError: from ``start``: a port is taken, a file cannot be read, the storage is in use.
    """

    def __init__(self, config: CollectorConfig, output: Output | None = None) -> None:
        self.config = config
        self._print: Callable[[str], object] = output.print_line if output is not None else print
        self.endpoints: dict[str, str] = {}
        self.metrics = Metrics(max_label_values=config.telemetry.max_label_values)
        self.scorer = _scorer(config, self.metrics)
        self._limiter = MemoryLimiter(config.memory_limiter, self.metrics, shed=self.scorer.shed)
        self._store = None
        if config.queue.storage is not None:
            self._store = Store(config.queue, saved_anew=lambda: self.metrics.error("storage.deleted"))
        self._hops = Hops()
        self._delivery = Delivery(config, self.metrics, self._store, via=self._hops.header, write=self._print)
        self._scores = score_writers(
            config.exporters,
            self.metrics,
            self._store,
            redact=config.guard.redact,
            session_of=self.scorer.identifier.session_of,
        )
        self._pipeline = Pipeline(
            self.scorer, self._delivery, self.metrics,
            refuse=self._limiter.refuse, wal_entry_of=wal_entry_of if self._store is not None else None,
            listeners=self._listeners(), evaluate_s=config.trajectories.evaluate_s,
        )  # fmt: skip
        self._state_writer = None
        if self._store is not None:
            self._state_writer = StateWriter(self.scorer, self._store, config.trajectories.snapshot_interval_s)
        self._maintaining: asyncio.Task[None] | None = None
        self._servers: dict[str, _Server] = {}
        self._auth = Authenticator(config.receivers.otlp.auth, failed=lambda: self.metrics.error("tokens_reload"))
        people = Authenticator(config.flags.auth, path=HANDS, failed=lambda: self.metrics.error("tokens_reload"))
        save = self._state_writer.save if self._state_writer is not None else None
        budgets = CallerBudgets(
            self.scorer.spending, self.scorer.registry, config.trajectories.separate_by, config.guard.mode
        )
        flags = FlagService(
            RegistryFlags(self.scorer.registry, save, self._not_yet), config.guard, self.metrics,
            config.trajectories.separate_by, budgets.reply,
        )  # fmt: skip
        self._admin = AdminServer(
            config.telemetry, self.metrics, self.ready, self.rows, Readers(self._auth, people),
            max_score=config.guard.max_score,
            routes=flags.routes(self._auth, people) if config.flags.enabled else [],
        )  # fmt: skip
        self._phase = _STARTING
        self.metrics.watch(catalogue.ACTIVE, lambda: len(self.scorer.registry))
        self.metrics.watch_group(catalogue.BY_SCORE, self._by_score)
        if output is not None:
            output.count_dropped(self.metrics)
        if self.scorer.spending is not None:
            self.metrics.before_scrape(SpendingMetrics(self.scorer.spending, self.metrics))

    def _listeners(self) -> list[Listener]:
        redact = self.config.guard.redact
        listeners: list[Listener] = [VerdictLog(redact=redact).notify]
        if any(name.partition("/")[0] == "debug" for name in self.config.exporters):
            listeners.append(VerdictPrinter(redact=redact, write=self._print).notify)
        return [*listeners, *(writer.notify for writer in self._scores)]

    # --- life ------------------------------------------------------------------------------------------------

    async def start(self, listens: Callable[[], None] = lambda: None) -> None:
        """Start to deliver, listen, then restore the saved state. Until that is there, data is refused, retryable.

        Parameters:
            listens: called once all endpoints are there.
        """
        try:
            await self._start()
            listens()
            await self._restore()
        except (ConfigError, DatabaseError, OSError, ValueError) as error:
            raise StartError(str(error)) from error
        self._maintaining = asyncio.create_task(self._maintain_regularly(), name="maintenance")
        self._phase = ""

    async def _restore(self) -> None:
        if self._state_writer is not None:
            events = await self._state_writer.restore()
            for writer in self._scores:  # scores that were not written before the restart
                writer.notify(events)
            self._state_writer.start()

    async def _start(self) -> None:
        await self._limiter.start()
        await self._open_ledger()
        if self._store is not None:
            await self._store.start()
        for writer in self._scores:
            await writer.start()
        await self._delivery.start()
        port = await self._admin.start()
        if port:
            self.endpoints["telemetry"] = _with_port(self.config.telemetry.endpoint or "", port)
        protocols = descriptors.within(self.config, descriptors.limit())
        if protocols.grpc is not None:
            grpc = GrpcServer(protocols.grpc, self._auth, self._handler(protocols.grpc), self.metrics)
            await self._listen("otlp/grpc", protocols.grpc.endpoint, grpc)
        if protocols.http is not None:
            http = HttpServer(protocols.http, self._auth, self._handler(protocols.http), self.metrics)
            await self._listen("otlp/http", protocols.http.endpoint, http)

    def _handler(self, config: GrpcReceiver | HttpReceiver) -> RequestHandler:
        return handler_of(
            config, self._pipeline.accept, self.metrics, memory=self._limiter, hops=self._hops, not_yet=self._not_yet
        )

    async def _maintain_regularly(self) -> None:
        """Maintain trajectories even if no spans arrive, so that recoveries of idle agents are published."""
        silence = Silence(lambda: self._pipeline.has_spans)
        while True:
            await asyncio.sleep(min(_MAINTENANCE_INTERVAL_S, self.config.trajectories.reorder_s))
            silence.look(self.endpoints)
            try:
                await self._pipeline.maintain()
            except Exception:  # noqa: BLE001  the next attempt may succeed
                self.metrics.error("maintenance")
                _log.exception("idle trajectories could not be maintained")

    async def _listen(self, name: str, endpoint: str, server: _Server) -> None:
        self._servers[name] = server
        self.endpoints[name] = _with_port(endpoint, await server.start())

    async def stop(self) -> None:
        """Accept no more, finish accepted requests, save, and free all resources. Idempotent, bounded in time."""
        self._phase = "shutting down"
        until = time.monotonic() + self.config.shutdown_timeout_s

        def left() -> float:
            return max(0.1, until - time.monotonic())

        await self._step("receivers", lambda: self._stop_receivers(left()))
        if self._maintaining is not None:  # else the state is not restored: what is there of it says nothing yet
            await self._step("maintenance", self._stop_maintaining)
            await self._step("waiting steps", self._pipeline.finish)
        await self._step("delivery", lambda: self._delivery.stop(left()))
        if self._state_writer is not None:
            await self._step("trajectories", self._state_writer.stop)
        for writer in self._scores:
            await self._step("scores", partial(writer.stop, min(_SCORES_TIMEOUT_S, left())))
        if self._store is not None:
            await self._step("storage", self._store.stop)
        await self._step("ledger", self._close_ledger)
        await self._step("limiter", self._limiter.stop)
        await self._step("telemetry", self._admin.stop)

    async def _stop_maintaining(self) -> None:
        if self._maintaining is not None:
            self._maintaining.cancel()
            await asyncio.gather(self._maintaining, return_exceptions=True)

    async def _open_ledger(self) -> None:
        """Learn the prices of what is booked, before the first agent asks."""
        spending = self.scorer.spending
        if spending is not None:
            try:
                await asyncio.to_thread(spending.learn_prices)
            except LedgerError as error:  # another process has locked the file; the prices are learned later
                spending.failed(error)

    async def _close_ledger(self) -> None:
        if self.scorer.spending is not None:
            self.scorer.spending.close()

    async def _stop_receivers(self, grace_s: float) -> None:
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers.values()))
        self._servers.clear()

    async def _step(self, what: str, stop: Callable[[], Awaitable[Any]]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await stop()
            except Exception:  # noqa: BLE001  the other parts must be stopped too
                _log.exception("stopping %s failed", what)

    # --- status ----------------------------------------------------------------------------------------------

    def ready(self) -> str | None:
        """None if the collector can accept data, else the reason why it cannot."""
        return self._not_yet() or self._limiter.refuse() or self._delivery.ready()

    def _not_yet(self) -> str | None:
        """The reason why the collector takes no data because it starts or stops, None if it runs."""
        if self._phase == _STARTING and self.endpoints and self._state_writer is not None:
            return self._state_writer.restoring or _STARTING
        return self._phase or None

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The most recently used trajectories, for the page."""
        return [self._row(trajectory) for trajectory in self.scorer.registry.newest(_SHOWN)]

    def _row(self, trajectory: Trajectory) -> dict[str, Any]:
        verdict = trajectory.current.last
        return {
            "trajectory_id": trajectory.key[1],
            "tenant": trajectory.key[0],
            "service": ", ".join(trajectory.services),
            "agents": list(trajectory.agents),
            "steps": trajectory.steps,
            "score": trajectory.score,
            "health": 1.0 - trajectory.score / self.config.guard.max_score,
            "level": trajectory.level.value,
            "episode": trajectory.episode,
            "nudges": trajectory.nudges,
            "types": verdict.types if verdict is not None else [],
            "reason": verdict.reason if verdict is not None else "",
            "last_seen": trajectory.last_seen,
            "trace_id": trajectory.trace_id,
        }

    def _by_score(self) -> Mapping[str, int]:
        counts = Counter(_bucket(trajectory) for trajectory in self.scorer.registry.newest(len(self.scorer.registry)))
        return {name: counts[name] for name in ("healthy", "watched", "nudge", "stop")}


def _scorer(config: CollectorConfig, metrics: Metrics) -> RequestScorer:
    try:
        return RequestScorer(config.guard, config.trajectories, metrics, learns_limits=True)
    except ConfigError as error:  # the file of the ledger
        raise ConfigError(*(one._replace(path=f"guard.{one.path}") for one in error.mistakes)) from None


def _bucket(trajectory: Trajectory) -> str:
    if trajectory.level is not Level.OBSERVE:
        return str(trajectory.level).lower()
    return "watched" if trajectory.score > 0 else "healthy"


def _with_port(endpoint: str, port: int) -> str:
    return f"{endpoint.rpartition(':')[0]}:{port}"
