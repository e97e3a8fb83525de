"""All trajectories of a collector, bounded by number, idle time and memory."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from opentelemetry.util.types import AttributeValue

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.policy import Level
from trajectory_guard.core.tracking.tables import BoundedTable, NameTable
from trajectory_guard.otel.verdict_spans import verdict_attributes
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.scoring.events import LoopEvent, publish, recovered_when_idle, stand_in
from trajectory_guard_collector.scoring.items import ALWAYS, EventKind, Item, Key, Pace, Paces, StepItem, was_in_order
from trajectory_guard_collector.scoring.saved_state import with_saved_state
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1024 * 1024
_NAMES_PER_TRAJECTORY: Final = 4

Attributes = Mapping[str, AttributeValue]


class Flagged(NamedTuple):
    """Remainder of a flagged trajectory that was evicted.

    Fields:
        until: end of its newest item, seconds since the epoch; at most the time of eviction, after which all is new.
        attributes: its last flag.
    """

    until: float
    attributes: Attributes


class TrajectoryRegistry:
    """Trajectories by key. Single-threaded.

    Parameters:
        engine: evaluates the steps.
        config: bounds by number and idle time.
        limits: bounds on the steps that can still be put in order.
        counts: counts steps, findings and evictions.
        clock: monotonic seconds; for tests.
        now: seconds since the epoch, with which the ends of spans are compared.

    Attributes:
        kept_bytes: approximate bytes of the steps that can still be put in order.
        replayed_row: id of the write-ahead row that is read again after a restart, 0 if none is.
    """

    def __init__(
        self, engine: Engine, config: GuardConfig, limits: Trajectories, counts: ScoringCounts, *,
        clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.engine, self._config = engine, config
        self._limits, self._counts = limits, counts
        self._clock, self._now = clock, now
        self._all: OrderedDict[Key, Trajectory] = OrderedDict()
        self._open: OrderedDict[Key, Trajectory] = OrderedDict()  # those that still keep single steps
        self._awake: OrderedDict[Key, Trajectory] = OrderedDict()  # those whose runs are not closed
        self._dirty: dict[Key, Trajectory] = {}
        self._waiting: dict[Key, Trajectory] = {}  # those with steps that wait for earlier steps
        self._behind: dict[Key, Trajectory] = {}  # those with steps whose requests could not wait for them
        self._paces = Paces()
        self._active: set[Pace] = set()  # paces of the items that arrived since the last evaluation
        self._items: dict[bytes, Item] = {}
        self.kept_bytes = self.replayed_row = 0
        self._surplus = 0  # trajectories to evict, if they are idle, because memory is short
        self._flagged: BoundedTable[Key, Flagged] = BoundedTable(limits.max_flagged)
        self._pending_tags: BoundedTable[bytes, Attributes] = BoundedTable(limits.max_flagged)
        self._evicted_keys: list[Key] | None = None
        self._names: NameTable[str, Key] = NameTable(_NAMES_PER_TRAJECTORY * config.max_trajectories)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self._all.values())

    # --- items in --------------------------------------------------------------------------------------------

    def known(self, span: bytes) -> Item | None:
        """The item of a span (trace id and span id) that was delivered before and can still be put in order."""
        return self._items.get(span)

    def add(self, item: Item, key: Key) -> None:
        """Add an item to a trajectory. One that was added before is counted as a duplicate and ignored."""
        if item.span in self._items:
            self._counts.duplicate()
            return
        trajectory = self._all.get(key)
        if trajectory is None:
            flagged = self._flagged.get(key)
            if isinstance(item, StepItem) and flagged is not None and 0.0 < item.order[0] <= flagged.until:
                item.late = flagged.attributes
                self._counts.late("too_late")
                return
            trajectory = self._all[key] = Trajectory(key, self._limits.max_seen_spans)
        elif item.order <= trajectory.newest and trajectory.was_seen(item, self.replayed_row):
            self._counts.duplicate()
            item.evicted = True  # else an ancestor that arrives would have it added to another trajectory
            return
        self._place(trajectory, item)

    def _place(self, trajectory: Trajectory, item: Item) -> None:
        end, new = item.order[0], item.arrived is None  # else another trajectory had it before
        pace = item.pace = self._paces.of(item.service)
        now = self._clock()
        if end <= 0.0:  # a span without times has no order but that of arrival
            trajectory.add_last(item)
        elif trajectory.is_too_late(item, self._limits.reorder_s):
            trajectory.add_last(item)
            self._counts.late("too_late")
        else:
            evaluated = trajectory.evaluated_items
            newest = trajectory.add(item)
            if not newest and not was_in_order(item):
                self._counts.late("reordered")
            if new:  # the spans of one request are put in order before any is evaluated
                late = not newest and (trajectory.evaluated_items < evaluated or trajectory.key in self._waiting)
                most = self._limits.reorder_wait_s
                item.wait_s = pace.next_wait_s(end, in_order=not late, most=most, now=self._now())
        if new:
            item.arrived = now
        self._active.add(pace)
        self._items[item.span] = item
        self.kept_bytes += item.size
        self._touch(trajectory, now)

    def _touch(self, trajectory: Trajectory, now: float) -> None:
        key = trajectory.key
        trajectory.last_used = now
        self._all.move_to_end(key)
        self._open[key] = trajectory
        self._open.move_to_end(key)
        self._awake[key] = trajectory
        self._awake.move_to_end(key)
        self._dirty[key] = trajectory

    def move(self, item: Item, key: Key | None) -> None:
        """Move an item to another trajectory; None: remove it, since it is no step of its own."""
        before = self._all.get(item.key) if item.key is not None else None
        if before is not None:
            before.remove(item)
            self.kept_bytes -= item.size
            self._items.pop(item.span, None)
            if before.items or before.base is not None:
                self._dirty[before.key] = before
            else:
                self._drop(before)
        if isinstance(item, StepItem):
            item.announced = item.verdict = None
            item.moved = item.evaluated
        if key is not None:
            self.add(item, key)

    def refresh(self, item: Item) -> None:
        """Invalidate the evaluation of a step whose identity has changed. A model call has none: a ledger books it."""
        trajectory = self._all.get(item.key) if item.key is not None else None
        if trajectory is not None and isinstance(item, StepItem):
            trajectory.refresh(item)
            self._dirty[trajectory.key] = trajectory

    def name(self, key: Key, names: Iterable[str]) -> None:
        """Register further names for flag lookups of a trajectory. A name of several trajectories, such as a trace
        around several conversations, or an id that several tenants use, finds none of them."""
        for name in names:
            known = self._names.find(name)
            if known is not None and known[1] != key[1] == name:
                continue  # a name of a trace's own trajectory goes to the conversation
            if known is not None and known[1] == name != key[1]:
                self._names.forget(name)
            self._names.learn(name, key)

    def end(self, key: Key, trace_id: str) -> None:
        """Record that the root span of a trace has ended."""
        if (trajectory := self._all.get(key)) is not None:
            trajectory.end_trace(trace_id)

    def rename(self, former: Key, key: Key) -> None:
        """Continue a trajectory under another key. Its single steps are moved one by one."""
        before = self._all.get(former)
        if before is None or (before.base is None and before.by_hand is None):
            return
        named = self._all.setdefault(key, Trajectory(key, self._limits.max_seen_spans))
        with_saved_state(before, self.engine, self._counts, lambda: named.inherit(before, self.engine))
        self._touch(named, self._clock())
        if before.items or before.base is not None:
            self._dirty[former] = before
        else:
            self._drop(before)

    # --- scoring ---------------------------------------------------------------------------------------------

    def scoring(self, until: float = math.inf) -> Generator[None, None, list[LoopEvent]]:
        """Evaluate all steps that are due, new or invalidated, a few at a time. Returns the loop events to publish.

        After ``until``, in monotonic seconds, further steps are left to ``catching_up`` if there is memory for them.
        """
        now = self._clock()
        for key in [key for pace in self._active for key in pace.reminders()]:
            if key in self._waiting:
                self._dirty[key] = self._waiting[key]
        self._active.clear()
        events: list[LoopEvent] = []
        for trajectory in list(self._dirty.values()):
            events += yield from self._evaluate(trajectory, now, until)
        return [*events, *self.maintain()]

    @property
    def is_behind(self) -> bool:
        """Whether steps were left to ``catching_up``."""
        return bool(self._behind)

    def catching_up(self, until: float) -> Generator[None, None, list[LoopEvent]]:
        """Evaluate steps that ``scoring`` has left, until then. Returns the loop events to publish."""
        events: list[LoopEvent] = []
        for trajectory in list(self._behind.values()):
            events += yield from self._evaluate(trajectory, self._clock(), until)
            if time.monotonic() > until:
                break
        return events

    def _evaluate(
        self, trajectory: Trajectory, now: float, until: float = math.inf
    ) -> Generator[None, None, list[LoopEvent]]:
        """Evaluate the steps of a trajectory that are due, or those that there is time for."""
        events: list[LoopEvent] = []
        behind, evicted_runs = False, trajectory.evicted_runs
        while trajectory.is_due(now):
            if time.monotonic() > until and self.kept_bytes <= self._limits.max_history_mib * _MIB:
                behind = True
                break
            for item in self.evaluate_some(trajectory, now):
                for event in publish(trajectory, item, self._counts):
                    self._tag_parent_later(event)
                    events.append(event)
            yield
        if trajectory.revised:
            trajectory.revise()
        self._counts.evicted_runs(max(0, trajectory.evicted_runs - evicted_runs))
        self._clear(trajectory)
        self._dirty.pop(trajectory.key, None)
        self._behind.pop(trajectory.key, None)
        waits = trajectory.waiting
        if behind:
            self._behind[trajectory.key] = trajectory
            self._counts.postponed()
        if waits is None or behind:
            self._waiting.pop(trajectory.key, None)
        elif self._all.get(trajectory.key) is trajectory:
            self._waiting[trajectory.key] = trajectory
            if waits.pace is not None:
                waits.pace.remind(waits.order[0] + waits.wait_s, trajectory.key)
        return events

    def finishing(self, until: float = math.inf) -> Generator[None, None, list[LoopEvent]]:
        """Evaluate all waiting steps, or those before ``until``. Returns the loop events to publish."""
        events: list[LoopEvent] = []
        for trajectory in [*self._dirty.values(), *self._behind.values(), *self._waiting.values()]:
            if trajectory.waiting is not None:
                events += yield from self._evaluate(trajectory, ALWAYS, until)
        return events

    def _finish(self, trajectory: Trajectory) -> list[LoopEvent]:
        return at_once(self._evaluate(trajectory, ALWAYS)) if trajectory.waiting is not None else []

    def evaluate_some(self, trajectory: Trajectory, now: float) -> list[StepItem]:
        """Evaluate the first steps of a trajectory that are due; one that cannot be evaluated is discarded."""
        engine, steps = self.engine, self._limits.reorder_steps
        try:
            return with_saved_state(trajectory, engine, self._counts, lambda: trajectory.evaluate(engine, steps, now))
        except Exception:  # noqa: BLE001  one trajectory must not cost the others
            self._counts.error("evaluate.trajectory")
            _log.exception("trajectory %r cannot be scored; its state is discarded", trajectory.key[1])
            self._drop(trajectory)
            return []

    def _tag_parent_later(self, event: LoopEvent) -> None:
        """Tag the parent span, which arrives later, as well if the event asks for an intervention."""
        item = event.item
        if event.kind in (EventKind.NUDGE, EventKind.STOP) and item.parent_id:
            self.tag_later(item.span[:16] + item.parent_id, self.attributes(item) or {})

    # --- tags ------------------------------------------------------------------------------------------------

    def attributes(self, item: StepItem) -> Attributes | None:
        """Attributes for the span of a step; None without a finding."""
        if item.late is not None:
            return item.late
        if item.verdict is None or not item.verdict.detections:
            return None
        return verdict_attributes(item.verdict, item.first_step)

    def tag_later(self, span: bytes, attributes: Attributes) -> None:
        """Remember attributes for a span that has yet to arrive, for the first time or again."""
        self._pending_tags[span] = attributes

    @property
    def has_pending_tags(self) -> bool:
        """Whether attributes are remembered for any span."""
        return bool(self._pending_tags)

    def pending_tags(self, span: bytes) -> Attributes | None:
        """Attributes remembered for a span; None if there are none."""
        return self._pending_tags.get(span)

    # --- flags by hand ---------------------------------------------------------------------------------------

    def raise_flag(self, trajectory: Trajectory, flag: HandFlag) -> HandFlag:
        """Put a flag that a person raised on a trajectory; returns it with its ordinal."""
        trajectory.hands += 1
        trajectory.by_hand = flag._replace(ordinal=trajectory.hands)
        trajectory.changed = True
        return trajectory.by_hand

    def clear_flag(self, trajectory: Trajectory) -> None:
        """Clear every flag of a trajectory: the scores of its runs become 0 and have to build up again."""
        with_saved_state(
            trajectory, self.engine, self._counts, lambda: trajectory.dismiss(self.engine),
            before_again=lambda: self._finish(trajectory),  # left for later, its steps would raise the flag again
        )  # fmt: skip
        self._clear(trajectory)
        if trajectory.waiting is not None:
            self._dirty[trajectory.key] = trajectory

    # --- bounds ----------------------------------------------------------------------------------------------

    def _clear(self, trajectory: Trajectory) -> None:
        """Free the items that a trajectory has compacted, and keep the tags of the flagged ones."""
        for item in trajectory.evicted_items:
            self._items.pop(item.span, None)
            self.kept_bytes -= item.size
            if isinstance(item, StepItem):
                attributes = self.attributes(item)
                if attributes is not None:
                    self.tag_later(item.span, attributes)
                item.release()
        trajectory.evicted_items.clear()

    def maintain(self) -> list[LoopEvent]:
        """Evaluate waiting steps that are due; close runs, compact and evict trajectories. Returns the loop events.

        No trajectory may be under evaluation.
        """
        now = self._clock()
        events: list[LoopEvent] = []
        for trajectory in [waiting for waiting in self._waiting.values() if waiting.is_due(now)]:
            events += at_once(self._evaluate(trajectory, now))
        while self._awake:
            oldest = next(iter(self._awake.values()))
            if now - oldest.last_used <= self._limits.reorder_s:
                break
            events += self._close_runs(oldest)
        while self.kept_bytes > self._limits.max_history_mib * _MIB and len(self._open) > 1:
            oldest = next(iter(self._open.values()))
            if oldest.key in self._behind:
                break  # no further request is let off evaluation meanwhile
            events += self._finish(oldest)
            self._compact(oldest)
        while self._all:
            oldest = next(iter(self._all.values()))
            idle_s, full = now - oldest.last_used, len(self._all) > self._config.max_trajectories
            was_idle, too_long = idle_s > self._limits.reorder_s, idle_s > self._config.idle_ttl_s
            if not (full or too_long or (was_idle and self._surplus > 0)):
                break
            self._surplus -= 1
            reason = ("full_idle" if was_idle else "full") if full else "idle" if too_long else "memory"
            events += self._evict(oldest, reason)
        self._surplus = 0
        return events

    def shed(self) -> bool:
        """Free the least recently used half of single steps, of pending tags and of flags of evicted trajectories.

        Of trajectories without single steps the next maintenance evicts a quarter, as far as they are idle. Returns
        whether there were steps or idle trajectories.
        """
        some = bool(self._open)
        for trajectory in list(islice(self._open.values(), (len(self._open) + 1) // 2)):
            trajectory.seen.shed()
            if trajectory.key not in self._dirty and trajectory.waiting is None:  # else it is about to be evaluated
                self._compact(trajectory)
        self._pending_tags.shed()
        self._flagged.shed()
        if not some and self._all:
            some = self._clock() - next(iter(self._all.values())).last_used > self._limits.reorder_s
            self._surplus = (len(self._all) + 3) // 4 * some
        return some

    def _compact(self, trajectory: Trajectory) -> None:
        trajectory.compact()
        self._clear(trajectory)
        self._open.pop(trajectory.key, None)

    def _close_runs(self, trajectory: Trajectory) -> list[LoopEvent]:
        """Evaluate all waiting steps of a trajectory whose runs pause or end, and publish the recoveries."""
        self._awake.pop(trajectory.key, None)
        events = self._finish(trajectory)
        try:
            closed = with_saved_state(
                trajectory, self.engine, self._counts, lambda: trajectory.close_runs(self.engine),
                before_again=lambda: events.extend(self._finish(trajectory)),
            )  # fmt: skip
            for verdict, item in closed:
                item = item or stand_in(trajectory, verdict)
                recovery = recovered_when_idle(trajectory, verdict, item, self._counts)
                if recovery is not None:
                    events.append(recovery)
        except Exception:  # noqa: BLE001  one trajectory must not cost the others
            self._counts.error("evaluate.trajectory")
            _log.exception("runs of trajectory %r cannot be closed", trajectory.key[1])
        self._compact(trajectory)
        return events

    def _evict(self, trajectory: Trajectory, reason: str) -> list[LoopEvent]:
        events = self._close_runs(trajectory)
        self._counts.eviction(reason)
        verdict = trajectory.current.last
        if verdict is not None and verdict.level is not Level.OBSERVE:
            attributes = verdict_attributes(verdict, str(verdict.first_step))
            self._flagged[trajectory.key] = Flagged(min(trajectory.floor[0], self._now()), attributes)
        self._drop(trajectory)
        return events

    def _drop(self, trajectory: Trajectory) -> None:
        trajectory.abandon()
        self._clear(trajectory)
        for kept in (self._all, self._open, self._awake, self._dirty, self._waiting, self._behind):
            kept.pop(trajectory.key, None)
        if self._evicted_keys is not None:
            self._evicted_keys.append(trajectory.key)

    # --- saving ----------------------------------------------------------------------------------------------

    def take_changes(self) -> tuple[list[Trajectory], list[Key]]:
        """Trajectories that changed, and keys of those that were evicted, since the last call."""
        evaluated = (kept for kept in self._all.values() if kept.key not in self._dirty and kept.can_be_saved)
        changed = [trajectory for trajectory in evaluated if trajectory.changed]
        for trajectory in changed:
            trajectory.changed = False
        gone = [key for key in self._evicted_keys or () if key not in self._all]
        self._evicted_keys = []
        return changed, gone

    def restore(self, trajectory: Trajectory, tags: Mapping[bytes, Attributes]) -> None:
        """Add a saved trajectory, its steps that can still be put in order, and its tags."""
        trajectory.last_used = self._clock()
        trajectory.seen.limit = self._limits.max_seen_spans
        self._all[trajectory.key] = self._awake[trajectory.key] = trajectory
        for item in trajectory.items:
            item.arrived = trajectory.last_used
            self._items[item.span] = item
            self.kept_bytes += item.size
            self._open[trajectory.key] = trajectory
        if trajectory.waiting is not None:
            self._dirty[trajectory.key] = trajectory
        self.name(trajectory.key, (trajectory.key[1],))
        for span, attributes in tags.items():
            self.tag_later(span, attributes)

    # --- reading ---------------------------------------------------------------------------------------------

    def find(self, name: str, tenant: str | None = None) -> Trajectory | None:
        """The trajectory with this name: its id, or a trace, thread or session id that was linked to it. Among equal
        ids that of the caller's tenant is found; None if the tenant is unknown.
        """
        name = bounded_name(name)
        own = self._all.get((tenant, name)) if tenant is not None else None
        if own is not None or self._names.is_shared(name):
            return own
        return self._all.get(self._names.find(name) or ("", name))

    def is_shared(self, name: str) -> bool:
        """Whether several trajectories have this name."""
        return self._names.is_shared(bounded_name(name))

    def get(self, key: Key) -> Trajectory | None:
        """The trajectory with this key."""
        return self._all.get(key)

    def newest(self, count: int) -> list[Trajectory]:
        """The trajectories used last, newest first."""
        return list(islice(reversed(self._all.values()), count))
