"""Files of the ``tls`` section of an exporter."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc

from trajectory_guard_collector.config import ClientTls


def channel_credentials(exporter: str, tls: ClientTls) -> Any:
    """Credentials of a gRPC channel.

    Parameters:
        exporter: its name, for errors.
        tls: the files.

    Raises:
        ValueError: a file cannot be read; names exporter, key and file.
    """
    return grpc.ssl_channel_credentials(
        root_certificates=_read(exporter, "ca_file", tls.ca_file),
        private_key=_read(exporter, "key_file", tls.key_file),
        certificate_chain=_read(exporter, "cert_file", tls.cert_file),
    )


def client_context(exporter: str, tls: ClientTls) -> ssl.SSLContext:
    """TLS context of an HTTP client.

    Parameters:
        exporter: its name, for errors.
        tls: the files.

    Raises:
        ValueError: a file cannot be read or holds no certificate or key; names exporter and file.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
        raise ValueError(f"exporters.{exporter}.tls: cannot use {files}: {error}") from error
    return context


def _read(exporter: str, key: str, file: str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"exporters.{exporter}.tls.{key}: cannot read {file}: {error.strerror}") from error
