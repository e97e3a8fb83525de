"""Which file a path leads to: one that was deleted or replaced while it was open is another, or somebody else's."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

Place = tuple[int, int] | None
"""Device and inode of a file, None if there is none."""


def place_of(file: Path) -> Place:
    """The place of a file. Raises OSError if it cannot be looked at, as without permissions."""
    try:
        status = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def foreign_table(connection: sqlite3.Connection, own: Collection[str]) -> str | None:
    """A table of another application's database, None if this one is empty or has all of our ``own`` tables.

    The version of a format does not tell: many applications number theirs, too.
    """
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    names = {str(name) for (name,) in connection.execute(query)}
    return None if names.issuperset(own) or not names else min(names - {*own}, default=None)
