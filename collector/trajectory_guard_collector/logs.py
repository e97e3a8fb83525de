"""JSON logs on standard error, one object a line, and messages that do not repeat themselves."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final, TextIO

from trajectory_guard import telemetry

PAUSE_S: Final = 60.0
MAX_KEYS: Final = 1024
"""Messages remembered by ``RateLimiter``; the longest unused are forgotten."""
_OWN_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
_TALKATIVE: Final = ("httpx", "httpcore", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "grpc")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: timestamp (RFC 3339, UTC), level, logger, message, extra fields, exception.

    The guard's own entries are objects already; they become the field ``verdict``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        entry: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_told(record),
        }
        entry.update((key, value) for key, value in vars(record).items() if key not in _OWN_FIELDS and key not in entry)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def _told(record: logging.LogRecord) -> dict[str, Any]:
    message = record.getMessage()
    if record.name == telemetry.LOGGER and message.startswith("{"):
        try:
            verdict = json.loads(message)
        except ValueError:
            return {"message": message}
        return {"message": verdict.get("event_type", "verdict"), "verdict": verdict}
    return {"message": message}


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send all logs as JSON lines to standard error (or ``stream``).

    Parameters:
        level: ``debug``, ``info``, ``warning`` or ``error``. Libraries are heard from ``warning`` on.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


class RateLimiter:
    """Lets one message of a key through per pause and counts the others.

    Parameters:
        pause_s: seconds between two messages of one key.
        clock: monotonic seconds.
    """

    def __init__(self, pause_s: float = PAUSE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._last: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def passes(self, key: str) -> int | None:
        """None if the message must wait, else how many were held back since the last one."""
        now = self._clock()
        with self._lock:
            last, held_back = self._last.get(key, (-float("inf"), 0))
            if now - last < self._pause_s:
                self._last[key] = (last, held_back + 1)
                return None
            self._last[key] = (now, 0)
            self._last.move_to_end(key)
            if len(self._last) > MAX_KEYS:
                self._last.popitem(last=False)
            return held_back


_limiter: Final = RateLimiter()


def log_once_a_minute(
    logger: logging.Logger, level: int, key: str, message: str, *, limiter: RateLimiter = _limiter, **fields: object
) -> None:
    """Log a message unless one with the same key was logged within the last minute.

    Parameters:
        level: of ``logging``, such as ``logging.WARNING``.
        key: what is the same about repeated messages, such as exporter and status.
        fields: further fields of the line. ``repeated`` is added: how many were held back since the last one.
    """
    if not logger.isEnabledFor(level):
        return
    held_back = limiter.passes(f"{logger.name}:{key}")
    if held_back is not None:
        logger.log(level, "%s", message, extra={**fields, **({"repeated": held_back} if held_back else {})})
