"""Finds exporters that would send to the collector's own receivers, so that every span would return endlessly."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import psutil

from trajectory_guard_collector.config.checks import Mistake, exporter_type, parse_endpoint, split_url

if TYPE_CHECKING:
    from trajectory_guard_collector.config.models import CollectorConfig

_PORTS: Final = {"http": 80, "https": 443}
_GRPC_PORT: Final = 4317
_SCHEME: Final = re.compile(r"(?:dns|ipv4|ipv6):(?://[^/]*/)?/?")
_LOOPBACK: Final = "loopback"
_ANY: Final = "any"


def self_references(config: CollectorConfig) -> Iterator[Mistake]:
    """Exporters whose endpoint is a receiver of this collector, by any name of this machine. Asks no name server."""
    protocols = config.receivers.otlp.protocols
    receivers = {
        f"receivers.otlp.protocols.{name}.endpoint": parse_endpoint(one.endpoint)
        for name, one in protocols
        if one is not None
    }
    for name, exporter in config.exporters.items():
        target = _target(exporter_type(name), exporter.endpoint or "")
        for key, (host, port) in receivers.items():
            if target is not None and port == target[1] != 0 and _reaches(target[0], host):
                message = f"is this collector's own receiver ({key}): everything would come back for ever"
                yield Mistake(("exporters", name, "endpoint"), message, exporter.endpoint)


def _target(kind: str, endpoint: str) -> tuple[str, int] | None:
    """Host and port of an exporter's endpoint, None if it has none."""
    if "://" in endpoint and endpoint.lower().startswith(("http://", "https://")):
        url = split_url(endpoint)
        if url is None or not url.hostname:
            return None
        return url.hostname, url.port or (_GRPC_PORT if kind == "otlp" else _PORTS[url.scheme])
    try:
        host, port = parse_endpoint(_SCHEME.sub("", endpoint, count=1))
    except ValueError:
        return None
    return host, port


def _reaches(target: str, receiver: str) -> bool:
    place, listens = _place(target), _place(receiver)
    if place is None:
        return target.lower().rstrip(".") == receiver.lower().rstrip(".")
    if listens == _ANY:
        return True
    if place == _ANY:  # a connection to 0.0.0.0 goes to the loopback interface
        place = _LOOPBACK
    return place == listens


def _place(host: str) -> str | None:
    """``loopback``, ``any``, or an own address, for a host; None if it is another machine's, or unknown."""
    name = host.lower().rstrip(".").partition("%")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return _LOOPBACK
    if name in {one.lower() for one in (socket.gethostname(), socket.gethostname().partition(".")[0])}:
        return name
    address = _address(name)
    if address is None:
        return None if name else _ANY
    if address.is_unspecified:
        return _ANY
    if address.is_loopback:
        return _LOOPBACK
    return str(address) if str(address) in _own_addresses() else None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name)
        return getattr(address, "ipv4_mapped", None) or address
    if re.fullmatch(r"[0-9a-fx.]+", name) and name[0].isdigit():
        with contextlib.suppress(OSError):  # 127.1 and the like
            return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def _own_addresses() -> set[str]:
    return {one.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for one in addresses}
