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

from trajectory_guard.logs import log_contained


def contain(counts: Counter[str], where: str, text: str) -> None:
    """Count the exception that is being handled as an error in this place, and log the first one with this text.

    Raises:
        the exception again, if a signal handler of the application raised it.
    """
    let_through()
    counts[f"errors.{where}"] += 1
    if counts[f"errors.{where}"] == 1:
        log_contained(f"{text} (logged once)", stacklevel=3)


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
