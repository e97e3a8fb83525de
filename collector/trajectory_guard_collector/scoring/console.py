"""Live verdicts for people: a line on standard output (``debug`` exporter) and structured logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TextIO

from trajectory_guard.core.text import printable
from trajectory_guard.logs import log_recovery, log_verdict
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.trajectory import EventKind

_WORDS: Final = {EventKind.START: "loop", EventKind.NUDGE: "NUDGE", EventKind.STOP: "STOP", None: "recovered"}


class VerdictPrinter:
    """Prints one line per loop event.

    Parameters:
        redact: print no excerpts of arguments or results.
        stream: receives the lines; standard output by default.
    """

    def __init__(self, *, redact: bool = False, stream: TextIO | None = None) -> None:
        self._redact = redact
        self._stream = stream

    def notify(self, events: Sequence[LoopEvent]) -> None:
        """Print the events."""
        for one in (one for one in events if not one.renamed):
            print(self._line(one), file=self._stream or sys.stdout, flush=True)

    def _line(self, event: LoopEvent) -> str:
        verdict, item = event.verdict, event.item
        who = f"{item.service}/{item.step.agent_id}" if item.step.agent_id else item.service
        types = ",".join(verdict.types) or "-"
        reason = "" if self._redact else verdict.reason
        word = _WORDS[event.kind]
        line = f"{word:<9} {who}  {verdict.trajectory_id}  score {verdict.score:.2f}  {types}  {reason}"
        return printable(line).rstrip()  # senders supply nearly all of it: strip line breaks and escape sequences


class VerdictLog:
    """Logs verdicts as in process: one JSON object each, on the logger ``trajectory_guard``."""

    def __init__(self, *, redact: bool = False) -> None:
        self._redact = redact

    def notify(self, events: Sequence[LoopEvent]) -> None:
        """Log the events."""
        for one in (one for one in events if not one.renamed):
            if one.kind is None:
                log_recovery(one.verdict)
            else:
                log_verdict(one.verdict, redact=self._redact)
