"""Text from recordings and senders, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with every control character replaced by U+FFFD: recorded tool output must not steer a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
