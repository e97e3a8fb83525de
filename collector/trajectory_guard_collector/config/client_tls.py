"""Files of the ``tls`` section of an exporter."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc

from trajectory_guard_collector.config.models import ClientTls
from trajectory_guard_collector.config.pem import pem_mistakes


def channel_credentials(exporter: str, tls: ClientTls) -> Any:
    """Credentials of a gRPC channel.

    Parameters:
        exporter: its name, for errors.
        tls: the files.

    Raises:
        ValueError: a file cannot be read or holds no certificate or key; names exporter, key and file.
    """
    _check(exporter, tls)  # gRPC itself would only fail when connecting, and report a refused connection
    return grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca_file),
        private_key=_read(tls.key_file),
        certificate_chain=_read(tls.cert_file),
    )


def client_context(exporter: str, tls: ClientTls) -> ssl.SSLContext:
    """TLS context of an HTTP client.

    Parameters:
        exporter: its name, for errors.
        tls: the files.

    Raises:
        ValueError: a file cannot be read or holds no certificate or key; names exporter, key and file.
    """
    _check(exporter, tls)
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def _check(exporter: str, tls: ClientTls) -> None:
    for key, reason in pem_mistakes(tls):
        raise ValueError(f"exporters.{exporter}.tls.{key}: {reason}")


def _read(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file is not None else None
