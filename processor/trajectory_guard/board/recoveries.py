"""Recoveries that are found while a trajectory is locked, and published when it is not."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from trajectory_guard.core.engine import Verdict
from trajectory_guard.logs import log_recovery
from trajectory_guard.process.locks import holds_lock

if TYPE_CHECKING:
    from trajectory_guard.integrations.langfuse.reporter import LangfuseReporter

MAX_WAITING: Final = 256


class Publisher(Protocol):
    """A board.

    Attributes:
        recovered: verdicts of recoveries that are still to be published.
        reporter: writes scores, if there is one.
    """

    recovered: deque[Verdict]
    reporter: LangfuseReporter | None


def publish(board: Publisher) -> None:
    """Log and report the recoveries of a board, unless this thread holds a lock of the guard.

    A log handler is the application's own code: it may wait for other threads, or ask the board for this trajectory.
    """
    while board.recovered and not holds_lock():
        try:
            verdict = board.recovered.popleft()
        except IndexError:
            return  # another thread has taken it
        log_recovery(verdict)
        if board.reporter is not None:
            board.reporter.report(verdict, None)
