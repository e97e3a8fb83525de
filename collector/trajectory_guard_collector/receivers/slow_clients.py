"""uvicorn with bounded connections: a client that is slow, or silent, does not keep one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from socket import socket
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from trajectory_guard_collector.config import HttpReceiver
from trajectory_guard_collector.receivers.binding import listen
from trajectory_guard_collector.receivers.intake import ReceiverMetrics
from trajectory_guard_collector.receivers.tls import Certificates

_KEY: Final = "receivers.otlp.protocols.http"
_LAST_REPLIES_S: Final = 0.5
"""Time for replies to those who were refused at the end; uvicorn looks ten times a second whether it is done."""
_MAX_OVERHEAD: Final = 1 << 20
"""Bytes of a request that are not its body: headers, trailers, sizes of chunks."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on connections and headers, and a deadline for every whole request.

    The deadline starts with the connection, and later with the first byte of a request. uvicorn has none of its own:
    it waits for headers for ever.

    Parameters:
        limits: ``read_timeout_s``, ``idle_timeout_s`` and ``max_connections``.
        metrics: counts requests of transport ``http`` with the status ``read_timeout``, ``headers_too_large``
            or ``too_many_connections``.
    """

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, *, limits: HttpReceiver, metrics: ReceiverMetrics
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._limits = limits
        self._metrics = metrics
        self._deadline: asyncio.TimerHandle | None = None
        self._overhead = 0
        self.timeout_keep_alive = limits.idle_timeout_s  # type: ignore[assignment]  # declared int, given to call_later

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline, or close the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._cut_off("too_many_connections")
        else:
            self._start_deadline()

    def data_received(self, data: bytes) -> None:
        """Start the deadline with the first byte of a request."""
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > _MAX_OVERHEAD:
            self._cut_off("headers_too_large")

    def on_message_begin(self) -> None:
        """Start the deadline of a request that came in one piece with the end of the one before."""
        self._start_deadline()
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """A body has a limit of its own."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here: it met its deadline."""
        self._stop_deadline()
        self._overhead = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind, whoever closed the connection."""
        self._stop_deadline()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.read_timeout_s, self._cut_off, "read_timeout")

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut_off(self, why: str) -> None:
        self._metrics.request("http", why)
        self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, limits: HttpReceiver, metrics: ReceiverMetrics) -> None:
        super().__init__(config)
        self._limits = limits
        self._metrics = metrics
        self._certificates = Certificates(limits.tls, f"{_KEY}.tls", metrics) if limits.tls else None
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._certificates is not None:
            tls = {"ssl": self._certificates.ssl_context(), "ssl_handshake_timeout": self._limits.read_timeout_s}
        backlog = self.config.backlog
        self.servers = [
            await loop.create_server(self._connection, sock=one, backlog=backlog, **tls) for one in sockets or ()
        ]
        self.started = True
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the service

    def _connection(self) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, limits=self._limits, metrics=self._metrics)


class BoundedServer:
    """Serves an ASGI application in the running event loop, within the bounds of ``HttpReceiver``.

    Parameters:
        app: what answers.
        config: the ``http`` section.
        metrics: counts.
    """

    def __init__(self, app: ASGIApp, config: HttpReceiver, metrics: ReceiverMetrics) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; the port.

        Raises:
            ConfigError: the endpoint is taken, or a certificate cannot be used.
        """
        uvicorn_config = uvicorn.Config(
            self._app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, log_level="error",
            access_log=False, server_header=False, proxy_headers=False,
        )  # fmt: skip
        server = _Server(uvicorn_config, self._config, self._metrics)
        sockets = listen(self._config.endpoint, f"{_KEY}.endpoint")
        self._server = server
        self._serving = asyncio.create_task(self._server.serve(sockets))
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait((self._serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            await self._serving
        return int(sockets[0].getsockname()[1])

    def close(self) -> None:
        """Take no more connections, close idle ones now and the others after their request. Legal at any time."""
        if self._server is not None:
            self._server.should_exit = True

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until all connections are closed, and close them after ``timeout_s`` seconds. Legal at any time."""
        if self._server is None or self._serving is None:
            return
        await asyncio.wait([self._serving], timeout=max(timeout_s, _LAST_REPLIES_S))
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in list(self._server.server_state.tasks):
            task.cancel()
        await self._serving
