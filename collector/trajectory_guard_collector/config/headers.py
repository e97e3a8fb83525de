"""Headers of an exporter: whether they can be sent, and what must not be shown of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from trajectory_guard.config.values import BAD_HEADER_VALUE, can_be_sent
from trajectory_guard.hidden import Hidden, basic

if TYPE_CHECKING:
    from trajectory_guard_collector.config.models import Exporter

VIA: Final = "x-trajectory-guard-via"
"""Header that lists the collectors that a request has passed."""
_HTTP_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_GRPC_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_OF_CONNECTIONS: Final = frozenset({
    "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OF_EXPORTERS: Final = frozenset({"accept-encoding", "content-encoding", "content-type", VIA})


def header_mistakes(kind: str, headers: Mapping[str, SecretStr]) -> Iterator[tuple[str, str]]:
    """Names of the headers that an exporter of this type cannot send, with the reason; never with the value."""
    seen: dict[str, str] = {}
    for name, value in headers.items():
        reason = _why_no_name(kind, name)
        other = seen.setdefault(name.lower(), name)
        if other != name:
            reason = f"the same header as {other}: capitals and small letters are equal"
        if reason is None and not can_be_sent(value.get_secret_value()):
            reason = f"a header value {BAD_HEADER_VALUE}"
        if reason is not None:
            yield name, reason


def _why_no_name(kind: str, name: str) -> str | None:
    small = name.lower()
    if small in _OF_CONNECTIONS or small in _OF_EXPORTERS:
        return "is set by the exporter itself, or by its connection"
    if kind != "otlp":
        return None if _HTTP_NAME.fullmatch(name) else "not a header name"
    if not _GRPC_NAME.fullmatch(name):
        return "not a key of gRPC metadata: letters, digits, '_', '-' and '.' only"
    if small.startswith("grpc-"):
        return "gRPC reserves names that begin with 'grpc-'"
    return "gRPC takes bytes, and no text, for names that end in '-bin'" if small.endswith("-bin") else None


def hidden_of(config: Exporter) -> Hidden:
    """Hides what an exporter sends to identify itself."""
    values = [value.get_secret_value() for value in config.headers.values()]
    if config.public_key is not None and config.secret_key is not None:
        keys = (config.public_key.get_secret_value(), config.secret_key.get_secret_value())
        values += [*keys, basic(*keys)]
    return Hidden(values)
