"""Ids and names of bounded length: clients choose ids of conversations, and models names of tools that do not exist.

Whatever keeps a name keeps it as ``bounded_name`` has it, and whoever asks by a name asks by that. Where every span
passes, ``name[MAX_NAME_CHARS:]`` is looked at first, which calls nothing.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

MAX_NAME_CHARS: Final = 512
"""Above it only names are cut that nobody has given to be read: ids of vendors and names of tools have up to 256."""
_DIGITS: Final = 32


def bounded_name(name: str) -> str:
    """``name``, or its beginning and a digest of all of it, ``MAX_NAME_CHARS`` characters in all.

    Equal names stay equal and different ones different; a bounded name is its own bounded name.

    >>> bounded_name("search")
    'search'
    >>> long = bounded_name("a" * 1_000_000)
    >>> len(long), bounded_name(long) == long, long == bounded_name("a" * 1_000_001)
    (512, True, False)
    """
    if not name[MAX_NAME_CHARS:]:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: MAX_NAME_CHARS - _DIGITS - 1]}\u2026{digest}"
