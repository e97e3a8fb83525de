"""``/v1/flags/{trajectory}`` from the flags of the whole group, in each worker or in a program of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette

from trajectory_guard_collector.api.flags import FlagService
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.tokens import HANDS, READERS
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.endpoints import serving
from trajectory_guard_collector.fleet.flag_reader import FlagReader, KafkaFlags
from trajectory_guard_collector.telemetry.metrics import Metrics


@contextmanager
def flag_server(config: FleetConfig, metrics: Metrics) -> Iterator[FlagReader | None]:
    """Read flags and serve them on ``flags.endpoint``; None, and nothing is done, if that is null.

    Raises:
        ConfigError: a file of tokens cannot be used.
        StartError: the port cannot be used.
    """
    if config.flags.endpoint is None:
        yield None
        return

    def unreadable() -> None:
        metrics.error("tokens_reload")

    readers = Authenticator(config.flags.readers, path=READERS, failed=unreadable)
    people = Authenticator(config.flags.auth, path=HANDS, failed=unreadable)
    reader = FlagReader(config, metrics)
    service = FlagService(KafkaFlags(config, reader), config.guard, metrics, config.trajectories.separate_by)
    with serving(config.flags.endpoint, Starlette(routes=service.routes(readers, people)), "flags.endpoint"):
        reader.start()
        try:
            yield reader
        finally:
            reader.stop()
