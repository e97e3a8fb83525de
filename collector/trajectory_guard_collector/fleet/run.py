"""A worker from start to stop: log lines, exit status."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path
from typing import Final

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.admin import Topology
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.endpoints import application, serving
from trajectory_guard_collector.fleet.engine import Worker
from trajectory_guard_collector.telemetry import logs
from trajectory_guard_collector.telemetry.metrics import Metrics

logger: Final = logging.getLogger(__name__)
FINE: Final = 0
FAILED: Final = 1
_GC_THRESHOLDS: Final = (20_000, 20, 20)


def run(config: FleetConfig) -> int:
    """Run a worker until SIGTERM or SIGINT; the exit status: 0 stopped gracefully, 1 could not start or work.

    After status 1 nothing that was not committed is lost: start the worker again.

    Raises:
        ConfigError: the state directory cannot be used.
    """
    logs.configure(config.telemetry.log_level)
    if config.telemetry.log_level != "debug":
        logging.getLogger("quixstreams").setLevel(max(logging.WARNING, logging.getLogger().level))
    unusable = unusable_state(config)
    if unusable is not None:
        raise ConfigError(unusable)
    gc.set_threshold(*_GC_THRESHOLDS)
    metrics = Metrics(max_label_values=config.telemetry.max_label_values, more=catalogue.METRICS)
    try:
        Topology(config).check()
        worker = Worker(config, metrics)
        app = application(metrics, alive=lambda: worker.alive, ready=lambda: worker.ready)
        with serving(config.telemetry.endpoint, app):
            extra = {"group": config.kafka.group, "endpoint": config.telemetry.endpoint, "version": __version__}
            logger.info("started", extra=extra)
            worker.run()
    except StartError as error:
        for line in str(error).splitlines():
            logger.error("%s", line)
        return FAILED
    except KeyboardInterrupt:  # the first one stops gracefully
        logger.error("SIGINT again: stopping without a commit")
        return FAILED
    except Exception as error:
        logger.error(
            "the worker stops: %s: %s", type(error).__name__, error, exc_info=logger.isEnabledFor(logging.DEBUG)
        )
        return FAILED
    logger.info("stopped")
    return FINE


def unusable_state(config: FleetConfig) -> str | None:
    """Create the directory of state if it is missing. Returns the reason why it cannot be used, None if it can."""
    directory = Path(config.state.dir)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"state.dir: {directory}: cannot be made: {error.strerror or error}"
    return None if os.access(directory, os.W_OK | os.X_OK) else f"state.dir: {directory}: cannot be written"
