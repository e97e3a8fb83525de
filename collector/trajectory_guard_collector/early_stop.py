"""Programs that may be asked to stop from their first moment. Only the standard library is loaded: nothing else yet."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

FINE: Final = 0
"""Exit status of a program that was asked to stop."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a program to stop."""


class _StopError(BaseException):
    """The program was asked to stop while it started."""


_signals: list[str] = []


def asked_early() -> str:
    """Name of the signal that asked the program to stop while it started; empty if none did.

    The signal raises an exception wherever the program is. C code of a library may put one of its own in its place, and
    where Python finalizes an object nothing is raised at all: whoever takes the signals over has to ask.
    """
    return _signals[0] if _signals else ""


def stoppable(program: Callable[[], int]) -> int:
    """Run a program that serves. Until it handles the signals itself, they end it with status 0: a worker that is
    replaced while it loads its modules or looks for a broker has not failed."""
    with _signals_raise():
        try:
            return program()
        except _StopError as asked:
            logging.getLogger(__name__).info("%s while the program started: stopped", asked)
            return FINE


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGINT raise ``_StopError``, the second one ends the process; until others handle them."""

    def handle(number: int, _: FrameType | None) -> NoReturn:
        give_back()
        _signals.append(signal.Signals(number).name)
        raise _StopError(asked_early())

    def give_back() -> None:
        for number, before in previous.items():
            if signal.getsignal(number) is handle:  # and not that of the service, which stays to the end
                signal.signal(number, before)

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    handled = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup sets it
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        give_back()
        _signals.clear()
