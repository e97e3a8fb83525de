"""OTLP/HTTP, protobuf and JSON."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trajectory_guard_collector.authentication import Authenticator, BearerAuth
from trajectory_guard_collector.config.headers import VIA
from trajectory_guard_collector.config.models import Cors, HttpReceiver
from trajectory_guard_collector.errors import RefusedError, TooLargeError, UnavailableError
from trajectory_guard_collector.gateway.receivers.decoding import decompress, from_json
from trajectory_guard_collector.gateway.receivers.http_limits import BoundedServer, HttpLimits
from trajectory_guard_collector.gateway.receivers.request_handler import RequestHandler, count_request
from trajectory_guard_collector.gateway.receivers.tls import Certificates
from trajectory_guard_collector.otlp.replies import (
    ENDPOINTS,
    JSON,
    Encoding,
    encoding_of,
    export_response,
    no_endpoint,
    no_method,
    refused,
    reply,
    shown_path,
)
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_TRANSPORT: Final = "http"
_KEY: Final = "receivers.otlp.protocols.http"
_MIB: Final = 1 << 20
_DECODING_THREADS: Final = 2
_DECODED_INLINE: Final = 65_536
"""Bodies up to this many bytes are decompressed in the event loop, which is faster than in a thread."""
_DECODED_TO_INLINE: Final = 1 << 20
"""Bytes to which these bodies may expand; larger ones are decompressed in a thread."""

logger = logging.getLogger(__name__)
_PATHS: Final = frozenset(signal.path for signal in Signal)


class HttpServer:
    """Receives traces, metrics and logs over HTTP, ``POST /v1/traces``, ``/v1/metrics`` and ``/v1/logs``.

    Parameters:
        config: the ``http`` section.
        auth: authenticates senders.
        handler: hands requests to the pipeline.
        metrics: counts.
    """

    def __init__(self, config: HttpReceiver, auth: Authenticator, handler: RequestHandler, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._limit = int(config.max_request_body_size_mib * _MIB)
        self._handler = handler
        self._max_connections, self._throttled = config.max_connections, ThrottledLog(logger)
        self._decoding = ThreadPoolExecutor(_DECODING_THREADS, thread_name_prefix="otlp-decoding")
        routes = [Route(signal.path, partial(self._export, signal), methods=["POST"]) for signal in Signal]
        wrappers = [Middleware(CountRequests, metrics=metrics)]
        if auth.required:
            wrappers.append(Middleware(BearerAuth, auth=auth))
        app = Starlette(
            routes=routes,
            middleware=[*_cors(config.cors), *wrappers],
            exception_handlers={404: self._no_endpoint, 405: no_method},
        )
        app.router.redirect_slashes = False  # exporters do not follow redirects; an error names the path
        self._server = BoundedServer(
            app,
            config.endpoint,
            f"{_KEY}.endpoint",
            HttpLimits(config.max_connections, config.read_timeout_s, config.idle_timeout_s),
            cut_off=partial(self._cut_off, metrics),
            certificates=partial(Certificates, config.tls, f"{_KEY}.tls", metrics) if config.tls else None,
        )

    def _cut_off(self, metrics: Metrics, why: str) -> None:
        count_request(metrics, _TRANSPORT, why)
        if why == "too_many_connections":
            most = self._max_connections
            self._throttled.log(
                logging.WARNING,
                why,
                f"{_KEY}.max_connections: {most} are open; one was closed for a new one, or refused",
            )

    async def _no_endpoint(self, request: Request, error: Exception) -> Response:
        """Answer, and say so in the log too: the sender drops the data, and its own log is seldom read."""
        if request.method == "POST":
            self._throttled.log(
                logging.WARNING,
                "no_endpoint",
                f"http: POST {shown_path(request)} is answered 404, and senders drop the data: it is taken at"
                f" {ENDPOINTS} (OTEL_EXPORTER_OTLP_ENDPOINT is the URL without, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT with"
                " /v1/traces)",
            )
        return await no_endpoint(request, error)

    async def start(self) -> int:
        """Listen; the port.

        Raises:
            ConfigError: the endpoint is taken, or a certificate cannot be used.
        """
        return await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more, let running requests finish within ``grace_s`` seconds, then close. Callable at any time."""
        deadline = asyncio.get_running_loop().time() + grace_s
        self._handler.close()
        self._server.close()
        await self._handler.drain(grace_s)
        await self._server.wait_closed(deadline - asyncio.get_running_loop().time())
        await self._handler.drain(0.0)
        self._decoding.shutdown(wait=False, cancel_futures=True)

    async def _export(self, signal: Signal, request: Request) -> Response:
        encoding: Encoding = JSON
        try:
            encoding = encoding_of(request.headers.get("content-type", ""))
            with self._handler.reading(_declared(request)):
                data = await self._decode(signal, encoding, request)
            rejected = await self._handler.submit(signal, data, via=request.headers.get(VIA))
        except RefusedError as refusal:
            return refused(refusal, encoding)
        except ClientDisconnect:  # the client disconnected or was too slow, and does not read the reply
            return refused(UnavailableError("the request was not received whole"), encoding)
        except Exception:  # the service continues, and the sender keeps the batch
            logger.exception("http: a request for %s failed", signal.path)
            self._metrics.error("receiver")
            return refused(UnavailableError("internal error"), encoding)
        return reply(200, export_response(signal, rejected), encoding)

    async def _decode(self, signal: Signal, encoding: Encoding, request: Request) -> bytes:
        compression = request.headers.get("content-encoding", "").strip().lower()
        body = await self._read(request)
        if encoding is not JSON and compression in ("", "identity"):
            return body
        decode = partial(_decoded, signal, encoding, compression, body)
        if encoding is not JSON:
            with contextlib.suppress(TooLargeError):
                if len(body) <= _DECODED_INLINE:
                    return decode(min(self._limit, _DECODED_TO_INLINE))
        return await asyncio.get_running_loop().run_in_executor(self._decoding, decode, self._limit)

    async def _read(self, request: Request) -> bytes:
        declared = _declared(request)
        if declared > self._limit:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise self._too_large()
            self._handler.check_memory()
        if size < declared:  # an empty request is a valid one: it would be acknowledged, and the data lost
            raise UnavailableError(f"{size} of {declared} bytes were received")
        return b"".join(chunks)

    def _too_large(self) -> TooLargeError:
        limit = self._config.max_request_body_size_mib
        return TooLargeError(f"body larger than max_request_body_size_mib, {limit}")


