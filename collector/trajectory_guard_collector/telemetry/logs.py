"""JSON logs on standard error, one object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any, Final, TextIO

from trajectory_guard import telemetry

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
            **_embedded(record),
        }
        entry.update((key, value) for key, value in vars(record).items() if key not in _OWN_FIELDS and key not in entry)
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
