"""Model calls that two instrumentations report with two spans: each is booked once. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from trajectory_guard.core.tracking.tables import BoundedTable

_MAX_TRACES: Final = 1024
_CALLS_OF_A_TRACE: Final = 32
_KEPT_OF_A_TRACE: Final = 128
_SLACK_S: Final = 0.001


class ReportedCall:
    """The span of a model call.

    Attributes:
        scope: instrumentation scope that reported it.
        start, end: in seconds.
        tokens: input and output tokens.
        response: the provider's id of the response, None if unknown.
        above: ids of the spans around it.
        says_usage: whether the span names tokens or a cost.
        reported_by: scopes that have reported this call, besides its own.
    """

    __slots__ = ("above", "end", "reported_by", "response", "says_usage", "scope", "span_id", "start", "tokens")

    def __init__(
        self, scope: str, span_id: str, start: float, end: float, tokens: tuple[int, int],
        response: str | None, above: frozenset[str], *, has_cost: bool,
    ) -> None:  # fmt: skip
        self.scope, self.span_id, self.start, self.end = scope, span_id, start, end
        self.tokens, self.response, self.above = tokens, response, above
        self.says_usage = any(tokens) or has_cost
        self.reported_by = {scope}

    def is_same_as(self, other: ReportedCall) -> bool:
        """Whether two spans are of one call: one instrumentation each, one within the other in time.

        That alone would join calls that ran side by side. They have to agree in the response id, or, where one of them
        names none, be nested or agree in the tokens.
        """
        if self.scope in other.reported_by or not (self._within(other) or other._within(self)):
            return False
        if self.response is not None and other.response is not None:
            return self.response == other.response
        return self.tokens == other.tokens or self.span_id in other.above or other.span_id in self.above

    def _within(self, other: ReportedCall) -> bool:
        return other.start - _SLACK_S <= self.start and self.end <= other.end + _SLACK_S


class ReportedCalls:
    """The newest model calls of the newest traces. The caller holds a lock."""

    def __init__(self) -> None:
        self._traces: BoundedTable[str, deque[ReportedCall]] = BoundedTable(_MAX_TRACES)

    def is_second(self, trace_id: str, call: ReportedCall) -> bool:
        """Whether another instrumentation has reported this call before; remembers it if none has."""
        known = self._traces.get(trace_id)
        if known is None:
            known = self._traces[trace_id] = deque(maxlen=_CALLS_OF_A_TRACE)
        return _is_second(known, call)


class CallsOfTrace:
    """The newest model calls of one trace, reported in any order, as ``ReportedCalls`` finds them in order of ends."""

    def __init__(self) -> None:
        self._calls: dict[str, ReportedCall] = {}
        self._scopes: set[str] = set()
        self._second: frozenset[str] = frozenset()

    def is_second(self, span_id: str) -> bool:
        """Whether a span is a second report of another one's call, as far as is known now."""
        return span_id in self._second

    def put(self, call: ReportedCall) -> tuple[set[str], str | None]:
        """Add a call, or what is known of it now.

        Returns:
            Ids of the spans that became second reports, or are none any more, and the id of the span that is forgotten
            for it.
        """
        self._calls[call.span_id] = call
        self._scopes.add(call.scope)
        forgotten = None
        if len(self._calls) > _KEPT_OF_A_TRACE:
            forgotten = min(self._calls.values(), key=_place).span_id
            del self._calls[forgotten]
        if len(self._scopes) < 2:
            return set(), forgotten
        before, self._second = self._second, frozenset(_second_reports(self._calls.values()))
        return {span for span in before ^ self._second if span in self._calls}, forgotten


def _second_reports(calls: Iterable[ReportedCall]) -> list[str]:
    known: deque[ReportedCall] = deque(maxlen=_CALLS_OF_A_TRACE)
    found = []
    for call in sorted(calls, key=_place):
        call.reported_by = {call.scope}
        if _is_second(known, call):
            found.append(call.span_id)
    return found


def _place(call: ReportedCall) -> tuple[float, float, str]:
    """Order of ends; of spans that end together the inner one ends first."""
    return call.end, -call.start, call.span_id


def _is_second(known: deque[ReportedCall], call: ReportedCall) -> bool:
    """A report without usage, as of a stream, is booked with nothing: one with usage is no second report of it."""
    for other in known:
        if (other.says_usage or not call.says_usage) and call.is_same_as(other):
            other.reported_by.add(call.scope)
            return True
    known.append(call)
    return False
