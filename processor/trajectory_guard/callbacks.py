"""The application's own texts and callback at a nudge and at a stop."""

from __future__ import annotations

import atexit
import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.process.containment import contain
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock, condition_on

if TYPE_CHECKING:
    import asyncio

_MAX_RUNNING: Final = 1_000
_EXIT_TIMEOUT_S: Final = 5.0


class Intervention(NamedTuple):
    """Argument of the callback ``on_intervention``.

    Fields:
        level: NUDGE or STOP.
        text: message to the agent (nudge) or to the user (stop); empty where no gate delivers it.
        verdict: the verdict behind the intervention.
        payload: the stop payload, empty for a nudge.
        delivered: a gate put the text into the run; False if the intervention is due only.
    """

    level: Level
    text: str
    verdict: Verdict
    payload: Mapping[str, Any]
    delivered: bool


def text_of(given: Any, verdict: Verdict, default: str, counts: Counter[str]) -> str:
    """The text of an intervention: from the user's template or callable, or the default if it is missing or fails.

    Parameters:
        given: a template with the fields ``templates.TEMPLATE_FIELDS``, a callable that is given the verdict, or None.
        default: the guard's own text; a template may quote it as ``{text}``.
        counts: where failures are counted.
    """
    if given is None:
        return default
    try:
        if callable(given):
            text = given(verdict)
        else:
            text = given.format(
                count=verdict.detections[0].count if verdict.detections else 0, reason=verdict.reason,
                rule=verdict.rule, score=round(verdict.score, 2), text=default, tool=verdict.tool,
                types=", ".join(verdict.types),
            )  # fmt: skip
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"expected text, got {type(text).__name__}")
    except Exception:  # noqa: BLE001  the user's own code must not break the user's run
        _contain("text", counts)
        return default
    return text


def notify(callback: Any, intervention: Intervention, counts: Counter[str], *, elsewhere: bool = False) -> None:
    """Call the user's ``on_intervention``; its errors are counted and logged once, and go no further.

    A coroutine runs in an event loop on a thread of its own: the loop of the caller ends with the run that is stopped.
    A plain function runs on the thread of the caller, and delays it; with ``elsewhere`` it has a thread of its own,
    since the caller's is one of those for which the function would wait if it started a span.
    """
    if callback is None:
        return
    try:
        if elsewhere:
            run_elsewhere(lambda: _run(callback(intervention), counts), partial(_contain, "on_intervention", counts))
        else:
            _run(callback(intervention), counts)
    except Exception:  # noqa: BLE001  as above
        _contain("on_intervention", counts)


def _run(result: Any, counts: Counter[str]) -> None:
    if inspect.iscoroutine(result):
        _callbacks.run(result, counts)


def run_elsewhere(call: Callable[[], None], contained: Callable[[], None]) -> None:
    """Call a plain function on a thread of its own, for which ``wait`` waits.

    Parameters:
        contained: called while an exception of ``call`` is handled, which goes no further.
    """
    _callbacks.run_elsewhere(call, contained)


def wait(timeout_s: float) -> bool:
    """Wait until every coroutine of a callback has ended, at most so many seconds; returns whether it has."""
    return _callbacks.wait(timeout_s)


class _Callbacks:
    """Runs coroutines in one event loop, on a daemon thread that begins with the first of them, and plain functions on
    a daemon thread each. Thread-safe.

    At most ``_MAX_RUNNING`` run at once; more are given up, and counted. A forked child begins without any.
    """

    def __init__(self) -> None:
        now_and_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = OwnedLock()
        self._ended = condition_on(self._lock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps no reference to its tasks
        self._running = 0
        self._waited_s = 0.0  # for the callbacks that are running, since the newest of them began

    def run(self, work: Coroutine[Any, Any, Any], counts: Counter[str]) -> None:
        """Start a coroutine, in a copy of the current context."""
        import asyncio  # here, because most processes have no such callback, and this takes as long as half the SDK

        with self._lock:
            if self._running >= _MAX_RUNNING:
                work.close()
                raise RuntimeError(f"{_MAX_RUNNING} callbacks have not ended: this one is dropped")
            loop = self._loop or self._begin_loop(asyncio.new_event_loop(), work)
            self._running += 1
            self._waited_s = 0.0
        loop.call_soon_threadsafe(self._start, loop, work, counts, context=copy_context())

    def _begin_loop(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        thread = threading.Thread(target=loop.run_forever, name="trajectory_guard-callback", daemon=True)
        try:
            thread.start()
        except BaseException:  # no more threads: the next callback tries again
            loop.close()
            work.close()
            raise
        self._loop, self._thread = loop, thread
        return loop

    def run_elsewhere(self, call: Callable[[], None], contained: Callable[[], None]) -> None:
        """Call a plain function on a thread of its own, in a copy of the current context."""

        def work() -> None:
            try:
                call()
            except BaseException:  # noqa: BLE001  as of a coroutine
                contained()
            finally:
                self._has_ended()

        with self._lock:
            if self._running >= _MAX_RUNNING:
                raise RuntimeError(f"{_MAX_RUNNING} callbacks have not ended: this one is dropped")
            self._running += 1
            self._waited_s = 0.0
        try:
            threading.Thread(
                target=copy_context().run, args=(work,), name="trajectory_guard-callback", daemon=True
            ).start()
        except BaseException:  # the process is about to end
            self._has_ended()
            raise

    def _has_ended(self) -> None:
        with self._lock:
            self._running -= 1
            self._ended.notify_all()

    def wait(self, timeout_s: float) -> bool:
        if threading.current_thread() is self._thread:
            return False  # it would wait for itself
        with self._lock:
            begun = time.monotonic()
            # flush, shutdown and exit wait for the same callbacks: together no longer than one of them
            allowed_s = max(0.0, min(timeout_s, _EXIT_TIMEOUT_S - self._waited_s))
            try:
                return self._ended.wait_for(lambda: not self._running, allowed_s)
            finally:
                self._waited_s += time.monotonic() - begun

    def _start(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], counts: Counter[str]) -> None:
        task = loop.create_task(self._contained(work, counts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _contained(self, work: Coroutine[Any, Any, Any], counts: Counter[str]) -> None:
        try:
            await work
        except BaseException:  # noqa: BLE001  nothing may end the loop, nor be lost unseen: not sys.exit(), no cancellation
            _contain("on_intervention", counts)
        finally:
            self._has_ended()


_callbacks: Final = _Callbacks()
atexit.register(wait, _EXIT_TIMEOUT_S)


def _contain(where: str, counts: Counter[str]) -> None:
    contain(counts, where, f"error in the application's own {where}, contained")
