"""Whether the PEM files of a ``tls`` section can be used, by key: OpenSSL and gRPC do not name the file."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trajectory_guard_collector.config.models import ClientTls, ServerTls

_CERTIFICATES: Final = ("ca_file", "client_ca_file", "cert_file")


def pem_mistakes(tls: ClientTls | ServerTls) -> Iterator[tuple[str, str]]:
    """Key of each file that cannot be used, with the file and the reason."""
    bad = set()
    for key in _CERTIFICATES:
        file = getattr(tls, key, None)
        reason = why_unreadable(file) or _why_no_certificate(file) if file is not None else None
        if reason is not None:
            bad.add(key)
            yield key, f"{file}: {reason}"
    if tls.cert_file is not None and tls.key_file is not None:
        reason = why_unreadable(tls.key_file)
        if reason is None and "cert_file" not in bad:
            reason = _why_no_key(tls.cert_file, tls.key_file)
        if reason is not None:
            yield "key_file", f"{tls.key_file}: {reason}"


def why_unreadable(file: str) -> str | None:
    """The reason why a file cannot be read, None if it can."""
    try:
        with Path(file).open("rb"):
            return None
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _why_no_certificate(file: str) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except OSError:
        return "holds no PEM certificate"
    return None


def _why_no_key(cert_file: str, key_file: str) -> str | None:
    try:
        # Without a password given here, OpenSSL would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"is not the key of {cert_file}"
        return "holds no PEM private key, or one with a password"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None
