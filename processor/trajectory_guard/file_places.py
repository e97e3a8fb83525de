"""Which file a path leads to: a file that was deleted or replaced while it was open is another one."""

from __future__ import annotations

import os
from pathlib import Path

Place = tuple[int, int] | None
"""Device and inode of a file, None if there is none."""


def place_of(file: Path) -> Place:
    """The place of a file. Raises OSError if it cannot be looked at, as without permissions."""
    try:
        status = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
