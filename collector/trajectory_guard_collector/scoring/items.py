"""The items of a trajectory: tool calls, repeated model calls and usage; and how long they wait.

Where spans arrive in order, as from one exporter, no step waits. Where a step arrives after later steps were evaluated,
all steps from there on have to be evaluated again. So the steps of such a service wait until its newest span has ended
later than the step by the lateness seen so far, or for the same time on the clock of arrival if no newer span arrives.
A collector reads a backlog faster than it was written; then the end times of the spans serve as the clock. An end in
the future is no time on this clock: it would end all waiting of the service until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard_collector.scoring.calls import ModelCall

Order = tuple[float, str]
"""End of a span in seconds, and its id: the order in which steps are evaluated."""
FIRST: Final[Order] = (float("-inf"), "")
"""Before all others."""
Key = tuple[str, str]
"""Tenant, which keeps equal ids of different tenants apart, and the trajectory's id."""

_USAGE_BYTES: Final = 512
_MAX_SERVICES: Final = 1_024
_MAX_REMINDERS: Final = 2_000
_DECAY: Final = 0.995
"""Factor by which each step in order shortens the wait: some hundred of them end it."""
_LEAST_S: Final = 0.05
_MAX_AHEAD_S: Final = 300.0
"""Seconds by which the clock of a sender may be ahead of ours for the ends of its spans to serve as a clock."""
ALWAYS: Final = float("inf")
"""A time at which no step waits any longer."""


class ResourceInfo(NamedTuple):
    """The resource that spans come from.

    Steps keep it for as long as they are in memory, and share it with the others of their application.

    Fields:
        attributes: its attributes, as far as they are kept.
        service: name of the service.
        tenant: keeps equal ids of different tenants apart.
    """

    attributes: Mapping[str, Any]
    service: str
    tenant: str


class Pace:
    """Lateness of one service.

    Attributes:
        newest: end of its newest span, seconds since the epoch, those in the future left aside.
        wait_s: seconds for which its steps wait.
    """

    __slots__ = ("_due", "_pushed", "newest", "wait_s")

    def __init__(self) -> None:
        self.newest = 0.0
        self.wait_s = 0.0
        self._due: list[tuple[float, int, Any]] = []  # heap
        self._pushed = 0

    def next_wait_s(self, end: float, *, in_order: bool, most: float, now: float = ALWAYS) -> float:
        """Seconds for which a newly arrived step waits.

        Parameters:
            end: end of its span, seconds since the epoch.
            in_order: no step after it arrived in an earlier request.
            most: longest wait in seconds.
            now: time of arrival, seconds since the epoch.
        """
        if in_order:
            if end <= now + _MAX_AHEAD_S:
                self.newest = max(self.newest, end)
            self.wait_s = self.wait_s * _DECAY if self.wait_s > _LEAST_S else 0.0
        else:
            self.wait_s = max(self.wait_s, min(most, self.newest - end))
        return self.wait_s

    def remind(self, at: float, what: Any) -> None:
        """Return ``what`` from ``reminders`` once the newest span has ended at ``at``; beyond a bound, never."""
        if len(self._due) < _MAX_REMINDERS:  # the clock of arrival ends the wait without any
            self._pushed += 1
            heappush(self._due, (at, self._pushed, what))

    def reminders(self) -> list[Any]:
        """Take the reminders that are due."""
        found = []
        while self._due and self._due[0][0] <= self.newest:
            found.append(heappop(self._due)[2])
        return found


class Paces:
    """Paces by service; evicts the least recently used beyond 1,024."""

    def __init__(self) -> None:
        self._paces: BoundedTable[str, Pace] = BoundedTable(_MAX_SERVICES)
        self._newest = ("", Pace())  # a request has the spans of few services: this one is used last already

    def of(self, service: str) -> Pace:
        """The pace of a service."""
        name, pace = self._newest
        if name == service and name:
            return pace
        known = self._paces.touch(service)
        if known is None:
            known = self._paces[service] = Pace()
        self._newest = (service, known)
        return known


class EventKind(str, Enum):
    """Kind of event that a guard span reports: a loop has begun, or a nudge or a stop is due."""

    START = "start"
    NUDGE = "nudge"
    STOP = "stop"


