"""Writing to standard output: JSON lines that stay valid, and text that is safe in a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, Final

from trajectory_guard.cli.recordings.diagnostics import Diagnostics
from trajectory_guard.core.fingerprints import is_unicode
from trajectory_guard.core.text import printable
from trajectory_guard.process.standard_streams import open_closed_ones, say

FINE: Final = 0
LOOP_FOUND: Final = 1
BAD_INPUT: Final = 2


def print_json(value: Any) -> None:
    """One JSON line; characters the output cannot carry are escaped, NaN and infinities become null."""
    sys.stdout.write(json_line(value, ascii_only=not _is_utf8(sys.stdout)) + "\n")


def json_line(value: Any, *, ascii_only: bool = False) -> str:
    """``value`` as one line of strict JSON."""
    try:
        line = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        line = json.dumps(_finite(value), ensure_ascii=ascii_only)
    if not ascii_only and not is_unicode(line):
        return json_line(value, ascii_only=True)  # half of a surrogate pair, as JSON can carry it
    return line


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def _is_utf8(stream: Any) -> bool:
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def make_console(**options: Any) -> Any:
    """A console of ``rich`` for which a reader that goes away is what it is elsewhere; its own ends with status 1.

    Raises:
        ImportError: ``rich`` is not installed.
    """
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(highlight=False, **options)


def complain(message: str) -> None:
    """One line on standard error."""
    say(f"trajectory-guard: {printable(message)}")


def finish(diagnostics: Diagnostics, status: int) -> int:
    """Report input that could not be read; returns the exit status, ``BAD_INPUT`` if there was any."""
    for message in diagnostics.messages():
        complain(message)
    return BAD_INPUT if diagnostics.errors else status


def be_tolerant() -> None:
    """Let odd surroundings cost no output: closed streams, an encoding without some characters, a width of 0."""
    open_closed_ones()
    if not os.environ.get("COLUMNS", "1").strip("0"):  # "0" means unknown; rich would print nothing at all
        del os.environ["COLUMNS"]
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
