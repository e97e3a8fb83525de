"""Quantities and untrusted text as a person reads them."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timezone
from typing import Final

_EPOCH_FROM_S: Final = 10**8
_KEEP: Final = frozenset("\n\t")


def visible(text: str) -> str:
    """``text`` with control, direction and lone surrogate characters spelled out, so that they cannot act.

    >>> visible("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(char) for char in text)


def _spelled(char: str) -> str:
    if char in _KEEP or unicodedata.category(char) not in ("Cc", "Cf", "Cs"):
        return char
    if char == "\u200d":  # joins emoji and letters of some scripts
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "step"), count(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in the units a person would choose.

    >>> duration(0.0421), duration(3.14), duration(245), duration(7500)
    ('42 ms', '3.1 s', '4 min 5 s', '2 h 5 min')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds > 0 else "0 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def clock(seconds: float) -> str:
    """Time since the start: from 100 s on as hours, minutes and seconds.

    >>> clock(0.0042), clock(12.34), clock(125), clock(7325)
    ('+4 ms', '+12.3 s', '+2:05', '+2:02:05')
    """
    if seconds < 1:
        return f"+{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"+{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"+{minutes}:{rest:02}" if minutes < 60 else f"+{minutes // 60}:{minutes % 60:02}:{rest:02}"


def money(usd: float) -> str:
    """US dollars, with more digits where they matter.

    >>> money(0.01234), money(12.5)
    ('$0.0123', '$12.50')
    """
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def moment(seconds: float) -> str:
    """A time since the epoch as UTC; empty if the recording counts from its own start.

    >>> moment(1700000000), moment(0.0)
    ('2023-11-14 22:13:20 UTC', '')
    """
    if seconds < _EPOCH_FROM_S:
        return ""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""
