"""A collector from start to stop: signals, log lines, exit status."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.app import descriptors
from trajectory_guard_collector.command_line import FAILED
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.config.process_variables import ignored_variables
from trajectory_guard_collector.config.render import unusable_storage
from trajectory_guard_collector.early_stop import FINE, STOPPING, asked_early
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.telemetry import logs

logger: Final = logging.getLogger(__name__)
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Most objects of a batch are freed with it; collecting cycles as often as by default takes 7 % of the time."""
_GRPC_LOG: Final = "GRPC_VERBOSITY"
"""gRPC's C core writes a line that is no JSON to standard error for each client whose TLS handshake fails."""


class Service(Protocol):
    """The service to run: the ``Collector``."""

    @property
    def endpoints(self) -> dict[str, str]:
        """Endpoints on which it listens, by name."""
        ...

    async def start(self, listens: Callable[[], None] = ...) -> None:
        """Listen and start to deliver.

        Parameters:
            listens: called once all endpoints are there; the service may need longer until it takes data.

        Raises:
            StartError, ConfigError: it cannot start; names the key and the value.
        """
        ...

    async def stop(self) -> None:
        """Drain and stop, within the configured time."""
        ...


def run(config: CollectorConfig, *, exits: bool = False) -> int:
    """Run a collector until SIGTERM or SIGINT; the exit status: 0 stopped gracefully, 1 could not start or work.

    Parameters:
        config: the configuration.
        exits: the process exits afterwards, so that the memory of the collector need not be freed.

    Raises:
        ConfigError: no collector can be made of this configuration; names the key and the value.
    """
    os.environ.setdefault(_GRPC_LOG, "NONE")  # before gRPC is loaded
    from trajectory_guard_collector.app.service import Collector
    from trajectory_guard_collector.gateway.memory_limiter import unusable_limit

    telemetry = config.telemetry
    output = logs.configure(telemetry.log_level, max_mib=telemetry.max_unwritten_mib, flush_s=telemetry.flush_timeout_s)
    for line in ignored_variables(config.guard):
        logger.warning("%s", line)
    too_small = unusable_limit(config.memory_limiter)
    if too_small is not None:
        raise ConfigError(too_small)
    unusable = unusable_storage(config)
    if unusable is not None:
        logger.error("%s", unusable)
        return FAILED
    descriptors.raise_limit()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        collector = Collector(config, output)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    logs.log_uncaught()
    gc.collect()
    gc.freeze()  # 73,000 objects that stay: a full collection takes 37 ms for them alone, in which no span is answered
    try:
        return _loop_runner()(serve(collector))
    finally:
        if exits:
            _never_free(collector)


def _never_free(owner: object) -> None:
    """Leave an object, with all that it holds, to the operating system.

    To free the trajectories one by one takes the interpreter seconds, after everything has been written and closed.
    """
    cycle: list[object] = [owner]
    cycle.append(cycle)  # only the garbage collector could free it,
    gc.freeze()  # which no longer looks at what there is by now


def _loop_runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def serve(service: Service) -> int:
    """Start a service, wait for a signal to stop, stop it. A second signal ends the process at once, status 1."""
    stop = asyncio.Event()
    _handle_signals(stop)

    def listens() -> None:
        for name, endpoint in service.endpoints.items():
            logger.info("listening", extra={"server": name, "endpoint": endpoint, "version": __version__})

    starting, stopping = asyncio.ensure_future(service.start(listens)), asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    try:
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
        else:
            starting.result()
    except (StartError, ConfigError) as error:
        logger.error("%s", error)
        stopping.cancel()
        await service.stop()
        return FAILED
    await stopping
    try:
        await service.stop()
    except Exception:
        logger.exception("stopping failed")
        return FAILED
    logger.info("stopped")
    return FINE


def _handle_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, _asked_to_stop, stop, number)
    if asked_early():
        stop.set()
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(
            signal.SIGHUP,
            logger.warning,
            "SIGHUP: a changed configuration needs a restart; certificates and tokens are read again by themselves",
        )


def _asked_to_stop(stop: asyncio.Event, number: int) -> None:
    name = signal.Signals(number).name
    if stop.is_set():
        logger.error("%s again: stopping immediately", name)
        logging.shutdown()
        os._exit(FAILED)  # running threads would delay a regular exit
    logger.info("%s: draining; send the signal again to stop immediately", name)
    stop.set()
