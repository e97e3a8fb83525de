"""A progress bar on standard error: for people, on long input, if ``rich`` is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from trajectory_guard.cli.recordings.diagnostics import MIB, Diagnostics

LONG_INPUT_BYTES: Final = 16 * MIB
_UPDATE_STEPS: Final = 200


@contextmanager
def progress_bar(diagnostics: Diagnostics, *, prints: bool) -> Iterator[None]:
    """Show what ``diagnostics`` reports while the body runs; nothing on a pipe, on short input or without ``rich``.

    Parameters:
        prints: the body writes to standard output meanwhile; if that is a terminal, a bar would be in its way.
    """
    in_the_way = prints and sys.stdout.isatty()
    bar = _bar() if sys.stderr.isatty() and not in_the_way else None
    if bar is None:
        yield
        return
    meter = _Meter(bar)
    diagnostics.phase, diagnostics.progress = meter.phase, meter.advance
    with bar:
        yield


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _Meter:
    """Sums up items between updates of the bar: a callback per item would cost more than the item."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._long = False
        self._waiting = self._total = 0

    def phase(self, name: str, total: int) -> None:
        """A phase of work begins; the first is reading, and decides whether the input is long."""
        if self._task is None and not self._long:
            self._long = total == 0 or total >= LONG_INPUT_BYTES
        if not self._long:
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._waiting, self._total = 0, total
        self._task = self._bar.add_task(name, total=total or None)

    def advance(self, count: int) -> None:
        """Add the bytes or items done since the last call."""
        self._waiting += count
        if self._task is not None and self._waiting * _UPDATE_STEPS >= self._total:
            self._bar.advance(self._task, self._waiting)
            self._waiting = 0
