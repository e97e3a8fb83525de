"""Addresses in memory, and other numbers in hexadecimal, that an answer names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final


def addresses_in(result: str) -> list[int]:
    """The addresses in memory and the numbers of files that an answer names in hexadecimal, up to ``_MAX_ADDRESSES``.

    An id that is drawn by chance is no neighbour of the one before it; the segments of a log are.

    >>> addresses_in("0x0804932f 44 in subway.c"), addresses_in("restored 0000000300000041000000A4")
    ([134517551], [279172874404])
    """
    found = islice(_ADDRESS.finditer(result[:_MAX_CHARS]), _MAX_ADDRESSES)
    return [int(one[0][-_ADDRESS_DIGITS:].removeprefix("0x"), 16) for one in found]


_ADDRESS: Final = re.compile(r"\b(?:0x[0-9a-fA-F]{4,16}|(?=\d{0,31}[a-fA-F])(?=[a-fA-F]{0,31}\d)[0-9a-fA-F]{16,32})\b")
_MAX_CHARS: Final = 4_096
_ADDRESS_DIGITS: Final = 12
"""More digits would not be exact in every reader of JSON."""
_MAX_ADDRESSES: Final = 4
_ALIGNMENT: Final = 16
"""Alignment, in bytes, of addresses that an allocator returns. The longest instruction of an x86 has 15 bytes."""


def are_neighbours(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether an address has moved by less than any two objects lie apart: a debugger is at another instruction.

    So have the segments of a log that is read one after the other.
    """
    pairs = zip(before, after, strict=True) if len(before) == len(after) else ()
    return any(0 < abs(now - then) < _ALIGNMENT for then, now in pairs)
