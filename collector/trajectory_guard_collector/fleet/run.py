"""The programs from start to stop: log lines, exit status."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError
from trajectory_guard.integrations.langfuse.client import INSTALL
from trajectory_guard_collector.command_line import FAILED
from trajectory_guard_collector.config.directories import why_not_made, why_unusable
from trajectory_guard_collector.config.process_variables import ignored_variables
from trajectory_guard_collector.early_stop import FINE, STOPPING, asked_early
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.admin import Topology
from trajectory_guard_collector.fleet.config import FleetConfig, missing_for_scores
from trajectory_guard_collector.fleet.endpoints import application, serving
from trajectory_guard_collector.fleet.engine import Worker
from trajectory_guard_collector.fleet.flag_server import flag_server
from trajectory_guard_collector.fleet.score_sender import ScoreForwarder
from trajectory_guard_collector.telemetry import logs
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledRecords

logger: Final = logging.getLogger(__name__)
_ATTEMPTS: Final = ("quixstreams.kafka.consumer", "quixstreams.kafka.producer")
_MAX_CAUSES: Final = 4
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Most objects of a batch are freed with it: collecting cycles as often as by default finds next to nothing."""


def run(config: FleetConfig) -> int:
    """Run a worker until SIGTERM or SIGINT; the exit status: 0 stopped gracefully, 1 could not start or work.

    After status 1 nothing that was not committed is lost: start the worker again.

    Raises:
        ConfigError: the state directory or a file of tokens cannot be used.
    """
    metrics = _prepared(config)
    unusable = unusable_state(config)
    if unusable is not None:
        raise ConfigError(unusable)
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.collect()
    gc.freeze()  # what is loaded stays

    def work() -> None:
        worker = Worker(config, metrics)
        with flag_server(config, metrics) as flags:
            app = application(
                metrics, alive=lambda: worker.alive, ready=lambda: worker.ready and (flags is None or flags.ready)
            )
            with serving(config.telemetry.endpoint, app):
                _log_start(config)
                worker.run()

    return _run(config, work)


def run_flags(config: FleetConfig) -> int:
    """Serve the flags of the group until SIGTERM or SIGINT. Exit status as of ``run``.

    Raises:
        ConfigError: ``flags.endpoint`` is missing, or a file of tokens cannot be used.
    """
    if config.flags.endpoint is None:
        raise ConfigError("flags.endpoint: required to serve flags")
    metrics = _prepared(config)

    def work() -> None:
        with flag_server(config, metrics) as flags:
            assert flags is not None
            metrics.watch(catalogue.READY, lambda: float(flags.ready))
            app = application(metrics, alive=lambda: True, ready=lambda: flags.ready, why="reading the flags")
            with serving(config.telemetry.endpoint, app):
                _log_start(config)
                _stop_signal().wait()

    return _run(config, work)


def run_scores(config: FleetConfig) -> int:
    """Send scores to Langfuse until SIGTERM or SIGINT. Exit status as of ``run``.

    Raises:
        ConfigError: the keys of the project or the package ``langfuse`` are missing, or a file cannot be used.
    """
    missing = missing_for_scores(config)
    if find_spec("langfuse") is None:
        missing.append(f"langfuse: {INSTALL}")
    if missing:
        raise ConfigError("\n".join(missing))
    metrics = _prepared(config)
    try:
        sender = ScoreForwarder(config, metrics)
    except ValueError as error:
        raise ConfigError(str(error)) from error

    def work() -> None:
        app = application(metrics, alive=lambda: sender.alive, ready=lambda: sender.ready, why="joining the group")
        with serving(config.telemetry.endpoint, app):
            _stop_signal(sender.stop)
            _log_start(config)
            sender.run()

    return _run(config, work)


def _prepared(config: FleetConfig) -> Metrics:
    telemetry = config.telemetry
    output = logs.configure(telemetry.log_level, max_mib=telemetry.max_unwritten_mib, flush_s=telemetry.flush_timeout_s)
    logs.log_uncaught()
    for line in ignored_variables(config.guard):
        logger.warning("%s", line)
    if telemetry.log_level != "debug":
        logging.getLogger("quixstreams").setLevel(max(logging.WARNING, logging.getLogger().level))
        throttled = ThrottledRecords()  # while no broker answers, each of their attempts is logged
        for name in _ATTEMPTS:
            logging.getLogger(name).addFilter(throttled)
    metrics = Metrics(max_label_values=telemetry.max_label_values, more=catalogue.METRICS)
    output.count_dropped(metrics)
    return metrics


def _log_start(config: FleetConfig) -> None:
    extra = {
        "group": config.kafka.group, "endpoint": config.telemetry.endpoint, "flags": config.flags.endpoint,
        "version": __version__,
    }  # fmt: skip
    logger.info("started", extra=extra)


def _stop_signal(stop: Callable[[], None] = lambda: None) -> threading.Event:
    """An event that SIGTERM and the first SIGINT set, beside calling ``stop``."""
    stopping = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        stop()

    for number in STOPPING:
        signal.signal(number, handle)
    if asked_early():
        stopping.set()
        stop()
    return stopping


def _run(config: FleetConfig, work: Callable[[], None]) -> int:
    """Check the topics, do the work, and log how it ended. Returns the exit status."""
    try:
        Topology(config).check()
        if not asked_early():
            work()
    except StartError as error:
        for line in str(error).splitlines():
            logger.error("%s", line)
        return FAILED
    except KeyboardInterrupt:  # the first one stops gracefully
        logger.error("SIGINT again: stopping at once")
        return FAILED
    except ConfigError:
        raise
    except Exception as error:
        if asked := asked_early():  # C code of a library has put its own error in the place of the request
            logger.info("%s while the program started: stopped", asked)
            return FINE
        logger.error("stopping after an error: %s", _with_causes(error), exc_info=logger.isEnabledFor(logging.DEBUG))
        return FAILED
    logger.info("stopped")
    return FINE


def _with_causes(error: BaseException) -> str:
    """The error and what it comes from, the outermost first: the engine wraps what fails while partitions move."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(texts) < _MAX_CAUSES:
        texts.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "; from ".join(texts)


def unusable_state(config: FleetConfig) -> str | None:
    """Create the directory of state if it is missing. Returns the reason why it cannot be used, None if it can."""
    directory = Path(config.state.dir)
    reason = why_not_made(directory) or why_unusable(directory)
    return f"state.dir: {directory}: {reason}" if reason is not None else None
