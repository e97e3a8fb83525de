"""The application's own judge of answers, an LLM for instance: asked off the threads of the agent, within limits."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from trajectory_guard import telemetry
from trajectory_guard.core.quality import check_score
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock, condition_on
from trajectory_guard.process.suppression import suppressed

MAX_REQUEST_CHARS: Final = 500
MAX_RESPONSE_CHARS: Final = 1_000
MAX_HANGING: Final = 4
"""Calls of the judge that may hang beyond their time-out; further answers wait until one of them returns."""
_GRACE_S: Final = 0.25
_POLL_S: Final = 0.5
_LOOK_UP_S: Final = 5.0
"""How often an idle thread looks whether its judge is still there."""
_log: Final = logging.getLogger(telemetry.LOGGER)


class Answer(NamedTuple):
    """An answer to judge.

    Fields:
        trajectory, agent: whose it is.
        request, response: texts, cut to ``MAX_REQUEST_CHARS`` and ``MAX_RESPONSE_CHARS`` characters.
    """

    trajectory: str
    agent: str
    request: str
    response: str


class Judge:
    """Asks the application's judge about answers, one after the other, on daemon threads that never delay the exit.

    The judge runs in an empty context with instrumentation suppressed: its own model calls are no steps of the agent,
    show up in no stream of it, and are not judged. Coroutine functions run in one event loop that lives as long as the
    judge does, so that they may keep connections open. A forked child begins with an empty queue. The threads end soon
    after the judge is closed, or nobody refers to it any more.

    Parameters:
        judge: called with request and response; returns a score in [0, 1], or None for no opinion.
        deliver: called with the answer and its score, on the thread of the judge.
        timeout_s: seconds for one judgement.
        sample: part of the answers that is judged, spread evenly.
        limit: answers that may wait; the oldest are dropped.
        counts: counts ``quality.judge_dropped``, ``quality.judge_timeout``, ``quality.judge_abstained`` and
            ``errors.quality_judge``.
        redact: log no text of errors: it may quote an answer.
    """

    def __init__(
        self, judge: Callable[..., Any], deliver: Callable[[Answer, float], None], *, timeout_s: float = 30.0,
        sample: float = 1.0, limit: int = 100, counts: Counter[str] | None = None, redact: bool = False,
    ) -> None:  # fmt: skip
        self._judge, self._deliver = judge, deliver
        self._timeout_s, self._sample, self._limit, self._redact = timeout_s, sample, limit, redact
        self.counts: Counter[str] = Counter() if counts is None else counts
        now_and_after_fork(self._reset)

    def _reset(self) -> None:
        self._line = _Line()
        self._due = 1.0 - self._sample  # the first answer is judged
        self._hanging: list[_Caller] = []

    def submit(self, answer: Answer) -> None:
        """Queue an answer, unless it is left out of the sample. Never blocks."""
        line = self._line
        with line.lock:
            self._due += self._sample
            if self._due < 1.0 - 1e-9:
                return
            self._due -= 1.0
            line.waiting.append(
                answer._replace(
                    request=answer.request[:MAX_REQUEST_CHARS], response=answer.response[:MAX_RESPONSE_CHARS]
                )
            )
            if len(line.waiting) > self._limit:
                line.waiting.popleft()
                self.counts["quality.judge_dropped"] += 1
            if line.thread is None:
                given = (weakref.ref(self), line)
                thread = threading.Thread(target=_serve, args=given, name="trajectory_guard-judge", daemon=True)
                thread.start()  # if it cannot, the next answer tries again
                line.thread = thread
            line.changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until every queued answer is judged or given up, at most so many seconds; returns whether it is."""
        line = self._line
        with line.lock:
            return line.changed.wait_for(lambda: not line.waiting and line.busy is None, max(0.0, timeout_s))

    def close(self) -> None:
        """Drop what waits and let the thread end; an answer that is submitted later starts it again."""
        line = self._line
        with line.lock:
            line.waiting.clear()
            line.thread = line.busy = None
            line.changed.notify_all()

    # --- on the thread of the judge --------------------------------------------------------------------------

    def _call(self, caller: _Caller | None, answer: Answer) -> _Caller | None:
        """Judge one answer; returns the caller for the next one, None if this one hangs."""
        me = threading.current_thread()
        while caller is None and sum(one.is_alive() for one in self._hanging) >= MAX_HANGING:
            time.sleep(_POLL_S)
            if self._line.thread is not me:
                return None
        if caller is None:
            self._hanging = [one for one in self._hanging if one.is_alive()]
            caller = _Caller(self._judge, self._timeout_s)
        try:
            score = caller.ask(answer)
            if score is None:
                self.counts["quality.judge_abstained"] += 1
            else:
                self._deliver(answer, check_score(score))
        except TimeoutError:
            self.counts["quality.judge_timeout"] += 1
            if caller.hangs:
                self._hanging.append(caller)
                return None
        except Exception as error:  # noqa: BLE001  the user's own code must not end the thread
            self._contain(error)
        return caller

    def _contain(self, error: Exception) -> None:
        self.counts["errors.quality_judge"] += 1
        if self.counts["errors.quality_judge"] == 1:
            shown = type(error).__name__ if self._redact else repr(error)[:500]
            _log.warning("trajectory_guard: the quality judge failed, contained (logged once): %s", shown)


