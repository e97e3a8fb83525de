"""``otlp``: OTLP over gRPC."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from trajectory_guard_collector.config.checks import without_secrets
from trajectory_guard_collector.config.client_tls import channel_credentials
from trajectory_guard_collector.config.headers import VIA, hidden_of
from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.base import (
    UNCLEAR_PATIENCE_S,
    USER_AGENT,
    ExportResult,
    PermanentExportError,
    RetryableExportError,
)
from trajectory_guard_collector.gateway.exporters.replies import one_line, read_reply
from trajectory_guard_collector.gateway.grpc_options import milliseconds
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_DEFAULT_PORT: Final = 4317
_MAX_RECONNECT_PAUSE_S: Final = 5.0
_UNCLEAR: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.FAILED_PRECONDITION})
_STATUS_DETAILS: Final = "grpc-status-details-bin"


class OtlpGrpcExporter:
    """Sends requests as they are, over one channel.

    INVALID_ARGUMENT means that something in the batch is bad, RESOURCE_EXHAUSTED "send less at a time" if its text says
    that a message was larger than a maximum: what is bad or too large is dropped. Every other code is retryable: those
    of the specification, some that are unclear for a while, and those that pass once an operator corrects the
    credentials or the service (UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED), for which the specification would
    drop the batch.

    Parameters:
        name: name in the configuration.
        config: ``endpoint`` is ``host:port`` (TLS unless ``tls.insecure``), ``http://host:port`` (plain text),
            ``https://host:port`` (TLS) or any other gRPC target.
        log: for replies that cannot be read.
        via: names the collectors that a request of a signal has passed.

    Raises:
        ValueError: the endpoint is a URL with a path, or a TLS file cannot be read.
    """

    def __init__(
        self, name: str, config: ExporterConfig, log: ThrottledLog, *, via: Callable[[Signal], str] = lambda _: ""
    ) -> None:
        self._via = via
        self.name = name
        self.signals = frozenset(config.signals)
        self._config = config
        self._log = log
        self._target, self._secure = parse_target(name, config)
        self._credentials = channel_credentials(name, config.tls) if self._secure else None
        self._metadata = tuple((key.lower(), value.get_secret_value()) for key, value in config.headers.items())
        self._hidden = hidden_of(config)
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[Signal, Any] = {}

    async def start(self) -> None:
        """Open the channel; connects with the first request."""
        gzip = self._config.compression == "gzip"
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(self._target, options=self._options(), compression=compression)
        else:
            channel = grpc.aio.secure_channel(
                self._target, self._credentials, options=self._options(), compression=compression
            )
        self._methods = {signal: channel.unary_unary(f"/{signal.grpc_service}/Export") for signal in Signal}
        self._channel = channel

    async def stop(self) -> None:
        """Close the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def export(self, batch: Batch) -> ExportResult:
        """Make one attempt. Raises as ``Exporter.export``."""
        via = self._via(batch.signal)
        metadata = (*self._metadata, (VIA, via)) if via else self._metadata
        call = self._methods[batch.signal](batch.data, timeout=self._config.timeout_s, metadata=metadata)
        try:
            reply = await call
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None  # a traceback would show its text as it is
        try:
            return read_reply(batch, reply, self._hidden)
        except ValueError as error:
            self._log.log(logging.WARNING, f"{self.name}/reply", f"exporter {self.name}: {error}; taken as success")
            return ExportResult(unreadable=True)

    def _failure(self, error: grpc.aio.AioRpcError) -> RetryableExportError | PermanentExportError:
        code, details = error.code(), error.details() or ""
        message = f"{self._target} answered {code.name}: {one_line(details, self._hidden)}"
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            return PermanentExportError(message, divisible=True)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details.lower():
            # "CLIENT:" is our own library, about a reply; the backend has the batch then.
            return PermanentExportError(message, divisible="CLIENT:" not in details)
        # Wrong credentials or an unknown service: the batch is fine, and passes once an operator corrects that. The
        # specification would drop it.
        patience_s = UNCLEAR_PATIENCE_S if code in _UNCLEAR else math.inf
        return RetryableExportError(message, retry_after_s=_retry_info_s(error), patience_s=patience_s)

    def _options(self) -> list[tuple[str, Any]]:
        # A channel that failed to connect refuses calls until its own pause is over; gRPC's may take two minutes.
        retry = self._config.retry_on_failure
        first_s = min(retry.initial_interval_s, _MAX_RECONNECT_PAUSE_S)
        longest_s = min(retry.max_interval_s, _MAX_RECONNECT_PAUSE_S)
        options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", milliseconds(first_s)),
            ("grpc.min_reconnect_backoff_ms", milliseconds(self._config.timeout_s)),
            ("grpc.max_reconnect_backoff_ms", milliseconds(longest_s)),
            ("grpc.primary_user_agent", USER_AGENT),
        ]
        if self._config.tls.server_name_override:
            options.append(("grpc.ssl_target_name_override", self._config.tls.server_name_override))
        return options


def parse_target(name: str, config: ExporterConfig) -> tuple[str, bool]:
    """gRPC target of an endpoint, and whether it is spoken to with TLS.

    Raises:
        ValueError: a URL has a path, which gRPC has no use for.

    >>> parse_target("otlp", ExporterConfig(endpoint="http://tempo:4317/"))
    ('tempo:4317', False)
    """
    endpoint = config.endpoint or ""
    if not endpoint.lower().startswith(("http://", "https://")):
        return endpoint, not config.tls.insecure
    url = urlsplit(endpoint)
    if not url.hostname or url.path not in ("", "/"):
        raise ValueError(f"exporters.{name}.endpoint: {without_secrets(endpoint)!r} is not http(s)://host:port")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{host}:{url.port or _DEFAULT_PORT}", url.scheme.lower() == "https"


def _retry_info_s(error: grpc.aio.AioRpcError) -> float | None:
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_DETAILS:
            return _delay_s(value)
    return None


def _delay_s(status_details: bytes) -> float | None:
    try:
        status = Status.FromString(status_details)
        for detail in status.details:
            info = RetryInfo()
            if detail.Unpack(info):
                return max(0.0, float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    except DecodeError:
        pass
    return None
