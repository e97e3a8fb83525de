"""Directories that the configuration names: whether they can be used, and making them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def why_unusable(directory: Path) -> str | None:
    """The reason why a directory cannot be made or written to, None if it can. Leaves nothing behind."""
    if (unnameable := _why_no_name(directory)) is not None:
        return unnameable
    there = _nearest(directory)
    if not there.is_dir():
        return _not_a_directory(directory, there)
    try:
        # Only a write shows whether root, a container or a special file system may write there.
        with tempfile.TemporaryDirectory(prefix=".trajectory-guard-", dir=there):
            return None
    except OSError as error:
        reason = error.strerror or error
        return f"cannot be written: {reason}" if there == directory else f"cannot be made: {there}: {reason}"


def why_not_made(directory: Path) -> str | None:
    """Create a directory for this user only, with its parents. The reason why it cannot be made, None if it is there.

    An existing one keeps its mode.
    """
    if (unnameable := _why_no_name(directory)) is not None:
        return unnameable
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        there = _nearest(directory)
        if not there.is_dir():
            return _not_a_directory(directory, there)
        return f"cannot be made: {error.strerror or error}"
    return None


def _why_no_name(directory: Path) -> str | None:
    """The reason why nothing can have this name: it is too long, or has a null character in it."""
    try:
        os.lstat(directory)
    except ValueError as error:
        return f"cannot be made: {error}"
    except OSError as error:
        return f"cannot be made: {error.strerror}" if error.errno == errno.ENAMETOOLONG else None
    return None


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest place above it that exists."""
    absolute = directory.absolute()
    return next((one for one in (directory, *absolute.parents) if os.path.exists(one)), Path("/"))


def _not_a_directory(directory: Path, there: Path) -> str:
    return "is a file, not a directory" if there == directory else f"cannot be made: {there} is a file"
