"""One trajectory of the fleet: evaluates its steps in the order in which they ended, and late steps by replay.

In process the engine evaluates a step when its span ends. Over a network spans arrive late, twice and in any order, and
the ancestors that name agent and conversation arrive after the tool span. So a trajectory keeps its recent steps
sorted: the newest step is evaluated on the current state; a step that belongs further back is inserted in its place,
which invalidates the evaluations from there on, and they are replayed from the nearest snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from trajectory_guard.by_hand import HandFlag
from trajectory_guard.core.calls import CallRecord, is_fuller, reported
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.run import Ring
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import INTERRUPTED, StepRecord, Usage
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard_collector.otlp.span_view import ResourceInfo
from trajectory_guard_collector.scoring.calls import ModelCall
from trajectory_guard_collector.scoring.lateness import Pace
from trajectory_guard_collector.scoring.published import Published
from trajectory_guard_collector.scoring.standing import NOTHING

Order = tuple[float, str]
"""End of a span in seconds, and its id: the order in which steps are evaluated."""
Key = tuple[str, str]
"""Tenant, which keeps equal ids of different tenants apart, and the trajectory's id."""

_RECENT: Final = 16
_SNAPSHOT_STEPS: Final = 32
_AT_A_STRETCH: Final = 8
SEEN: Final = 1_024
_MAX_NAMES: Final = 8
_MAX_EPISODES: Final = 16
_USAGE_BYTES: Final = 512
FIRST: Final[Order] = (float("-inf"), "")


class EventKind(str, Enum):
    """Kind of event that a guard span reports: a loop has begun, or a nudge or a stop is due."""

    START = "start"
    NUDGE = "nudge"
    STOP = "stop"


