"""``otlphttp``: OTLP over HTTP, protobuf."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx

from trajectory_guard.backoff import parse_retry_after
from trajectory_guard.hidden import Hidden
from trajectory_guard_collector.config.checks import without_secrets
from trajectory_guard_collector.config.client_tls import client_context
from trajectory_guard_collector.config.headers import VIA, hidden_of
from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.base import (
    UNCLEAR_PATIENCE_S,
    USER_AGENT,
    ExportResult,
    PermanentExportError,
    RetryableExportError,
)
from trajectory_guard_collector.gateway.exporters.proxies import check_proxies
from trajectory_guard_collector.gateway.exporters.replies import error_text, is_page, read_reply
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

MAX_REPLY_BYTES: Final = 64 * 1024
_RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})
_DIVISIBLE: Final = frozenset({400, 413, 422})
_GZIP_LEVEL: Final = 1


class OtlpHttpExporter:
    """Posts requests as they are.

    413 means "send less at a time", 400 and 422 that something in the batch is bad: what is bad is dropped. Every other
    failure is retryable: those of the specification (429, 502, 503, 504, transport errors and timeouts), other statuses
    of 500 and above for a while, and those that pass once an operator corrects the path or the credentials (401, 403,
    404, redirects), for which the specification would drop the batch. A web page is retryable whatever its status; any
    other reply with 2xx that is no OTLP reply is taken as success, since the backend may have the batch, and counted.
    Redirects are not followed. At most 64 KiB of a reply are read.

    Parameters:
        name: name in the configuration.
        config: ``endpoint`` is a base URL to whose path ``/v1/traces`` and so on are added.
        log: for replies that cannot be read.
        urls: URL of each signal, instead of the ones the endpoint gives.
        headers: sent with every request, beneath the configured ones.
        via: names the collectors that a request of a signal has passed.

    Raises:
        ValueError: a TLS file cannot be used, or a proxy that the environment names; names the key or the variable.
    """

    def __init__(
        self,
        name: str,
        config: ExporterConfig,
        log: ThrottledLog,
        *,
        urls: Mapping[Signal, str] | None = None,
        headers: Mapping[str, str] | None = None,
        via: Callable[[Signal], str] = lambda _: "",
    ) -> None:
        self._via = via
        self.name = name
        self._config = config
        self._log = log
        self._urls = signal_urls(config.endpoint or "") if urls is None else urls
        self.signals = frozenset(config.signals) & frozenset(self._urls)
        self._gzip = config.compression == "gzip"
        self._headers = {"content-type": "application/x-protobuf", "accept-encoding": "identity"}
        if self._gzip:
            self._headers["content-encoding"] = "gzip"
        self._headers.update(headers or {})
        self._headers.update((key.lower(), value.get_secret_value()) for key, value in config.headers.items())
        self._hidden = hidden_of(config)
        self._tls = client_context(name, config.tls)
        check_proxies(name, self._tls)
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Create the client; connects with the first request."""
        connections = self._config.sending_queue.num_consumers
        self._client = httpx.AsyncClient(
            verify=self._tls,
            timeout=self._config.timeout_s,
            headers={"user-agent": USER_AGENT, **self._headers},
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    async def stop(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def export(self, batch: Batch) -> ExportResult:
        """Make one attempt. Raises as ``Exporter.export``."""
        url = without_secrets(self._urls[batch.signal])
        try:
            # httpx bounds each read and write, not the whole exchange.
            with anyio.fail_after(self._config.timeout_s):
                response, body = await self._post(batch)
        except TimeoutError as error:
            raise RetryableExportError(f"{url}: no reply within {self._config.timeout_s:g} s") from error
        except httpx.TransportError as error:
            # Not chained: a traceback would show the text of the library, which may quote a header.
            reason = self._hidden.hide(str(error))
            raise RetryableExportError(f"{url}: {type(error).__name__}: {reason}") from None
        if not response.is_success:
            raise _failure(url, response, body, self._hidden)
        return self._result(batch, response, body)

    async def _post(self, batch: Batch) -> tuple[httpx.Response, bytes]:
        if self._client is None:
            raise RuntimeError(f"exporter {self.name} is not started")
        data, via = batch.data, self._via(batch.signal)
        hops = {VIA: via} if via else None
        if self._gzip:
            # Off the loop: zlib lets other threads run, and a large batch takes milliseconds.
            data = await asyncio.to_thread(gzip.compress, data, _GZIP_LEVEL)
        async with self._client.stream("POST", self._urls[batch.signal], content=data, headers=hops) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= MAX_REPLY_BYTES:
                    break
        return response, bytes(body[:MAX_REPLY_BYTES])

    def _result(self, batch: Batch, response: httpx.Response, body: bytes) -> ExportResult:
        content_type = response.headers.get("content-type", "").lower()
        if is_page(body, content_type):
            # A login page or a proxy answered: the backend has not seen the batch.
            url = without_secrets(self._urls[batch.signal])
            raise RetryableExportError(
                f"{url} answered {response.status_code} with a web page, not an OTLP reply: a login or a proxy?",
                unreadable=True,
            )
        json = content_type.startswith("application/json")
        try:
            return read_reply(batch, body, self._hidden, json=json) if body else ExportResult()
        except ValueError as error:
            self._log.log(logging.WARNING, f"{self.name}/reply", f"exporter {self.name}: {error}; taken as success")
            return ExportResult(unreadable=True)


def signal_urls(endpoint: str) -> dict[Signal, str]:
    """URL of each signal at an endpoint.

    >>> signal_urls("http://tempo:4318/otlp/?tenant=1")[Signal.LOGS]
    'http://tempo:4318/otlp/v1/logs?tenant=1'
    """
    url = urlsplit(endpoint)
    base = url.path.rstrip("/")
    return {signal: url._replace(path=base + signal.path).geturl() for signal in Signal}


def _failure(
    url: str, response: httpx.Response, body: bytes, hidden: Hidden
) -> RetryableExportError | PermanentExportError:
    status = response.status_code
    message = f"{url} answered {status}: {error_text(body, response.headers.get('content-type', ''), hidden)}"
    if status in _DIVISIBLE:
        return PermanentExportError(message, divisible=True)
    # Wrong credentials, a wrong path, a redirect: the batch is fine, and passes once an operator corrects that. The
    # specification would drop it.
    unclear = status >= 500 and status not in _RETRYABLE
    return RetryableExportError(
        message,
        retry_after_s=parse_retry_after(response.headers.get("retry-after")),
        patience_s=UNCLEAR_PATIENCE_S if unclear else math.inf,
    )
