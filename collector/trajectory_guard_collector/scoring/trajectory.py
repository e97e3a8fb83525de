"""One trajectory: evaluates its steps in the order in which they ended, and late steps by replay.

In process the engine evaluates a step when its span ends. Over a network spans arrive late, twice and in any order, and
the ancestors that name agent and conversation arrive after the tool span. So a trajectory keeps its recent steps
sorted: the newest step is evaluated on the current state; a step that belongs further back is inserted in its place,
which invalidates the evaluations from there on, and they are replayed from the nearest snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

from trajectory_guard.core.calls import RECENT_CALLS, CallRecord, report_on, reported
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError, TrajectoryState
from trajectory_guard.core.steps import INTERRUPTED
from trajectory_guard.core.tracking.scope import run_label
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard_collector.scoring.current import NOTHING
from trajectory_guard_collector.scoring.items import FIRST, EventKind, Item, Key, Order, StepItem, is_due, was_in_order
from trajectory_guard_collector.scoring.lanes import Lanes
from trajectory_guard_collector.scoring.published import Published
from trajectory_guard_collector.scoring.seen import SAVED, SavedExtent, SeenSpans

_SNAPSHOT_STEPS: Final = 32
_AT_A_STRETCH: Final = 8
_MAX_NAMES: Final = 8
_MAX_EPISODES: Final = 16
_NUMBER_CHARS: Final = 12
_NO_TURNS: Final[dict[str, str]] = {}


@dataclass(slots=True)
class Head:
    """Input of the next evaluation: state, calls reported last, and model usage that no step has been charged yet."""

    state: TrajectoryState
    recent: tuple[CallRecord, ...]
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
        seen: span ids of compacted items, to recognise second deliveries; at least ``max_seen``.
        items: steps and usage that can still be put in order, sorted; older ones are compacted into ``base``.
        floor: order of the newest item compacted into ``base``.
        saved: extent of the saved state it was restored from.
        current: newest verdict with a finding, with a nudge, with a stop, after the evaluated items.
        compacted: the same after the compacted items; revised: whether ``current`` has to be read again from there.
        by_hand: newest flag that a person raised, None if it was cleared; hands: number of those raised.
        services, agents: names seen last; trace_id: trace of the step evaluated last.
        ended: ids of the traces whose root span has ended, the newest ones.
        steps, score, episode, nudges, level, evicted_runs: values after the newest step.
        last_used: clock in seconds; ``last_seen``: end of the newest step in seconds since the epoch.
    """

    def __init__(self, key: Key, max_seen: int = SAVED) -> None:
        self.key = key
        self.items: list[Item] = []
        self.floor: Order = FIRST
        self.saved = SavedExtent()
        self.base: Snapshot | None = None
        self.current = self.compacted = NOTHING
        self.revised = False
        self.by_hand: HandFlag | None = None
        self.hands = 0
        self.services: tuple[str, ...] = ()
        self.agents: tuple[str, ...] = ()
        self.trace_id = ""
        self.ended: tuple[str, ...] = ()
        self.level = Level.OBSERVE
        self.steps = self.episode = self.nudges = self.evicted_runs = 0
        self.score = 0.0
        self.last_used = 0.0
        self.last_seen = 0.0
        self.seen = SeenSpans(max_seen)
        self.changed = True
        self.episodes: dict[int, Published] = {}
        self.evicted_items: list[Item] = []  # until the registry collects them
        self._lanes = Lanes()
        self._head: Head | None = None
        self._evaluated = 0  # items that the head covers
        self._snapshots: list[tuple[int, Snapshot]] = []

    # --- items in --------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Order:
        """Order of the newest item."""
        return self.items[-1].order if self.items else self.floor

    def is_too_late(self, item: Item, reorder_s: float) -> bool:
        """Whether an item is too old to be put in order, or so far back that its clock must have jumped.

        The clock jumps from one request to another: items that are not evaluated yet have no order but that of their
        times, and one that another trajectory had in order stays in order.
        """
        end = item.order[0] + reorder_s
        jumped = end < self.newest[0] and not was_in_order(item) and end < self._newest_evaluated
        return jumped or item.order <= self.floor

    @property
    def _newest_evaluated(self) -> float:
        """End of the newest item that was evaluated here, also if a late item has invalidated the evaluation."""
        end = self.items[self._evaluated - 1].order[0] if self._evaluated else self.floor[0]
        tail = reversed(self.items[self._evaluated :])
        return max(end, next((item.order[0] for item in tail if item.verdict is not None), end))

    def was_seen(self, item: Item, row: int = 0) -> bool:
        """Whether an item was compacted into the base before; ``row``: write-ahead row from which it is read again."""
        return item.span[-8:] in self.seen or (row > 0 and self.saved.covers(item.order, row))

    def add(self, item: Item) -> bool:
        """Insert an item in its place. Returns whether it is the newest."""
        item.key = self.key
        self.changed = True
        newest = not self.items or self.items[-1].order < item.order
        self._lanes.add(item, newest=newest)
        if newest:
            self.items.append(item)
            return True
        place = bisect_right(self.items, item.order, key=lambda other: other.order)
        self.items.insert(place, item)
        self._invalidate(place)
        return False

    def add_last(self, item: Item) -> None:
        """Append an item behind all others, regardless of its own time."""
        item.order = max(item.order, _next(self.newest))
        self.add(item)

    def remove(self, item: Item) -> None:
        """Remove an item that belongs to another trajectory, or is no step of its own."""
        place = next((at for at, other in enumerate(self.items) if other is item), None)
        item.key = None
        if place is not None:
            del self.items[place]
            self._lanes.revise()
            self._invalidate(place)
            self.changed = True

    def refresh(self, item: Item) -> None:
        """Invalidate the evaluations from an item on, since its identity has changed."""
        place = next((at for at, other in enumerate(self.items) if other is item), None)
        if place is not None:
            self._lanes.revise()
            if not self._lanes.is_as_evaluated(item):
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

    def inherit(self, other: Trajectory, engine: Engine) -> None:
        """Take over what another trajectory has compacted, and its flag by hand: it is this one under its former name.

        Ordinals of steps, nudges and flags continue, so that a client which has acted on one of them under the former
        name sees the later ones. The other trajectory keeps its single steps. Nothing but the flag is taken over if
        this one has compacted or evaluated steps of its own, or one that ended before.
        """
        if other.by_hand is not None and self.by_hand is None:
            self.hands = max(other.hands, self.hands + 1) if self.hands else other.hands
            self.by_hand, other.by_hand = other.by_hand._replace(ordinal=self.hands), None
        is_new = self.base is None and not self._evaluated and (not self.items or self.items[0].order > other.floor)
        if other.base is None or not is_new:
            return
        state = engine.load_state(other.base.state)
        state.trajectory_id = self.key[1]
        self.base, other.base = other.base._replace(state=state.to_bytes()), None
        self.floor, self.seen, self.last_seen, self.trace_id = other.floor, other.seen, other.last_seen, other.trace_id
        self.services, self.agents, self.evicted_runs = other.services, other.agents, other.evicted_runs
        self.current = self.compacted = other.compacted.under(self.key[1])
        self.ended = other.ended
        self.episodes, other.episodes = other.episodes, {}
        for item in other.items:  # evaluated again, they are published again under this name
            if isinstance(item, StepItem) and item.verdict is not None and (item.announced or item.recovered):
                published = self.published(item.verdict.episode)
                published.nudges = published.compacted
                published.started = published.started and item.announced is not EventKind.START
                published.stopped = published.stopped and item.announced is not EventKind.STOP
                published.recovered = published.recovered and not item.recovered
        self._read(state, None)
        other.floor, other.seen, other.compacted = FIRST, SeenSpans(other.seen.limit), NOTHING
        other._snapshots, other._head, other._evaluated, other.revised = [], None, 0, True
        self.changed = other.changed = True

    @property
    def waiting(self) -> Item | None:
        """The first item that has to be evaluated, for the first time or again; None if there is none."""
        first = self._evaluated
        if first == len(self.items) and self._head is None:  # the newest item is gone: no state covers the others
            first = self._nearest[0]
        return self.items[first] if first < len(self.items) else None

    def is_due(self, now: float) -> bool:
        """Whether the first item to evaluate need not wait any longer, or evaluated items are gone and none is left."""
        if (place := self._lanes.separate(self.items)) >= 0:
            self._invalidate(place)
        item = self.waiting
        return is_due(item, now) if item is not None else self.revised and self._head is None

    def evaluate(self, engine: Engine, reorder_steps: int, now: float) -> list[StepItem]:
        """Evaluate the first eight items that are due. Returns the steps among them."""
        waiting, count = self._evaluated, len(self.items)
        head = self._head if self._head is not None else self._rewind(engine)
        evaluated = []
        most = min(count, self._evaluated + _AT_A_STRETCH)
        start, end = self._evaluated, min(waiting, most)
        while end < most and is_due(self.items[end], now):
            end += 1
        for place in range(start, end):
            item = self.items[place]
            if isinstance(item, StepItem):
                item.verdict = self._evaluate(engine, head, item)
                evaluated.append(item)
            else:
                head.usage.add(item.trace_id, item.scope, item.usage, task=item.task, end=item.order[0])
            if place % _SNAPSHOT_STEPS == _SNAPSHOT_STEPS - 1:
                self._snapshots.append((place + 1, _freeze(head)))
        self._head, self._evaluated = head, end
        self._read(head.state, evaluated if start < end else None)
        if count > reorder_steps + _SNAPSHOT_STEPS:
            more = end < waiting or (end < count and is_due(self.items[end], now))
            if not more:
                self._trim(reorder_steps)
        return evaluated

    def _read(self, state: TrajectoryState, evaluated: list[StepItem] | None) -> None:
        """Take level, score and counts over; ``evaluated`` is None where the state is another one than before."""
        newest = next((item.verdict for item in reversed(evaluated or ()) if item.verdict is not None), None)
        if newest is not None:  # it may be one on the sequence of agents, which has a score of its own
            self.level, self.score = newest.level, newest.score
        elif evaluated is None:
            self.score = state.score
        self.steps, self.episode, self.nudges = state.index, state.episodes, state.nudges
        self.evicted_runs = state.evicted_runs

    @property
    def _nearest(self) -> tuple[int, Snapshot | None]:
        """The nearest snapshot before the first item to evaluate, and the number of items that it covers."""
        return self._snapshots[-1] if self._snapshots else (0, self.base)

    def _rewind(self, engine: Engine) -> Head:
        """The head at the nearest snapshot."""
        self._evaluated, snapshot = self._nearest
        return self._thaw(engine, snapshot)

    def _thaw(self, engine: Engine, snapshot: Snapshot | None) -> Head:
        if snapshot is None:
            return Head(engine.new_state(self.key[1]), (), UsageLedger())
        return Head(engine.load_state(snapshot.state), snapshot.recent, snapshot.usage.copy())

    def start_again(self, engine: Engine) -> None:
        """Give up states that cannot be read, such as those of another version, and no step.

        Steps that are kept are evaluated again, from the state before them. If that cannot be read either, the engine
        has forgotten what was evaluated and finds loops from here on: no flag may stand that nothing could end, and the
        ordinals go on, so that a client which has acted on one of them sees the later ones.
        """
        self._snapshots, self._head, self.changed = [], None, True
        try:
            self._thaw(engine, self.base)
        except StateFormatError:
            state = engine.new_state(self.key[1])
            state.index = state.step_ids.start = self.steps
            state.episodes, state.nudges = self.episode, self.nudges
            self.base = self.base._replace(state=state.to_bytes()) if self.base is not None else None
            self._forget(self._evaluated)
            self.current = self.compacted = NOTHING
            self.level = Level.OBSERVE
            self._read(state, None)
        self._evaluated, self.revised = 0, True

    def _evaluate(self, engine: Engine, head: Head, item: StepItem) -> Verdict | None:
        step = self._lanes.resolved(item, head.state)
        if step.model_scope is not None:
            verdict = engine.observe(head.state, head.usage.name_model_call(step))
            if verdict is not None:
                head.usage.discard_pending(step)
            return self._with_first_step(head, item, verdict)
        record = CallRecord.of(step, run_label(step, _NO_TURNS))
        earlier = reported(head.recent, record)
        head.recent, item.repeats, known = report_on(head.recent, record, earlier, twice=head.state.twice)
        if item.repeats:
            return None
        if earlier is not None:
            step = head.state.take_over(step, earlier, evaluated=known)
            head.state.twice = True
        if record.outcome != INTERRUPTED:
            head.recent = (*head.recent[1 - RECENT_CALLS :], record)
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

    def close_runs(self, engine: Engine) -> list[tuple[Verdict, StepItem | None]]:
        """Close the runs, which pause or are evicted: verdicts on those that recovered, with the newest step if kept.

        Call ``compact`` next, so that later steps continue from here. Every item must be evaluated before.
        """
        if not any(published.may_recover for published in self.episodes.values()):
            return []
        head = self._head if self._head is not None else self._rewind(engine)
        found = (engine.finish_recovery(head.state, label) for label in list(head.state.runs))
        recoveries = [verdict for verdict in found if verdict is not None]
        if recoveries:
            self._head, self.changed = head, True
            self._read(head.state, None)
        return [(verdict, self._newest_of(verdict.run)) for verdict in recoveries]

    def _newest_of(self, run: str) -> StepItem | None:
        steps = (item for item in reversed(self.items) if isinstance(item, StepItem))
        return next((item for item in steps if item.verdict is not None and item.verdict.run == run), None)

    def compact(self) -> None:
        """Compact all steps, which must be evaluated, to free their memory; later ones are evaluated as they arrive."""
        if self.items or self._head is not None:
            self.base = _freeze(self._head) if self._head is not None else self._nearest[1]
            self.abandon()
            self.compacted = self.current  # a run that became idle recovered without a step

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
        self.current, self.compacted, self.by_hand = NOTHING, NOTHING, None
        self.level, self.changed = Level.OBSERVE, True
        self._read(head.state, None)

    def abandon(self) -> None:
        """Evict all items."""
        self._forget(len(self.items))
        self._snapshots, self._head, self._evaluated, self.revised = [], None, 0, False

    def _forget(self, count: int) -> None:
        for item in self.items[:count]:
            item.evicted = True
            if isinstance(item, StepItem) and _is_nudge(item) and item.verdict.episode in self.episodes:  # type: ignore[union-attr]
                self.episodes[item.verdict.episode].compacted += 1  # type: ignore[union-attr]
            self.seen.append(item.span[-8:])
            self.floor = max(self.floor, item.order)
        self.compacted = self.compacted.after(self.items[:count])
        self.evicted_items += self.items[:count]
        del self.items[:count]
        self._lanes.revise()

    def end_trace(self, trace_id: str) -> None:
        """The root span of a trace has ended: what became due in it concerns no later request."""
        self.ended, self.changed = _with(self.ended, trace_id), True

    def describe(self, item: StepItem) -> None:
        """Record service, agent and trace of a step."""
        self.trace_id = item.view.trace_id
        if item.service not in self.services:
            self.services = _with(self.services, item.service)
        agent = item.step.agent_id
        if agent is not None and agent not in self.agents:
            self.agents = _with(self.agents, agent)

    # --- reading ---------------------------------------------------------------------------------------------

    def revise(self) -> None:
        """Compute the current verdicts again: a late step, or one that moved away, may have retracted a finding."""
        self.current, self.revised = self.compacted.after(self.evaluated), False

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
        self._lanes.revise()
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


def _next(order: Order) -> Order:
    """The order of an item right behind another one: its time, and an id that stays as long, however many follow."""
    end, name = order
    before, mark, number = name.rpartition("~")
    if mark and len(number) == _NUMBER_CHARS and number.isdecimal():
        return end, f"{before}~{int(number) + 1:0{_NUMBER_CHARS}}"
    return end, f"{name}~{1:0{_NUMBER_CHARS}}"


def _freeze(head: Head) -> Snapshot:
    return Snapshot(head.state.to_bytes(), head.recent, head.usage.copy())