def _declared(request: Request) -> int:
    """Length of the body by its ``Content-Length`` in bytes, 0 if the header gives none."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdigit() else 0


def _decoded(signal: Signal, encoding: Encoding, compression: str, body: bytes, limit: int) -> bytes:
    data = decompress(compression, body, limit)
    return from_json(signal, data) if encoding is JSON else data


def _origin_pattern(origin: str) -> str:
    """A star matches characters of a host name, and at the end a port too, but no path before the host."""
    if origin == "*":
        return ".*"
    port = "(?::[0-9]+)?" if origin.endswith("*") else ""
    return re.escape(origin).replace(r"\*", "[a-z0-9._-]*") + port


def _cors(config: Cors) -> list[Middleware]:
    if not config.allowed_origins:
        return []
    # As in the OpenTelemetry Collector, a star may be a part, and capitals do not matter.
    patterns = (_origin_pattern(origin) for origin in config.allowed_origins)
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=config.allowed_origins,
            allow_origin_regex=f"(?i:{'|'.join(patterns)})",
            allow_headers=("content-type", *config.allowed_headers),
            allow_methods=("POST",),
            max_age=config.max_age_s,
        )
    ]


class CountRequests:
    """Counts OTLP requests by the status they were answered with, those to unknown paths too: exporters post to them.

    Other methods at unknown paths are of probes and scanners, who have no data to lose.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count_request(self._metrics, "http", str(message["status"]))
            await send(message)

        counts = scope["path"] in _PATHS or scope["method"] == "POST"
        await self._app(scope, receive, send_counted if counts else send)