class UsageItem:
    """Tokens and money of a model call; ``call``: what a ledger needs besides, None without one."""

    __slots__ = (
        "arrived", "call", "evicted", "held", "key", "order", "pace", "scope", "service", "size", "span", "tenant",
        "trace_id", "usage", "wait_s",
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
        self.key: Key | None = None
        self.arrived: float | None = None
        self.pace: Pace | None = None
        self.wait_s = 0.0
        self.evicted = self.held = False


class StepItem:
    """A tool call, or a model call that may repeat, and the result of its evaluation.

    Attributes:
        span: trace id and span id in bytes.
        order: place among the steps of its trajectory.
        step: the record, with identity as known by now; ``view`` and ``dialect``: the source of that identity.
        own_agent: agent named by the span itself; own_run: agent instance named by the span itself.
        origin, service, tenant: the resource of the span, its service name, and the tenant of the trajectory's id.
        key: trajectory of the step; None while the step does not count (inner duplicate).
        evaluated: whether it was evaluated; verdict: the result, None if the step did not count.
        moved: evaluated before in another trajectory, and not yet in this one.
        recovered: already counted as the end of a loop.
        repeats: another record of the same call precedes it.
        first_step: span id of the first step of the loop in the verdict.
        announced: kind of its guard span; None if there is none. announced_as: the last kind published, under any name.
        late: attributes of the flag of its evicted trajectory; the step arrived too late to be evaluated.
        size: approximate bytes in memory.
        arrived: time of arrival, clock in seconds; None before the step is in a trajectory.
        pace, wait_s: pace of its service, and the seconds for which it waits for earlier steps.
        evicted: the step can no longer be put in order. held: its trace still refers to it, possibly after eviction.
        session: its Langfuse session, where another process identified it and writes scores.
    """

    __slots__ = (
        "announced", "announced_as", "arrived", "dialect", "evaluated", "evicted", "first_step", "held", "key", "late",
        "moved", "order", "origin", "own_agent", "own_run", "pace", "recovered", "repeats", "service", "session",
        "size", "span", "step", "tenant", "verdict", "view", "wait_s",
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
        self.own_agent: str | None = None
        self.own_run: str | None = None
        self.session: str | None = None
        self.key: Key | None = None
        self.verdict: Verdict | None = None
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


class Head(NamedTuple):
    """Input of the next evaluation: state, calls reported last, and model usage that no step has been charged yet."""

    state: TrajectoryState
    recent: deque[CallRecord]
    usage: UsageLedger


class Snapshot(NamedTuple):
    """An immutable copy of a head."""

    state: bytes
    recent: tuple[CallRecord, ...]
    usage: UsageLedger


class Trajectory:
    """Steps of one trajectory, its state, and its flag.

    Attributes:
        key: scope and id.
        items: steps and usage that can still be put in order, sorted; older ones are compacted into ``base``.
        floor: order of the newest item compacted into ``base``.
        standing: newest verdict with a finding, with a nudge, with a stop, after the evaluated items.
        compacted: the same after the compacted items; revised: whether ``standing`` has to be read again from there.
        by_hand: newest flag that a person raised, None if it was cleared; hands: number of those raised.
        services, agents: names seen last; trace_id: trace of the step evaluated last.
        steps, score, episode, nudges, level, evicted_runs: values after the newest step.
        last_used: clock in seconds; ``last_seen``: end of the newest step in seconds since the epoch.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.items: list[Item] = []
        self.floor: Order = FIRST
        self.base: Snapshot | None = None
        self.standing = self.compacted = NOTHING
        self.revised = False
        self.by_hand: HandFlag | None = None
        self.hands = 0
        self.services: tuple[str, ...] = ()
        self.agents: tuple[str, ...] = ()
        self.trace_id = ""
        self.level = Level.OBSERVE
        self.steps = self.episode = self.nudges = self.evicted_runs = 0
        self.score = 0.0
        self.last_used = 0.0
        self.last_seen = 0.0
        self.seen = Ring(SEEN)
        self.changed = True
        self.episodes: dict[int, Published] = {}
        self.evicted_items: list[Item] = []  # until the fleet collects them
        self._head: Head | None = None
        self._evaluated = 0  # items that the head covers
        self._snapshots: list[tuple[int, Snapshot]] = []

    # --- items in --------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Order:
        """Order of the newest item."""
        return self.items[-1].order if self.items else self.floor

    def is_too_late(self, item: Item, reorder_s: float) -> bool:
        """Whether an item is too old to be put in order, or so far back that its clock must have jumped."""
        return item.order <= self.floor or item.order[0] < self.newest[0] - reorder_s

    def was_seen(self, item: Item) -> bool:
        """Whether an item was compacted into the base before."""
        return item.span[-8:] in self.seen

    def add(self, item: Item) -> bool:
        """Insert an item in its place. Returns whether it is the newest."""
        item.key = self.key
        self.changed = True
        if not self.items or self.items[-1].order < item.order:
            self.items.append(item)
            return True
        place = bisect_right(self.items, item.order, key=lambda one: one.order)
        self.items.insert(place, item)
        self._invalidate(place)
        return False

    def add_last(self, item: Item) -> None:
        """Append an item behind all others, regardless of its own time."""
        newest = self.newest
        item.order = max(item.order, (newest[0], newest[1] + "~"))
        self.add(item)

    def remove(self, item: Item) -> None:
        """Remove an item that belongs to another trajectory, or is no step of its own."""
        place = next((at for at, one in enumerate(self.items) if one is item), None)
        item.key = None
        if place is not None:
            del self.items[place]
            self._invalidate(place)
            self.changed = True

    def refresh(self, item: Item) -> None:
        """Invalidate the evaluations from an item on, since its identity has changed."""
        place = next((at for at, one in enumerate(self.items) if one is item), None)
        if place is not None:
            self._invalidate(place)
            self.changed = True

    def _invalidate(self, place: int) -> None:
        if place < self._evaluated:
            self._head = None
            self._evaluated = place
            self.revised = True
        while self._snapshots and self._snapshots[-1][0] > place:
            self._snapshots.pop()

    # --- scoring ---------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> Item | None:
        """The first item that has to be evaluated, for the first time or again; None if there is none."""
        return self.items[self._evaluated] if self._evaluated < len(self.items) else None

    def is_due(self, now: float) -> bool:
        """Whether the first item to evaluate need not wait any longer."""
        item = self.waiting
        return item is not None and is_due(item, now)

    def evaluate(self, engine: Engine, reorder_steps: int, now: float) -> list[StepItem]:
        """Evaluate the first eight items that are due. Returns the steps among them."""
        due = self._evaluated
        while due < len(self.items) and is_due(self.items[due], now):
            due += 1
        head = self._head if self._head is not None else self._rewind(engine)
        evaluated = []
        end = min(due, self._evaluated + _AT_A_STRETCH)
        for place in range(self._evaluated, end):
            item = self.items[place]
            if isinstance(item, StepItem):
                item.verdict = self._evaluate(engine, head, item)
                evaluated.append(item)
            else:
                head.usage.add(item.trace_id, item.scope, item.usage)
            if place % _SNAPSHOT_STEPS == _SNAPSHOT_STEPS - 1:
                self._snapshots.append((place + 1, _freeze(head)))
        self._head, self._evaluated = head, end
        self._read(head.state, evaluated)
        if end == due and len(self.items) > reorder_steps + _SNAPSHOT_STEPS:
            self._trim(reorder_steps)
        return evaluated

    def _read(self, state: TrajectoryState, evaluated: list[StepItem]) -> None:
        newest = next((item.verdict for item in reversed(evaluated) if item.verdict is not None), None)
        if newest is not None:
            self.level = newest.level
        self.steps, self.score, self.episode, self.nudges = state.index, state.score, state.episodes, state.nudges
        self.evicted_runs = state.evicted_runs

    def _rewind(self, engine: Engine) -> Head:
        """The head at the nearest snapshot before the first item to evaluate."""
        place, snapshot = self._snapshots[-1] if self._snapshots else (0, self.base)
        self._evaluated = place
        return self._thaw(engine, snapshot)

    def _thaw(self, engine: Engine, snapshot: Snapshot | None) -> Head:
        if snapshot is None:
            return Head(engine.new_state(self.key[1]), deque(maxlen=_RECENT), UsageLedger())
        return Head(engine.load_state(snapshot.state), deque(snapshot.recent, maxlen=_RECENT), snapshot.usage.copy())

    def _evaluate(self, engine: Engine, head: Head, item: StepItem) -> Verdict | None:
        step = item.step
        if step.model_scope is not None:
            verdict = engine.observe(head.state, head.usage.name_model_call(step))
            if verdict is not None:
                head.usage.settle_model_call(step)
            return self._with_first_step(head, item, verdict)
        seen = CallRecord.of(step)
        other = reported(head.recent, seen)
        item.repeats = other is not None and not is_fuller(seen, other)
        if item.repeats:
            return None
        if seen.outcome != INTERRUPTED:
            head.recent.append(seen)
        return self._with_first_step(head, item, engine.observe(head.state, head.usage.charge(step)))

    def _with_first_step(self, head: Head, item: StepItem, verdict: Verdict | None) -> Verdict | None:
        if verdict is not None and verdict.detections:
            item.first_step = _step_id(head.state, verdict.first_step)
        return verdict

    # --- bounds ----------------------------------------------------------------------------------------------

    def _trim(self, keep: int) -> None:
        """Compact the items before the last ``keep`` into the base, up to a snapshot."""
        old = [at for at, (place, _) in enumerate(self._snapshots) if place <= self._evaluated - keep]
        if not old:
            return
        place, self.base = self._snapshots[old[-1]]
        self._forget(place)
        self._snapshots = [(where - place, snapshot) for where, snapshot in self._snapshots[old[-1] + 1 :]]
        self._evaluated -= place

    def settle_runs(self, engine: Engine) -> list[tuple[Verdict, StepItem | None]]:
        """Settle the runs, which pause or are evicted: verdicts on those that recovered, with the newest step if kept.

        Call ``rest`` next, so that later steps continue from here. Every item must be evaluated before.
        """
        if (self._head is None and self.base is None) or not any(one.may_recover for one in self.episodes.values()):
            return []
        head = self._head if self._head is not None else self._thaw(engine, self.base)
        found = [
            verdict
            for label in list(head.state.runs)
            if (verdict := engine.finish_recovery(head.state, label)) is not None
        ]
        if found:
            self._head, self.changed = head, True
            self._read(head.state, [])
        return [(verdict, self._newest_of(verdict.run)) for verdict in found]

    def _newest_of(self, run: str) -> StepItem | None:
        steps = (one for one in reversed(self.items) if isinstance(one, StepItem))
        return next((one for one in steps if one.verdict is not None and one.verdict.run == run), None)

    def rest(self) -> None:
        """Compact all steps to free their memory; later arrivals are evaluated in order of arrival."""
        if self._head is not None:
            self.base = _freeze(self._head)
            self._forget(len(self.items))
            self._snapshots, self._head, self._evaluated = [], None, 0
            self.compacted = self.standing  # a run that came to rest recovered without a step

    def dismiss(self, engine: Engine) -> None:
        """Clear flag and scores, and compact the evaluated steps: evaluated again, they would raise the flag again."""
        head = self._head if self._head is not None else self._rewind(engine)
        for label in head.state.runs:
            engine.reset_episode(head.state, label)
        head.state.relay = None
        if head.state.index:
            self.base = _freeze(head)
        self._forget(self._evaluated)
        self._snapshots, self._head, self._evaluated = [], None, 0
        self.standing, self.compacted, self.by_hand = NOTHING, NOTHING, None
        self.level, self.changed = Level.OBSERVE, True
        self._read(head.state, [])

    def abandon(self) -> None:
        """Evict all items."""
        self._forget(len(self.items))

    def _forget(self, count: int) -> None:
        for item in self.items[:count]:
            item.evicted = True
            if isinstance(item, StepItem) and _is_nudge(item) and item.verdict.episode in self.episodes:  # type: ignore[union-attr]
                self.episodes[item.verdict.episode].compacted += 1  # type: ignore[union-attr]
            self.seen.append(item.span[-8:])
            self.floor = max(self.floor, item.order)
        self.compacted = self.compacted.after(one.verdict for one in self.items[:count])
        self.evicted_items += self.items[:count]
        del self.items[:count]

    def describe(self, item: StepItem) -> None:
        """Record service, agent and trace of a step."""
        self.trace_id = item.view.trace_id
        self.services = _with(self.services, item.service)
        self.agents = _with(self.agents, item.step.agent_id)

    # --- reading ---------------------------------------------------------------------------------------------

    def revise(self) -> None:
        """Read again what stands: a late step, or one that moved away, may have retracted a finding."""
        self.standing, self.revised = self.compacted.after(one.verdict for one in self.evaluated), False

    def published(self, episode: int) -> Published:
        """Publication state of an episode; evicts the oldest ones beyond ``_MAX_EPISODES``."""
        known = self.episodes.get(episode)
        if known is None:
            known = self.episodes[episode] = Published()
            if len(self.episodes) > _MAX_EPISODES:
                del self.episodes[min(self.episodes)]
        return known

    def nth_nudge(self, item: StepItem) -> int:
        """Number of the nudge within its episode at a step, from 1: after progress the ladder counts again from 1."""
        episode = item.verdict.episode if item.verdict is not None else 0
        nudges = [one for one in self.items if isinstance(one, StepItem) and _is_nudge(one) and one.order <= item.order]
        return self.published(episode).compacted + sum(one.verdict.episode == episode for one in nudges)  # type: ignore[union-attr]

    @property
    def can_be_saved(self) -> bool:
        """Whether the head is valid: it is not while a step further back waits for evaluation."""
        return self._head is not None or not self._evaluated

    def snapshot(self) -> Snapshot | None:
        """The current head, which covers the evaluated items; None before the first step."""
        return _freeze(self._head) if self._head is not None else self.base

    @property
    def replay_points(self) -> list[tuple[int, Snapshot]]:
        """Places among the items, and the state there: after a restart, late steps are replayed from these."""
        return self._snapshots if self._head is None else [*self._snapshots, (self._evaluated, _freeze(self._head))]

    def restore_items(self, items: list[Item], replay_points: list[tuple[int, Snapshot]]) -> None:
        """Take over the items and the replay points of a saved trajectory; those behind the last point are due."""
        self.items = items
        for item in items:
            item.key = self.key
        self._snapshots = replay_points
        self._evaluated = replay_points[-1][0] if replay_points else 0

    @property
    def evaluated_items(self) -> int:
        """Number of items that the head covers."""
        return self._evaluated

    @property
    def evaluated(self) -> list[Item]:
        """Items that the head covers."""
        return self.items[: self._evaluated]


def _is_nudge(item: StepItem) -> bool:
    return item.verdict is not None and item.verdict.nudge is not None


def _step_id(state: TrajectoryState, index: int) -> str:
    ids = state.step_ids
    return ids[index].hex() if ids.start <= index < ids.start + len(ids) else str(index)


def _with(names: tuple[str, ...], name: str | None) -> tuple[str, ...]:
    return names if not name or name in names else (*names[1 - _MAX_NAMES :], name)


def is_due(item: Item, now: float) -> bool:
    """Whether an item has waited for long enough; ``now``: clock in seconds."""
    if item.pace is None or not item.wait_s:
        return True
    return item.pace.newest >= item.order[0] + item.wait_s or now >= (item.arrived or 0.0) + item.wait_s


def _freeze(head: Head) -> Snapshot:
    return Snapshot(head.state.to_bytes(), tuple(head.recent), head.usage.copy())
