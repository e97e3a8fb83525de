"""Keys that take one of a few words, as type checkers see them."""

from __future__ import annotations

from typing import Literal

Mode = Literal["enforce", "nudge", "observe"]

Scope = Literal["trajectory", "agent", "service", "day"]
Per = Literal["total", "day"]
