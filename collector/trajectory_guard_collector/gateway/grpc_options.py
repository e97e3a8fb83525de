"""Values of gRPC's options, the same for servers and channels."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 2**31 - 1
"""The largest number that an option takes."""


def milliseconds(seconds: float) -> int:
    """A duration as an option takes it: one of more than 24 days is one without end.

    >>> milliseconds(1.5), milliseconds(10_000_000.0)
    (1500, 2147483647)
    """
    return int(min(seconds * 1_000, LARGEST))
