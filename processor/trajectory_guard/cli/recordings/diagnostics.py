"""Common to all readers of recorded telemetry: records, limits, and diagnostics of unreadable input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.errors import PortableError
from trajectory_guard.telemetry import INTERVENTION, STEP_INDEX, TRAJECTORY_ID

MIB: Final = 1024 * 1024
MAX_ERRORS_PER_SOURCE: Final = 100
"""Problems of one file that are named; further ones are counted."""
MAX_INTERVENTIONS: Final = 100_000
"""Recorded interventions that are remembered."""


class InputError(PortableError, ValueError):
    """Input that cannot be read: names the file, the line where there is one, and the reason."""

    def __init__(self, source: str, reason: str, line: int | None = None) -> None:
        where = source if line is None else f"{source}:{line}"
        super().__init__(f"{where}: {reason}")


class Recorded(NamedTuple):
    """One recorded trajectory: its id, its steps in input order, and the file (and line) it comes from."""

    id: str
    steps: list[StepRecord]
    source: str = ""
    line: int | None = None


class Limits(NamedTuple):
    """Bounds of what is in memory at once.

    Fields:
        document_bytes: a single JSON value or protobuf message up to this size is read whole.
        trace_bytes: spans of one trace or conversation, in stored form; their objects take about four times as much.
        cache_bytes: spans held in memory before the temporary database goes to disk.
        whole_bytes: spans, in stored form, up to which all are looked at together.
    """

    document_bytes: int = 256 * MIB
    trace_bytes: int = 256 * MIB
    cache_bytes: int = 64 * MIB
    whole_bytes: int = 32 * MIB


def _nothing(*_: object) -> None:
    return None


@dataclass
class Diagnostics:
    """Collects a reader's errors and notes; reading goes on.

    Attributes:
        errors: at most ``MAX_ERRORS_PER_SOURCE`` per file; ``dropped`` counts the rest.
        notes: remarks for the user that are no errors.
        progress: called with the bytes (or items) dealt with since the last call.
        interventions: nudges and stops that a guard raised while the runs went on, as their spans say: (trajectory,
            step, level), no more than ``MAX_INTERVENTIONS``.
        phase: called with a name and the number of bytes (or items) ahead, 0 if unknown, as each phase of work begins.
    """

    errors: list[InputError] = field(default_factory=list)
    progress: Callable[[int], None] = _nothing
    phase: Callable[[str, int], None] = _nothing
    notes: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    interventions: set[tuple[str, object, str]] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)
    _once: set[tuple[str, str]] = field(default_factory=set)

    def intervened(self, attributes: Mapping[str, object]) -> None:
        """Remember an intervention that a span reports. Its own span, its parent and a resent copy count once."""
        level = str(attributes[INTERVENTION])
        if level != "OBSERVE" and len(self.interventions) < MAX_INTERVENTIONS:
            self.interventions.add((str(attributes.get(TRAJECTORY_ID)), attributes.get(STEP_INDEX), level))

    def fail(self, source: str, reason: str, line: int | None = None) -> None:
        """Record one error."""
        self._counts[source] += 1
        if self._counts[source] <= MAX_ERRORS_PER_SOURCE:
            self.errors.append(InputError(source, reason, line))
        else:
            self.dropped[source] += 1

    def note(self, source: str, text: str, line: int | None = None) -> None:
        """Record something that is worth knowing and no error."""
        self._counts[f"note {source}"] += 1
        if self._counts[f"note {source}"] <= MAX_ERRORS_PER_SOURCE:
            self.notes.append(str(InputError(source, text, line)))

    def note_once(self, source: str, text: str) -> None:
        """``note``, the first time only that it is said of a source."""
        if (source, text) not in self._once and len(self._once) < MAX_ERRORS_PER_SOURCE:
            self._once.add((source, text))
            self.note(source, text)

    def failures(self, source: str) -> int:
        """Errors of a file so far."""
        return self._counts[source]

    def messages(self) -> list[str]:
        """All errors and notes, one line each."""
        more = [f"{source}: {count} more problems like these" for source, count in self.dropped.items()]
        return [*self.notes, *map(str, self.errors), *more]