class _Line:
    """The answers that wait, and the thread that takes them. It knows no judge: the thread, which waits here for ever,
    would keep the judge, and with it the board that the scores are delivered to."""

    def __init__(self) -> None:
        self.lock = OwnedLock()
        self.changed = condition_on(self.lock)
        self.waiting: deque[Answer] = deque()
        self.thread: threading.Thread | None = None
        self.busy: threading.Thread | None = None

    def next(self, is_needed: Callable[[], object]) -> Answer | None:
        """Wait for the next answer; None if the thread is to end."""
        me = threading.current_thread()
        with self.lock:
            while not self.changed.wait_for(lambda: self.waiting or self.thread is not me, _LOOK_UP_S):
                if not is_needed():
                    return None
            if self.thread is not me:
                return None
            self.busy = me
            return self.waiting.popleft()

    def done(self) -> None:
        """The answer that was taken is judged, or given up."""
        with self.lock:
            if self.busy is threading.current_thread():  # else it was closed, and another one has begun
                self.busy = None
            self.changed.notify_all()


def _serve(judge_of: weakref.ref[Judge], line: _Line) -> None:
    """The thread of a judge."""
    caller: _Caller | None = None
    while (answer := line.next(judge_of)) is not None and (judge := judge_of()) is not None:
        caller = judge._call(caller, answer)
        del judge
        line.done()
    if caller is not None:
        caller.end()


class _Failed(Exception):
    """The judge raised something that is no ordinary exception."""


class _Caller:
    """A daemon thread that calls the judge; one that hangs is left behind, and ends when the call returns."""

    def __init__(self, judge: Callable[..., Any], timeout_s: float) -> None:
        self._judge, self._timeout_s = judge, timeout_s
        self._asked: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.hangs = False
        self._thread = threading.Thread(target=self._run, name="trajectory_guard-judge-call", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Let the thread end after the call it is at."""
        self._asked.put(None)

    def ask(self, answer: Answer) -> Any:
        """The answer of the judge; raises what it raises, and ``TimeoutError`` when its time is up."""
        self._asked.put(answer)
        try:
            said = self._said.get(timeout=self._timeout_s + _GRACE_S)
        except queue.Empty:
            self.hangs = True
            self.end()
            raise TimeoutError from None
        if isinstance(said, BaseException):
            raise said
        return said

    def _run(self) -> None:
        loop: asyncio.AbstractEventLoop | None = None
        while (answer := self._asked.get()) is not None:
            try:
                said = contextvars.Context().run(self._suppressed, answer)
                if inspect.isawaitable(said):
                    loop = loop or asyncio.new_event_loop()
                    said = contextvars.Context().run(self._await, loop, said)
            except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
                said = TimeoutError()
            except Exception as error:  # noqa: BLE001  handed over to the thread that asked
                said = error
            except BaseException as error:  # noqa: BLE001  as sys.exit() raises it
                said = _Failed(repr(error)[:500])
            self._said.put(said)
        if loop is not None:
            loop.close()

    def _suppressed(self, answer: Answer) -> Any:
        with suppressed():
            return self._judge(answer.request, answer.response)

    def _await(self, loop: asyncio.AbstractEventLoop, pending: Any) -> Any:
        with suppressed():
            return loop.run_until_complete(asyncio.wait_for(_contained(pending), self._timeout_s))


async def _contained(pending: Awaitable[Any]) -> Any:
    """An exception that an event loop would not hand over, but end with."""
    try:
        return await pending
    except (KeyboardInterrupt, SystemExit) as error:
        raise _Failed(repr(error)[:500]) from None
