"""Whether the spans of an application hold content: several instrumentations leave it out by default.

Says so once. What a gate has read from messages then stays out of spans and logs, too: the guard must not open what the
operator has closed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import FALSE
from trajectory_guard.content_switches import HIDES_TOOLS, official_mode, openllmetry_is_off, switched_on
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.logs import log_without_content

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

    def note(self, step: StepRecord) -> None:
        """Record whether the span of a tool call holds all of its content, while none has yet."""
        if step.model_scope is None:
            self._board.shows_content = step.evidence in (Evidence.FULL, Evidence.FINGERPRINT)

    def look(self, verdict: Verdict, dialect: str) -> None:
        """Look at one more tool call."""
        if verdict.evidence is not Evidence.NAME_ONLY or self._board.is_gated(verdict.trajectory_id, verdict.run):
            self.without = None
        elif self.without is not None:
            self.without = self.without + 1 if self.without + 1 < _ENOUGH else None
            if self.without is None:
                log_without_content(_ENOUGH, dialect)


def withholds_content(board: FlagBoard, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether telemetry may not quote arguments and results: no tool span held all of it so far, or, before the first
    tool span, a variable of an instrumentation switches content off.
    """
    if board.shows_content is not None:
        return not board.shows_content
    official_is_off = official_mode(environ) in ("no_content", *FALSE)
    return official_is_off or openllmetry_is_off(environ) or bool(switched_on(environ, HIDES_TOOLS))
