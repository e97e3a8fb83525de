"""The configuration of the trajectory cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trajectory_guard.core.cursor.cursor import DEFAULT_ENTRIES, DEFAULT_TEXT_CHARS, LEAST_ENTRIES
from trajectory_guard.core.cursor.report import LEAST_TEXT_CHARS

CURSOR_KEYS: Final = ("cursor", "cursor_entries", "recall", "recall_chars", "required_actions")
_NEED_IT: Final = ("recall", "required_actions")


class CursorSettings(BaseModel):
    """Keys of the section ``record``; a part of ``GuardConfig``."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    cursor: bool = False
    """Keep a record of every boundary of each trajectory; ``recall`` and ``required_actions`` switch it on."""
    cursor_entries: int = Field(default=DEFAULT_ENTRIES, ge=LEAST_ENTRIES, le=4096)
    """Entries, and calls, kept per trajectory; older ones are dropped and counted."""
    required_actions: tuple[str, ...] = ()
    """Tools that have to succeed before the agent at the top may end; those that have not are reported."""
    recall: bool = False
    """Put a compact text of the record before the model."""
    recall_chars: int = Field(default=DEFAULT_TEXT_CHARS, ge=LEAST_TEXT_CHARS, le=100_000)
    """Characters of that text at most."""

    @model_validator(mode="before")
    @classmethod
    def _with_cursor(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        wanted = next((key for key in _NEED_IT if data.get(key)), None)
        if wanted is None:
            return data
        if data.get("cursor") is False:
            raise ValueError(f"{wanted!r} needs the cursor, which 'cursor: false' switches off")
        return {**data, "cursor": data.get("cursor", True)}
