"""Small helpers for text that people read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(key: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing.

    >>> nearest("decai", ("decay", "mode"))
    " (did you mean 'decay'?)"
    """
    close = difflib.get_close_matches(key, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
