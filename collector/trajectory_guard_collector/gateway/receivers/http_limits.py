"""uvicorn with limits for clients: connections, time for a request, size of its head. Requests to change the protocol
are ignored."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from socket import socket
from typing import Any, Final, NamedTuple

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from trajectory_guard_collector.gateway.receivers.sockets import listen
from trajectory_guard_collector.gateway.receivers.tls import Certificates

_LAST_REPLIES_S: Final = 0.5
"""Seconds for replies to clients that were refused at the end; uvicorn checks ten times a second."""
_MAX_HEAD: Final = 1 << 16
"""Bytes of a request line and headers."""
RECEIVING_S: Final = 3.0
"""Seconds that a request on its way has when its server is closed: it was not accepted, and must not use up the time of
those that were."""
_MAX_OVERHEAD: Final = 1 << 20
"""Bytes of a request that are not its body: headers, trailers, sizes of chunks."""


class HttpLimits(NamedTuple):
    """Bounds of a server's clients.

    Fields:
        max_connections: open at a time. Beyond them the longest idle one is closed: its client opens another one when
            it has something to send, and clients that never come to an end keep no other one out.
        read_timeout_s: seconds a client has to send a whole request.
        idle_timeout_s: seconds an idle connection is kept.
        newest_stay: if there are too many connections and none is idle, the oldest is closed instead of the new one.
            For short questions that must be answered whoever else is there.
    """

    max_connections: int
    read_timeout_s: float
    idle_timeout_s: float
    newest_stay: bool = False


class _Flow(FlowControl):
    """Reads nothing as long as a condition does not hold."""

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read

    def resume_reading(self) -> None:
        if self._may_read():
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on connections and headers, and a deadline for every whole request.

    The deadline starts with the connection, and later with the first byte of a request. uvicorn has none of its own:
    it waits for headers for ever.

    A client may send further requests without waiting for replies. They are answered in order, and nothing more is read
    while one of them waits for its turn. The time of a request begins when it is read, and one that is cut off or
    broken costs no reply to those before it.

    Requests to change the protocol are ignored, as RFC 9110 allows. uvicorn takes such a request for one without a
    body, and Java's HTTP client asks for HTTP/2 that way with whatever it sends.

    Parameters:
        limits: of connections and times.
        cut_off: called with the reason why a connection is closed: ``read_timeout``, ``headers_too_large`` or
            ``too_many_connections``.
    """

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, *, limits: HttpLimits, cut_off: Callable[[str], object]
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._limits = limits
        self._on_cut_off = cut_off
        self._deadline: asyncio.TimerHandle | None = None
        self._overhead = 0
        self._in_head = False
        self._in_message = False
        self._at_last: Callable[[], None] | None = None  # closes the connection once the requests so far are answered
        self._used_at = 0.0
        self.timeout_keep_alive = limits.idle_timeout_s  # type: ignore[assignment]  # declared int, given to call_later

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline, and close this connection or another if there are too many."""
        super().connection_made(transport)
        self.flow = _Flow(transport, lambda: not self.pipeline and self._at_last is None)
        self._used_at = time.monotonic()
        self._start_deadline()
        if len(self.connections) > self._limits.max_connections:
            self._on_cut_off("too_many_connections")
            self._surplus()._abort()

    def _surplus(self) -> BoundedProtocol:
        """The longest idle connection; if all are in work this one, or the oldest (``HttpLimits.newest_stay``)."""
        others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        surplus = min(others, key=lambda one: (one._in_work(), one._used_at), default=self)
        return self if surplus._in_work() and not self._limits.newest_stay else surplus

    @property
    def is_receiving(self) -> bool:
        """Whether a request has begun that has not been received as a whole."""
        return self._deadline is not None

    def _in_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Start the deadline with the first byte of a request."""
        if self._at_last is not None:
            return
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()
        self._overhead += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._overhead > (_MAX_HEAD if self._in_head else _MAX_OVERHEAD):
            self._cut_off("headers_too_large")

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            while True:
                try:
                    return self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:  # noqa: PERF203  rare
                    # The parser waits for a new request now. It gets the same head again, without the question.
                    data = memoryview(data)[upgrade.args[0] :]
                    self.parser.feed_data(self._head_without_upgrade())
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            raise httptools.HttpParserError("a tunnel, not a request")
        lines = [b"%b %b HTTP/%b" % (method, self.url, version.encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def on_message_begin(self) -> None:
        """Start the deadline of a request that came in one piece with the end of the one before."""
        if not self._in_work():
            self._start_deadline()
        self._in_head = self._in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head that asks for another protocol is parsed again."""
        self._in_head = False
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > _MAX_HEAD:
            self._cut_off("headers_too_large")
        elif not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A body has a limit of its own."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Cancel the deadline, since the request is complete."""
        if self.parser.should_upgrade():
            return
        self._in_message = False
        self._used_at = time.monotonic()
        self._stop_deadline()
        self._overhead = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin with the next request; the time of one that has not come whole begins now."""
        waits = bool(self.pipeline)
        super().on_response_complete()
        if self._at_last is not None and not waits:
            self._at_last()
        elif self._in_message and not self.pipeline and not self.transport.is_closing():
            self._start_deadline()

    def send_400_response(self, msg: str) -> None:
        """Reply to what is no request, after the replies to the requests before it."""
        self._after_replies(lambda: super(BoundedProtocol, self).send_400_response(msg))

    def _after_replies(self, close: Callable[[], None]) -> None:
        """Close the connection once the requests that came whole are answered. Nothing more is read."""
        if self._at_last is not None:
            return
        if self.cycle is not None and self.cycle.more_body and self.pipeline:
            self.pipeline.popleft()  # the last one, whose body is cut off or broken
            waits = True
        else:
            waits = self._in_work() and not self.cycle.more_body
        if not waits:
            close()
            return
        self._at_last = close
        self._stop_deadline()
        self.flow.pause_reading()

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
        self._on_cut_off(why)
        self._after_replies(self._abort)

    def _abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        limits: HttpLimits,
        cut_off: Callable[[str], object],
        certificates: Certificates | None,
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._cut_off = cut_off
        self._certificates = certificates
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
        return BoundedProtocol(self.config, self.server_state, limits=self._limits, cut_off=self._cut_off)


class BoundedServer:
    """Serves an ASGI application in the running event loop, within limits.

    Parameters:
        app: the ASGI application.
        endpoint: ``host:port``.
        key: where the endpoint is configured, for messages.
        limits: of connections and times.
        cut_off: called with the reason why a connection is closed: ``read_timeout``, ``headers_too_large`` or
            ``too_many_connections``.
        certificates: reads them when the server starts; plain text without.
    """

    def __init__(
        self,
        app: ASGIApp,
        endpoint: str,
        key: str,
        limits: HttpLimits,
        *,
        cut_off: Callable[[str], object] = lambda why: None,
        certificates: Callable[[], Certificates] | None = None,
    ) -> None:
        self._app = app
        self._endpoint = endpoint
        self._key = key
        self._limits = limits
        self._cut_off = cut_off
        self._certificates = certificates
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
        certificates = self._certificates() if self._certificates is not None else None
        server = _Server(uvicorn_config, self._limits, self._cut_off, certificates)
        sockets = listen(self._endpoint, self._key)
        self._server = server
        self._serving = asyncio.create_task(self._server.serve(sockets))
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait((self._serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            await self._serving
        return int(sockets[0].getsockname()[1])

    def close(self) -> None:
        """Take no more connections, close idle ones now and the others after their request. Callable at any time."""
        if self._server is not None:
            self._server.should_exit = True
            asyncio.get_running_loop().call_later(RECEIVING_S, self._abandon_unsent, self._server)

    def _abandon_unsent(self, server: _Server) -> None:
        """Close connections whose request is not there yet."""
        for connection in list(server.server_state.connections):
            if isinstance(connection, BoundedProtocol) and connection.is_receiving:
                connection.transport.abort()

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until all connections are closed, and close them after ``timeout_s`` seconds. Callable at any time."""
        if self._server is None or self._serving is None:
            return
        await asyncio.wait([self._serving], timeout=max(timeout_s, _LAST_REPLIES_S))
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in list(self._server.server_state.tasks):
            task.cancel()
        await self._serving
