"""Listening sockets for endpoints."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.checks import parse_endpoint

_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def listen(endpoint: str, key: str) -> list[socket.socket]:
    """Sockets bound to every address of an endpoint, all with the same port; port 0 takes a free one. ``0.0.0.0`` is
    IPv4 only, ``[::]`` both.

    Parameters:
        endpoint: ``host:port``.
        key: where the endpoint is configured, for messages.

    Raises:
        ConfigError: an address is taken, or there is none.
    """
    host, port = parse_endpoint(endpoint)
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        try:
            addresses = _addresses(host, port)
            for family, address in addresses:
                bound = _bind(
                    family, (address, sockets[0].getsockname()[1] if sockets else port), ipv6_only=len(addresses) > 1
                )
                sockets += [opened.enter_context(one) for one in bound]
        except OSError as error:
            raise ConfigError(f"{key}: cannot listen on {endpoint!r}: {error.strerror}") from None
        if not sockets:
            raise ConfigError(f"{key}: cannot listen on {endpoint!r}: this machine has no such address")
        opened.pop_all()
    return sockets


@contextlib.contextmanager
def ipv6_reserved(port: int) -> Iterator[None]:
    """Reserve the IPv6 port so that gRPC does not bind it together with the IPv4 port.

    Without IPv6, or if another process has the port, nothing needs to be reserved.
    """
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            one = opened.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(("::", port))
            one.listen(1)  # until it listens, a process that reuses addresses could bind the port
        yield


def _addresses(host: str, port: int) -> dict[tuple[socket.AddressFamily, str], None]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)


def _bind(family: socket.AddressFamily, address: tuple[str, int], *, ipv6_only: bool) -> list[socket.socket]:
    try:
        with contextlib.ExitStack() as opened:
            one = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(ipv6_only))
            one.setblocking(False)
            one.bind(address)
            opened.pop_all()
            return [one]
    except OSError as error:
        if error.errno in _NO_SUCH_ADDRESS:  # localhost names ::1 on machines without IPv6
            return []
        raise
