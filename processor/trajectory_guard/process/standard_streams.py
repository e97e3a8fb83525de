"""Standard output and standard error of the commands: closed ones, full ones, and readers that go away."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

_NOT_WRITTEN: Final = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EBADF") if hasattr(errno, name)
)


def open_closed_ones() -> None:
    """Let a command whose standard output or standard error is closed (``>&-``) write to nowhere instead of failing.

    The numbers of the three streams are taken, too: libuv aborts the process when it closes a socket that got one.
    """
    for number in range(3):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def say(line: str) -> None:
    """Write a line to standard error. If nothing takes it, the exit status still reports the failure."""
    try:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def write_error(error: Exception) -> str | None:
    """The message for an error of writing (a full disk, a closed pipe); None if ``error`` is another one."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _NOT_WRITTEN:
        return f"the output cannot be written: {error.strerror}"
    return None


def abandon_stdout() -> None:
    """Silence standard output after its reader closed the pipe, as in ``... | head``, or its disk filled up."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
