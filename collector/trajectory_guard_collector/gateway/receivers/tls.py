"""Certificates of the receivers, read again when the files change, without a restart."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import grpc

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.models import ServerTls
from trajectory_guard_collector.telemetry.metrics import Metrics

T = TypeVar("T")

logger = logging.getLogger(__name__)


class _Loaded(NamedTuple):
    entries: dict[str, tuple[int, int, int]]
    context: ssl.SSLContext
    grpc: grpc.ServerCertificateConfiguration


class Certificates:
    """The certificates of one receiver. New connections get the current content of the files, checked at most once in
    ``reload_interval_s`` seconds. If changed files cannot be used, an error is logged and counted; the last ones stay.

    Parameters:
        config: the ``tls`` section.
        key: path of that section, for messages.
        metrics: counts.

    Raises:
        ConfigError: a file is missing or cannot be used.
    """

    def __init__(self, config: ServerTls, key: str, metrics: Metrics) -> None:
        self._config = config
        self._key = key
        self._metrics = metrics
        self._looked_at = time.monotonic()
        self._loaded = self._load()
        self._given = self._loaded

    def ssl_context(self) -> ssl.SSLContext:
        """A context for a server of ``asyncio`` that hands every new handshake to the newest certificates."""
        context = self._loaded.context
        context.sni_callback = self._choose
        return context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials for a gRPC server that give every new connection the newest certificates."""
        return grpc.dynamic_ssl_server_credentials(
            self._loaded.grpc, self._changed, require_client_authentication=self._config.client_ca_file is not None
        )

    def _choose(self, connection: ssl.SSLObject, _server_name: str | None, _context: ssl.SSLContext) -> None:
        self._refresh()
        connection.context = self._loaded.context

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        self._refresh()
        if self._given is self._loaded:
            return None
        self._given = self._loaded
        return self._given.grpc

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < self._config.reload_interval_s:
            return
        self._looked_at = now
        try:
            if self._each(_entry) != self._loaded.entries:
                self._loaded = self._load()
                logger.info("%s: certificates reloaded", self._key)
        except ConfigError as error:
            logger.error("%s; the previous certificates stay in use", error)
            self._metrics.error("tls_reload")

    def _load(self) -> _Loaded:
        entries = self._each(_entry)
        contents = self._each(Path.read_bytes)
        try:
            context = _context(self._config)
        except ssl.SSLError as error:
            raise ConfigError(f"{self._key}: {', '.join(self._files().values())}: {error}") from None
        if self._each(_entry) != entries:
            raise ConfigError(f"{self._key}: {', '.join(self._files().values())}: changed while being read")
        pair = (contents["key_file"], contents["cert_file"])
        for_grpc = grpc.ssl_server_certificate_configuration([pair], contents.get("client_ca_file"))
        return _Loaded(entries, context, for_grpc)

    def _files(self) -> dict[str, str]:
        named = {name: getattr(self._config, name) for name in ("cert_file", "key_file", "client_ca_file")}
        return {name: file for name, file in named.items() if file is not None}

    def _each(self, read: Callable[[Path], T]) -> dict[str, T]:
        return {name: self._one(name, file, read) for name, file in self._files().items()}

    def _one(self, name: str, file: str, read: Callable[[Path], T]) -> T:
        try:
            return read(Path(file))
        except OSError as error:
            raise ConfigError(f"{self._key}.{name}: {file}: {error.strerror}") from None


def _entry(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context(config: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.cert_file, config.key_file)
    if config.client_ca_file is not None:
        context.load_verify_locations(config.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session is not verified again, and a client authority can be withdrawn while it lasts.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context
