"""The waiting of ``force_flush`` and ``shutdown`` of the span processor: bounded, and every part gets its turn."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.version import __version__ as sdk_version

from trajectory_guard import callbacks
from trajectory_guard.board.store import FlagBoard

MOST_S: Final = 5.0
"""Seconds that a flush or a shutdown waits for Langfuse scores and callbacks together."""
DEFAULT_MILLIS: Final = 30_000
Contain = Callable[[str, Exception], None]
"""Called with the name of the operation and an error of one of its parts."""


def goes_on_after_false(version: str) -> bool:
    """Whether a provider of this SDK flushes the processors that stand behind one whose flush returned False.

    >>> goes_on_after_false("1.41.1"), goes_on_after_false("1.42.0"), goes_on_after_false("2.0.0rc1")
    (False, True, True)
    """
    number = re.match(r"\A(\d{1,9})\.(\d{1,9})", version)
    return number is None or (int(number[1]), int(number[2])) >= (1, 42)


_MAY_SAY_FALSE: Final = goes_on_after_false(sdk_version)


def flush(
    board: FlagBoard, timeout_millis: float | None, contain: Contain, first: Callable[[], bool] = lambda: True
) -> bool:
    """Save spending that had to wait, and wait for queued Langfuse scores and callbacks.

    It takes half of the time at most, because exporters behind need the rest, and never more than ``MOST_S``.

    Parameters:
        board: whose spending and scores.
        timeout_millis: as the SDK gives it; None for its default.
        contain: takes errors.
        first: called before anything else; whether it has done its work.

    Returns:
        Whether all of it was done in time. Before SDK 1.42 always True: a provider of these versions does not flush the
        exporters behind a processor that returns False, and spans are worth more than the result.
    """
    given = DEFAULT_MILLIS if timeout_millis is None else timeout_millis
    deadline = time.monotonic() + min(max(0.0, given / 2_000), MOST_S)
    spending, reporter = board.spending, board.reporter
    done = [
        _try(first, "force_flush", contain),
        spending is None or _try(spending.save_waiting, "force_flush", contain),
        reporter is None or _try(lambda: reporter.flush(deadline - time.monotonic()), "force_flush", contain),
        _try(lambda: callbacks.wait(deadline - time.monotonic()), "force_flush", contain),
    ]
    return all(done) or not _MAY_SAY_FALSE


def close(board: FlagBoard, contain: Contain) -> None:
    """Close ledger, judge and scores of a board: within a second for the ledger, and ``MOST_S`` for the rest."""
    spending, quality, reporter = board.spending, board.quality, board.reporter
    if spending is not None:
        _try(spending.close, "shutdown", contain)
    if quality is not None:
        _try(quality.close, "shutdown", contain)
    deadline = time.monotonic() + MOST_S
    if reporter is not None:
        _try(lambda: reporter.stop(MOST_S), "shutdown", contain)
    _try(lambda: callbacks.wait(deadline - time.monotonic()), "shutdown", contain)


def _try(part: Callable[[], bool | None], where: str, contain: Contain) -> bool:
    """The result of a part, True if it returns none; False after an error, which must not take the others' turn."""
    try:
        return part() is not False
    except Exception as error:  # noqa: BLE001  the provider would not go on to the processors behind this one
        contain(where, error)
        return False
