"""Spans that ended while their threads were inside the guard: they are evaluated with the next span that ends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import holds_lock

_MAX_POSTPONED: Final = 256


class Postponed:
    """Ended spans, oldest first; beyond a limit the oldest are dropped, and counted.

    Parameters:
        counts: of the board.

    Attributes:
        spans: those that wait.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self.spans: deque[ReadableSpan] = deque(maxlen=_MAX_POSTPONED)
        now_and_after_fork(self._begin)

    def _begin(self) -> None:
        self._catches_up = False

    def add(self, span: ReadableSpan) -> None:
        """Let a span wait."""
        if len(self.spans) == _MAX_POSTPONED:
            self._counts["expired_full"] += 1  # the oldest is dropped
        self.spans.append(span)

    def catch_up(self, evaluate: Callable[[ReadableSpan], None]) -> bool:
        """Evaluate the spans that wait, unless this thread is inside the guard, or another one evaluates them.

        Each is tried once: a thread that enters the guard meanwhile, without being another one (a greenlet), puts them
        back. Returns whether none waits any more.
        """
        if self._catches_up or holds_lock():
            return not self.spans
        self._catches_up = True
        try:
            for _ in range(len(self.spans)):
                evaluate(self.spans.popleft())
        except IndexError:
            pass  # another thread has taken it
        finally:
            self._catches_up = False
        return not self.spans
