"""An error of the guard is contained: counted, logged once, and never raised in the application.

An exception that a signal handler of the application raises while its thread is inside the guard is not contained: it
has to reach the application. The soft time limit of a task queue is one: a plain exception, raised once, wherever the
main thread happens to be.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from types import CodeType
from typing import Final

from trajectory_guard.logs import log_contained

_MAX_LOGGED: Final = 64
"""Texts that are logged for each table of counts: beyond, errors are only counted."""
_LOGGED: Final = "logged_errors"


def contain(
    counts: Counter[str], where: str, text: str, *values: object, kind: str = "", quotes_nothing: bool = False
) -> None:
    """Count the exception that is being handled as an error in this place, and log the first one with this text.

    Parameters:
        values: for the ``%s`` in the text.
        kind: where one text stands for several kinds of error, the first of each kind is logged.
        quotes_nothing: log the kind of the exception and where it was raised, without its own text.

    Raises:
        the exception again, if a signal handler of the application raised it.
    """
    let_through()
    if is_first_error(counts, where, text, *values, kind):
        log_contained(f"{text} (logged once)", *values, stacklevel=3, quotes_nothing=quotes_nothing)


def is_first_error(counts: Counter[str], where: str, *text: object) -> bool:
    """Count an error in a place; whether it is the first one there with this text, and has to be logged.

    Several parts of the guard count their errors under one place, each with a text of its own.
    """
    counts[f"errors.{where}"] += 1
    logged: set[tuple[object, ...]] = vars(counts).setdefault(_LOGGED, set())  # lives as long as the counts
    if (where, *text) in logged or len(logged) >= _MAX_LOGGED:
        return False
    logged.add((where, *text))
    return True


def let_through() -> None:
    """Raise the exception that is being handled again if a signal handler of the application raised it.

    An exception that another thread injects (``PyThreadState_SetAsyncExc``) looks like an error of the guard, and is
    contained like one.
    """
    error = sys.exc_info()[1]
    if error is None or threading.current_thread() is not threading.main_thread():
        return
    handlers = {code for number in signal.valid_signals() if (code := _code_of(signal.getsignal(number))) is not None}
    frame = error.__traceback__
    while handlers and frame is not None:
        if frame.tb_frame.f_code in handlers:
            raise error
        frame = frame.tb_next


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler written in Python: a function, a method, or an object that can be called."""
    by_class = getattr(type(handler), "__call__", None)  # noqa: B004  it is not asked whether it can be called
    for found in (handler, getattr(handler, "__func__", None), by_class):
        code = getattr(found, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
