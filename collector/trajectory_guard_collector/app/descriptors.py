"""File descriptors: raises the limit, and reserves some that the receivers' clients cannot take."""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import Final

from trajectory_guard_collector.config.models import CollectorConfig, Protocols

_WANTED: Final = 65_536
_KEPT: Final = 256
"""Descriptors for the telemetry port, exporters, the storage and libraries."""

logger: Final = logging.getLogger(__name__)


def raise_limit() -> None:
    """Take as many descriptors as the system allows without privileges, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems allow fewer than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int | None:
    """Descriptors this process may have, None if that is not limited or not known."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else None


def within(config: CollectorConfig, most: int | None) -> Protocols:
    """The receivers with as many connections as ``most`` descriptors allow; logs a warning if these are fewer."""
    protocols = config.receivers.otlp.protocols
    wanted = {name: one.max_connections for name, one in protocols if one is not None}
    if most is None or sum(wanted.values()) <= most - min(_KEPT, most // 2):
        return protocols
    share = (most - min(_KEPT, most // 2)) / sum(wanted.values())
    allowed = {name: max(1, int(number * share)) for name, number in wanted.items()}
    for name, number in allowed.items():
        logger.warning(
            "receivers.otlp.protocols.%s.max_connections: %d instead of %d, since the process may have %d descriptors;"
            " raise the limit (ulimit -n)", name, number, wanted[name], most,
        )  # fmt: skip
    bounded = {
        name: getattr(protocols, name).model_copy(update={"max_connections": number})
        for name, number in allowed.items()
    }
    return protocols.model_copy(update=bounded)