class UsageItem:
    """Tokens and money of a model call.

    Attributes:
        call: what a ledger needs besides, None without one.
        task: label of the LangGraph task that made the call, None if there is none.
        moved: another process had it in another trajectory before.
    """

    __slots__ = (
        "arrived", "call", "evicted", "held", "key", "moved", "order", "pace", "scope", "service", "size", "span",
        "task", "tenant", "trace_id", "usage", "wait_s",
    )  # fmt: skip
    verdict: Final = None

    def __init__(
        self, span: bytes, order: Order, trace_id: str, scope: str, usage: Usage, origin: ResourceInfo
    ) -> None:
        self.span = span
        self.size = _USAGE_BYTES
        self.tenant = origin.tenant
        self.service = origin.service
        self.order = order
        self.trace_id = trace_id
        self.scope = scope
        self.usage = usage
        self.call: ModelCall | None = None
        self.task: str | None = None
        self.key: Key | None = None
        self.arrived: float | None = None
        self.pace: Pace | None = None
        self.wait_s = 0.0
        self.evicted = self.held = self.moved = False


class StepItem:
    """A tool call, or a model call that may repeat, and the result of its evaluation.

    Attributes:
        span: trace id and span id in bytes.
        trace_state, flags: those of the span, for the guard span beside it.
        order: place among the steps of its trajectory.
        step: the record, with identity as known by now; ``view`` and ``dialect``: the source of that identity.
        own_agent: agent named by the span itself; own_run: agent instance named by the span itself.
        origin, service, tenant: the resource of the span, its service name, and the tenant of the trajectory's id.
        key: trajectory of the step; None while the step does not count (inner duplicate).
        verdict: result of its evaluation by the trajectory, None if the step did not count; first_step: span id of the
            first step of the loop in it; repeats: another record of the same call precedes it.
        evaluated_as: agent, run and batch of its evaluation, where the run depends on a missing span
            (``scoring.lanes``).
        evaluated: published after an evaluation; announced: kind of its guard span, None if there is none;
            announced_as: the last kind published, under any name; recovered: already counted as the end of a loop.
            These four belong to ``events.publish``.
        moved: evaluated before in another trajectory, and not yet in this one: set by the registry, cleared by events.
            Of another process: added to another trajectory before.
        late: attributes of the flag of its evicted trajectory; the step arrived too late to be evaluated.
        size: approximate bytes in memory.
        arrived: time of arrival, clock in seconds; None before the step is in a trajectory.
        pace, wait_s: pace of its service, and the seconds for which it waits for earlier steps.
        evicted: the step can no longer be put in order. held: its trace still refers to it, possibly after eviction.
        session: its Langfuse session, where another process identified it and writes scores.
    """

    __slots__ = (
        "announced", "announced_as", "arrived", "dialect", "evaluated", "evaluated_as", "evicted", "first_step",
        "flags", "held", "key", "late", "moved", "order", "origin", "own_agent", "own_run", "pace", "recovered",
        "repeats", "service", "session", "size", "span", "step", "tenant", "trace_state", "verdict", "view", "wait_s",
    )  # fmt: skip

    def __init__(
        self, span: bytes, step: StepRecord, view: SpanView, dialect: Dialect, origin: ResourceInfo, size: int
    ) -> None:
        self.span = span
        self.size = size
        # a model call is evaluated after its usage is known
        self.order: Order = (view.end, view.span_id if step.model_scope is None else f"{view.span_id}~")
        self.step = step
        self.view = view
        self.dialect = dialect
        self.origin = origin
        self.service = origin.service
        self.tenant = origin.tenant
        self.trace_state = ""
        self.flags = 0
        self.own_agent: str | None = None
        self.own_run: str | None = None
        self.session: str | None = None
        self.key: Key | None = None
        self.verdict: Verdict | None = None
        self.evaluated_as: tuple[str | None, str | None, str | None] | None = None
        self.first_step = ""
        self.evaluated = self.moved = self.recovered = self.repeats = False
        self.announced: EventKind | None = None
        self.announced_as: EventKind | None = None
        self.late: Mapping[str, Any] | None = None
        self.arrived: float | None = None
        self.pace: Pace | None = None
        self.wait_s = 0.0
        self.evicted = self.held = False

    @property
    def parent_id(self) -> bytes:
        """Span id of the parent, empty for a root."""
        return bytes.fromhex(self.view.parent_id or "")

    def release(self) -> None:
        """Free the texts of the step if its trace still refers to it."""
        if not self.held:
            return
        self.step = StepRecord(self.step.step_id, self.step.trajectory_id, self.step.tool_name)
        self.view = self.view._replace(attributes={})
        self.verdict = None


Item = StepItem | UsageItem


def was_in_order(item: Item) -> bool:
    """Whether another trajectory, of this process or of another one, had the item before."""
    return item.arrived is not None or item.moved


def is_due(item: Item, now: float) -> bool:
    """Whether an item has waited for long enough; ``now``: clock in seconds."""
    if item.pace is None or not item.wait_s:
        return True
    return item.pace.newest >= item.order[0] + item.wait_s or now >= (item.arrived or 0.0) + item.wait_s
