"""Directories that the configuration names: whether they can be used, and making them."""

from __future__ import annotations

import tempfile
from pathlib import Path


def why_unusable(directory: Path) -> str | None:
    """The reason why a directory cannot be made or written to, None if it can. Leaves nothing behind."""
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
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        there = _nearest(directory)
        if not there.is_dir():
            return _not_a_directory(directory, there)
        return f"cannot be made: {error.strerror or error}"
    return None


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest place above it that exists."""
    absolute = directory.absolute()
    return next((one for one in (directory, *absolute.parents) if one.exists()), Path("/"))


def _not_a_directory(directory: Path, there: Path) -> str:
    return "is a file, not a directory" if there == directory else f"cannot be made: {there} is a file"
