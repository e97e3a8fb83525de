"""OTLP/gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from google.rpc.code_pb2 import Code

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.checks import parse_endpoint
from trajectory_guard_collector.config.headers import VIA
from trajectory_guard_collector.config.models import GrpcReceiver
from trajectory_guard_collector.errors import BadDataError, RefusedError, UnavailableError
from trajectory_guard_collector.gateway.grpc_options import LARGEST, milliseconds
from trajectory_guard_collector.gateway.receivers.http_limits import RECEIVING_S
from trajectory_guard_collector.gateway.receivers.request_handler import RequestHandler, count_request
from trajectory_guard_collector.gateway.receivers.sockets import ipv6_reserved, listen
from trajectory_guard_collector.gateway.receivers.tls import Certificates
from trajectory_guard_collector.otlp.replies import (
    UnauthenticatedError,
    codes,
    export_response,
    retry_info,
    status,
)
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

_TRANSPORT: Final = "grpc"
_KEY: Final = "receivers.otlp.protocols.grpc"
_MIB: Final = 1 << 20
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_MIN_PING_INTERVAL_MS: Final = 10_000
_CUT_OFF: Final = "too_large_or_cut_off"
_CUT_OFF_S: Final = 1.0
"""Seconds within which gRPC ends a request of which it has passed on nothing; else its sender has sent nothing."""
_REFUSED_AT_ONCE: Final = 64
"""Requests of a connection that are being refused while ``max_concurrent_requests`` are in progress."""
_LOOKAHEAD: Final = 1 << 18
"""Bytes of a request that its sender may send before it is read: usual batches need no second round trip."""

logger = logging.getLogger(__name__)


class GrpcServer:
    """Receives traces, metrics and logs over gRPC. Compression (gzip, deflate) is gRPC's own.

    Parameters:
        config: the ``grpc`` section.
        auth: authenticates senders.
        handler: hands requests to the pipeline.
        metrics: counts.
    """

    def __init__(self, config: GrpcReceiver, auth: Authenticator, handler: RequestHandler, metrics: Metrics) -> None:
        self._config = config
        self._auth = auth
        self._metrics = metrics
        self._handler = handler
        self._server: grpc.aio.Server | None = None
        self._readings: set[asyncio.Future[Any]] = set()

    async def start(self) -> int:
        """Listen; the port.

        Raises:
            ConfigError: the endpoint is taken, or a certificate cannot be used.
        """
        server = grpc.aio.server(options=_options(self._config))
        server.add_generic_rpc_handlers([self._service(signal) for signal in Signal])
        port = self._bind(server)
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        """Take no more, let running requests finish within ``grace_s`` seconds, then close. Callable at any time."""
        self._handler.close()
        started = asyncio.get_running_loop().time()
        if self._server is not None:
            asyncio.get_running_loop().call_later(RECEIVING_S, self._abandon_unsent)
            await self._server.stop(grace_s)
        await self._handler.drain(max(0.0, grace_s - (asyncio.get_running_loop().time() - started)))

    def _abandon_unsent(self) -> None:
        """Refuse requests that are not there yet."""
        for reading in self._readings:
            reading.cancel()

    def _bind(self, server: grpc.aio.Server) -> int:
        endpoint = self._config.endpoint
        host, port = parse_endpoint(endpoint)
        with (
            contextlib.ExitStack() as opened
        ):  # gRPC reports no reason if it cannot listen, and writes to standard error
            found = [opened.enter_context(one).getsockname() for one in listen(endpoint, f"{_KEY}.endpoint")]
        try:
            if [address[0] for address in found] != ["0.0.0.0"]:
                return self._add_port(server, f"[{host}]:{port}" if ":" in host else f"{host or '[::]'}:{port}")
            port = found[0][1]
            with ipv6_reserved(port):  # gRPC would take it too
                return self._add_port(server, f"0.0.0.0:{port}")
        except RuntimeError as error:
            raise ConfigError(f"{_KEY}.endpoint: cannot listen on {endpoint!r}: {error}") from None

    def _add_port(self, server: grpc.aio.Server, address: str) -> int:
        tls = self._config.tls
        if tls is None:
            return int(server.add_insecure_port(address))
        credentials = Certificates(tls, f"{_KEY}.tls", self._metrics).grpc_credentials()
        return int(server.add_secure_port(address, credentials))

    def _service(self, signal: Signal) -> grpc.GenericRpcHandler:
        # A unary method served as a stream of one message, so that a request can be refused before it is read.
        handler = grpc.stream_unary_rpc_method_handler(partial(self._export, signal))
        return grpc.method_handlers_generic_handler(signal.grpc_service, {"Export": handler})

    async def _export(
        self, signal: Signal, _requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, bytes]
    ) -> bytes:
        try:
            if self._auth.required and not self._auth.check(_header(context, "authorization")):
                raise UnauthenticatedError
            with self._handler.reading():
                data = await self._read(context)
            rejected = await self._handler.submit(signal, data, via=_header(context, VIA))
        except RefusedError as refusal:
            return await self._refuse(context, refusal)
        except Exception:  # the service continues, and the sender keeps the batch, which UNKNOWN would make it drop
            logger.exception("grpc: a request for %s failed", signal.grpc_service)
            self._metrics.error("receiver")
            return await self._refuse(context, UnavailableError("internal error"))
        count_request(self._metrics, _TRANSPORT, "OK")
        return export_response(signal, rejected).SerializeToString()

    async def _read(self, context: grpc.aio.ServicerContext[Any, bytes]) -> bytes:
        """Read the request.

        Raises:
            asyncio.CancelledError: gRPC ends the request: it is too large, as gRPC has answered, or its sender has
                gone. The handler cannot tell which.
        """
        reading = asyncio.ensure_future(context.read())
        self._readings.add(reading)
        try:
            await asyncio.wait([reading], timeout=self._config.read_timeout_s)  # ``wait_for`` may swallow the end
            if not reading.done():
                raise UnavailableError(f"no whole request within {self._config.read_timeout_s} s")
            if reading.cancelled():
                raise UnavailableError("shutting down")
            data = reading.result()
            if data is grpc.aio.EOF:
                await asyncio.sleep(_CUT_OFF_S)
                raise BadDataError("no request")
        except asyncio.CancelledError:
            count_request(self._metrics, _TRANSPORT, _CUT_OFF)
            raise
        finally:
            self._readings.discard(reading)
            reading.cancel()
        return bytes(data)

    async def _refuse(self, context: grpc.aio.ServicerContext[Any, bytes], refusal: RefusedError) -> bytes:
        code = _CODES[codes(refusal)[0]]
        count_request(self._metrics, _TRANSPORT, code.name)
        await context.abort(code, refusal.message, _details(refusal))
        raise AssertionError("abort raises")


def _header(context: grpc.aio.ServicerContext[Any, bytes], name: str) -> str | None:
    """The value of a header; None if it is missing, not text, or there twice."""
    values = [value for key, value in context.invocation_metadata() or () if key == name]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _details(refusal: RefusedError) -> tuple[tuple[str, bytes], ...]:
    if codes(refusal)[0] == Code.UNAUTHENTICATED:
        return ()
    details = ("grpc-status-details-bin", status(refusal).SerializeToString())
    if (info := retry_info(refusal)) is None:
        return (details,)
    # The Python SDK looks for its time under this name and nowhere else.
    return (details, ("google.rpc.retryinfo-bin", info.SerializeToString()))


def _options(config: GrpcReceiver) -> list[tuple[str, int]]:
    keepalive, age_s = config.keepalive, config.keepalive.max_connection_age_s
    options = [
        ("grpc.max_receive_message_length", int(config.max_recv_msg_size_mib * _MIB)),
        # More than the handler takes at a time: gRPC lets the sender wait at its own limit, and says nothing to it.
        ("grpc.max_concurrent_streams", min(config.max_concurrent_requests + _REFUSED_AT_ONCE, LARGEST)),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.max_connection_idle_ms", milliseconds(keepalive.max_connection_idle_s)),
        ("grpc.keepalive_time_ms", milliseconds(keepalive.time_s)),
        ("grpc.keepalive_timeout_ms", milliseconds(keepalive.timeout_s)),
        # Senders behind load balancers ping often, and by default would be disconnected for it.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.server_handshake_timeout_ms", milliseconds(config.read_timeout_s)),
        # The memory limiter does not see the bytes that gRPC buffers of unread requests: by default that
        # is megabytes a request, and a burst of refused requests doubled the memory.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _LOOKAHEAD),
        ("grpc.so_reuseport", 0),  # with it a second collector would take half of the connections unnoticed
    ]
    return options if age_s is None else [*options, ("grpc.max_connection_age_ms", milliseconds(age_s))]
