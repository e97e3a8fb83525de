"""Says once that the spans of an application hold no content: several instrumentations leave it out by default."""

from __future__ import annotations

from typing import Final

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import Evidence
from trajectory_guard.logs import log_without_content
from trajectory_guard.store import FlagBoard

_ENOUGH: Final = 8
"""Tool calls of which none has content, from which on one warning says so."""


class ContentWatch:
    """Warns once if the first tool spans show neither arguments nor results, and no gate reads them elsewhere.

    Attributes:
        without: tool calls so far; None once one had content, or the warning was given.
    """

    def __init__(self, board: FlagBoard) -> None:
        self._board = board
        self.without: int | None = 0

    def look(self, verdict: Verdict, dialect: str) -> None:
        """Look at one more tool call."""
        if verdict.evidence is not Evidence.NAME_ONLY or self._board.is_gated(verdict.trajectory_id, verdict.run):
            self.without = None
        elif self.without is not None:
            self.without = self.without + 1 if self.without + 1 < _ENOUGH else None
            if self.without is None:
                log_without_content(_ENOUGH, dialect)
