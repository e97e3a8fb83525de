"""JSON logs on standard error, one object a line, and further lines on standard output: nobody waits for a reader."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final, TextIO

from trajectory_guard import telemetry
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.line_writer import FLUSH_S, MAX_MIB, LineWriter
from trajectory_guard_collector.telemetry.metrics import Metrics

_OWN_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
_TALKATIVE: Final = ("httpx", "httpcore", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "grpc")
_NAMES: Final = {"stderr": "standard error", "stdout": "standard output"}
_log: Final = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: timestamp (RFC 3339, UTC), level, logger, message, extra fields, exception.

    The guard's own entries are objects already; they become the field ``verdict``, which has their attributes.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        entry: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_embedded(record),
        }
        if "verdict" not in entry:
            more = ((key, value) for key, value in vars(record).items() if key not in _OWN_FIELDS and key not in entry)
            entry.update(more)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def _embedded(record: logging.LogRecord) -> dict[str, Any]:
    message = record.getMessage()
    if record.name == telemetry.LOGGER and message.startswith("{"):
        try:
            verdict = json.loads(message)
        except ValueError:
            return {"message": message}
        return {"message": verdict.get("event_type", "verdict"), "verdict": verdict}
    return {"message": message}


class Output:
    """The lines of a process that serves: logs on standard error, verdicts on standard output.

    Parameters:
        max_mib: MiB of lines that may wait for the reader of each stream; further ones are dropped and counted.
        flush_s: seconds that ``flush`` may take.
        stderr, stdout: in place of the process's own.
    """

    def __init__(
        self, *, max_mib: float = MAX_MIB, flush_s: float = FLUSH_S,
        stderr: TextIO | None = None, stdout: TextIO | None = None,
    ) -> None:  # fmt: skip
        self._flush_s = flush_s
        self._formatter = JsonFormatter()
        self._writers = {
            name: LineWriter(stream, max_mib=max_mib, resumed=lambda dropped, name=name: self._resumed(name, dropped))  # type: ignore[misc]
            for name, stream in (("stdout", stdout or sys.stdout), ("stderr", stderr or sys.stderr))
        }
        self._counted = dict.fromkeys(self._writers, 0)

    def print_line(self, line: str) -> None:
        """Print a line on standard output."""
        self._writers["stdout"].put(line)

    def log(self, record: logging.LogRecord, *, always: bool = False) -> None:
        """Write a record to standard error. ``always``: also if too many lines wait."""
        self._writers["stderr"].put(self._formatter.format(record), always=always)

    def flush(self) -> None:
        """Return once all lines are written, or no reader took them in time."""
        end = time.monotonic() + self._flush_s
        # If standard output stalls, there must be time left for the log; and its last lines may be about that.
        self._writers["stdout"].flush(self._flush_s / 2)
        self._writers["stderr"].flush(max(0.0, end - time.monotonic()))

    def count_dropped(self, metrics: Metrics) -> None:
        """Count dropped lines in ``metrics``, brought up to date before every scrape."""

        def update() -> None:
            for name, writer in self._writers.items():
                dropped = writer.dropped
                metrics.add(catalogue.DROPPED_LINES, dropped - self._counted[name], stream=name)
                self._counted[name] = dropped

        metrics.before_scrape(update)

    def _resumed(self, name: str, dropped: int) -> None:
        """Say how many lines were dropped. The logging module is passed by, whose locks others may hold."""
        message = f"{dropped} lines were dropped: nobody read {_NAMES[name]}, or it could not be written"
        said = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
        self.log(logging.makeLogRecord({**said, "dropped": dropped, "stream": name}), always=True)


class _Handler(logging.Handler):
    """Hands records to an ``Output``. ``logging.shutdown`` flushes it, at the latest when the interpreter exits."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._output.log(record)
        except Exception:  # noqa: BLE001  whoever logs must not fail
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that a record cannot be formatted; the inherited one would write to standard error by itself."""
        said = {"name": record.name, "levelno": logging.ERROR, "levelname": "ERROR", "exc_info": sys.exc_info()}
        with suppress(Exception):
            self._output.log(logging.makeLogRecord({**said, "msg": f"cannot be logged: {record.msg!r}"}))

    def flush(self) -> None:
        self._output.flush()


def configure(
    level: str, stream: TextIO | None = None, *, max_mib: float = MAX_MIB, flush_s: float = FLUSH_S
) -> Output:
    """Send all logs as JSON lines to standard error (or ``stream``).

    Parameters:
        level: ``debug``, ``info``, ``warning`` or ``error``. Libraries are heard from ``warning`` on.
        stream: in place of standard error.
        max_mib, flush_s: see ``Output``.

    Returns:
        Where the logs go, and further lines can go.
    """
    output = Output(max_mib=max_mib, flush_s=flush_s, stderr=stream)
    logging.basicConfig(handlers=[_Handler(output)], level=level.upper(), force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    return output


def log_uncaught() -> None:
    """Log warnings, and errors in threads and finalizers: Python would write them to standard error by itself.

    The traceback of the main thread, which ends the process, follows the lines that wait.
    """

    def in_thread(caught: threading.ExceptHookArgs) -> None:
        if caught.exc_type is not SystemExit:
            name = caught.thread.name if caught.thread is not None else "unknown"
            _log.error("a thread has failed: %s", name, exc_info=caught.exc_value)

    def unraisable(caught: sys.UnraisableHookArgs) -> None:
        _log.error("%s: %r", caught.err_msg or "an exception was ignored", caught.object, exc_info=caught.exc_value)

    def in_main_thread(*caught: Any) -> None:
        for handler in logging.getLogger().handlers:
            handler.flush()  # else the traceback would land within a line
        sys.__excepthook__(*caught)

    logging.captureWarnings(True)
    threading.excepthook, sys.unraisablehook, sys.excepthook = in_thread, unraisable, in_main_thread
