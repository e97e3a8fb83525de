"""Text files of bounded size: a device, which a wrong path can name, has no end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MAX_CHARS: Final = 1 << 20


def read_text(file: Path) -> str:
    """The text of a file.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
        ValueError: it is larger than 1 MiB.
    """
    with file.open(encoding="utf-8-sig") as opened:  # editors of Windows write the mark
        text = opened.read(_MAX_CHARS + 1)
    if len(text) > _MAX_CHARS:
        raise ValueError("larger than 1 MiB")
    return text
