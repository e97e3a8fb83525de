"""All trajectories of the fleet, bounded by number, idle time and memory; and what there is to tell of them."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from opentelemetry.util.types import AttributeValue

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.interventions import Spent
from trajectory_guard.core.scoring import Level
from trajectory_guard.verdict_spans import verdict_attributes
from trajectory_guard_collector.config import Trajectories
from trajectory_guard_collector.metrics import Metrics
from trajectory_guard_collector.trajectories import Item, Key, Order, StepItem, Told, Trajectory

_log: Final = logging.getLogger(__name__)
_MIB: Final = 1024 * 1024
_NAMES_PER_TRAJECTORY: Final = 4

Attributes = Mapping[str, AttributeValue]


class News(NamedTuple):
    """Something to tell.

    Fields:
        told: a loop began, a nudge or a stop is due; None if an agent has recovered.
        verdict, item: what was found, at which step.
        renamed: it was told before, under the name that the trajectory had until its conversation became known.
    """

    told: Told | None
    verdict: Verdict
    item: StepItem
    renamed: bool = False


class Flagged(NamedTuple):
    """What is kept of a flagged trajectory that was evicted: until when it was judged, and its last flag."""

    until: Order
    attributes: Attributes


class Fleet:
    """Trajectories by key. Single-threaded.

    Parameters:
        engine: judges the steps.
        config: bounds by number and idle time.
        limits: bounds of what can be put in order.
        metrics: where steps, findings and evictions are counted.
        clock: monotonic seconds; for tests.
    """

    def __init__(
        self,
        engine: Engine,
        config: GuardConfig,
        limits: Trajectories,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self._config = config
        self._limits = limits
        self.metrics = metrics
        self._clock = clock
        self._all: OrderedDict[Key, Trajectory] = OrderedDict()
        self._open: OrderedDict[Key, Trajectory] = OrderedDict()  # those that keep single steps
        self._dirty: dict[Key, Trajectory] = {}
        self._items: dict[bytes, Item] = {}
        self._kept_bytes = 0
        self._flagged: OrderedDict[Key, Flagged] = OrderedDict()
        self._marks: OrderedDict[bytes, Attributes] = OrderedDict()
        self._gone: list[Key] | None = None
        self._names: OrderedDict[str, Key | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self._all.values())

    # --- items in --------------------------------------------------------------------------------------------

    def known(self, span: bytes) -> Item | None:
        """The item of a span (trace id and span id) that was delivered before and can still be put in order."""
        return self._items.get(span)

    def add(self, item: Item, key: Key) -> None:
        """A new item of a trajectory. One that was judged long ago changes nothing."""
        trajectory = self._all.get(key)
        if trajectory is None:
            flagged = self._flagged.get(key)
            if isinstance(item, StepItem) and flagged is not None and item.order <= flagged.until:
                item.late = flagged.attributes
                self.metrics.late("too_late")
                return
            trajectory = self._all[key] = Trajectory(key)
        elif item.order <= trajectory.newest and trajectory.was_seen(item):
            self.metrics.duplicate()
            return
        self._place(trajectory, item)

    def _place(self, trajectory: Trajectory, item: Item) -> None:
        if item.order[0] <= 0.0:  # a span without times: there is no other order than that of arrival
            trajectory.add_last(item)
        elif trajectory.is_too_late(item, self._limits.reorder_s):
            trajectory.add_last(item)
            self.metrics.late("too_late")
        elif not trajectory.add(item):
            self.metrics.late("reordered")
        self._items[item.span] = item
        self._kept_bytes += item.size
        self._touch(trajectory)

    def _touch(self, trajectory: Trajectory) -> None:
        key = trajectory.key
        trajectory.last_used = self._clock()
        self._all.move_to_end(key)
        self._open[key] = trajectory
        self._open.move_to_end(key)
        self._dirty[key] = trajectory

    def move(self, item: Item, key: Key | None) -> None:
        """An item turned out to belong to another trajectory, or to be no step of its own (None)."""
        before = self._all.get(item.key) if item.key is not None else None
        if before is not None:
            before.remove(item)
            self._kept_bytes -= item.size
            self._items.pop(item.span, None)
            if before.items or before.base is not None:
                self._dirty[before.key] = before
            else:
                self._drop(before.key)
        if isinstance(item, StepItem):
            item.told = item.verdict = None
            item.moved = item.judged
        if key is not None:
            self.add(item, key)

    def refresh(self, item: StepItem) -> None:
        """What is known of a step has changed."""
        trajectory = self._all.get(item.key) if item.key is not None else None
        if trajectory is not None:
            trajectory.refresh(item)
            self._dirty[trajectory.key] = trajectory

    def name(self, key: Key, names: Iterable[str]) -> None:
        """Further names under which a trajectory's flag can be asked for.

        A name that stands for several trajectories, as a trace around several conversations does, stands for none.
        """
        for name in names:
            known = self._names.get(name, key)
            own = known is None or known == key or known[1] == name  # a trace's own trajectory gives way
            self._names[name] = key if own and known is not None else None
            self._names.move_to_end(name)
        while len(self._names) > _NAMES_PER_TRAJECTORY * self._config.max_trajectories:
            self._names.popitem(last=False)

    # --- judging ---------------------------------------------------------------------------------------------

    def judge(self) -> list[News]:
        """Judge all steps that are new or stand in another light now; what there is to tell of them."""
        news: list[News] = []
        for trajectory in list(self._dirty.values()):
            for item in self._fold(trajectory):
                news += self._weigh(trajectory, item)
            self._clear(trajectory)
        self._dirty.clear()
        self._bound()
        return news

    def _fold(self, trajectory: Trajectory) -> list[StepItem]:
        try:
            return trajectory.fold(self.engine, self._limits.reorder_steps)
        except Exception:  # noqa: BLE001  one trajectory must not cost the others
            self.metrics.error("judge.trajectory")
            _log.exception("trajectory %r cannot be judged and starts anew", trajectory.key[1])
            trajectory.abandon()
            self._drop(trajectory.key)
            return []

    def _weigh(self, trajectory: Trajectory, item: StepItem) -> Iterator[News]:
        verdict, first_time = item.verdict, not item.judged
        item.judged = True
        trajectory.last_seen = max(trajectory.last_seen, item.order[0])
        if verdict is None:
            if first_time and item.repeats:
                self.metrics.duplicate()
            return
        if first_time:
            self.metrics.step(item.service)
        trajectory.describe(item)
        if verdict.recovered:
            trajectory.nudge = trajectory.stop = None
            if verdict.episode > trajectory.recovered_episode:
                trajectory.recovered_episode = verdict.episode
                if not item.recovered:
                    self.metrics.recovery(item.service, item.step.agent_id or "")
                item.recovered = True
                yield News(None, verdict, item)
        if verdict.detections:
            self._keep_flag(trajectory, verdict)
            self._count(trajectory, item, verdict, first_time=first_time)
            told = _to_tell(trajectory, item, verdict)
            if told is not None:
                renamed, item.told, item.told_as = item.told_as is told, told, told
                self._tell(item, verdict, told, renamed=renamed)
                yield News(told, verdict, item, renamed)

    def _keep_flag(self, trajectory: Trajectory, verdict: Verdict) -> None:
        trajectory.last = verdict
        if verdict.nudge is not None and (trajectory.nudge is None or trajectory.nudge.episode != verdict.episode):
            trajectory.nudge = verdict  # a late step may move it to another step: it was given already
        if verdict.level is Level.STOP:
            trajectory.stop = verdict

    def _count(self, trajectory: Trajectory, item: StepItem, verdict: Verdict, *, first_time: bool) -> None:
        """Count what was not counted before: under another name, or before the step was judged again."""
        if first_time:
            for kind in verdict.types:
                self.metrics.detection(item.service, kind)
        begins = verdict.episode > trajectory.counted_episode
        trajectory.counted_episode = max(verdict.episode, trajectory.counted_episode)
        spent = _spent_more(trajectory, verdict)
        if not item.moved:
            self.metrics.loop_spent(item.service, spent.steps, spent.tokens, spent.cost_usd)
            if begins:
                self.metrics.episode(*_labels(item, verdict))
        item.moved = False

    def _tell(self, item: StepItem, verdict: Verdict, told: Told, *, renamed: bool) -> None:
        if told is Told.START:
            return
        if not renamed:
            self.metrics.intervention(str(verdict.level), *_labels(item, verdict))
        if item.parent_id:
            self.mark(item.span[:16] + item.parent_id, self.attributes(item) or {})

    # --- marks -----------------------------------------------------------------------------------------------

    def attributes(self, item: StepItem) -> Attributes | None:
        """What the span of a step is tagged with; None if nothing was found."""
        if item.late is not None:
            return item.late
        if item.verdict is None or not item.verdict.detections:
            return None
        return verdict_attributes(item.verdict, item.first_step)

    def mark(self, span: bytes, attributes: Attributes) -> None:
        """Remember what a span is to be tagged with when it arrives (again)."""
        self._marks[span] = attributes
        self._marks.move_to_end(span)
        if len(self._marks) > self._limits.max_flagged:
            self._marks.popitem(last=False)

    @property
    def has_marks(self) -> bool:
        """Whether any span is to be tagged when it arrives."""
        return bool(self._marks)

    def marked(self, span: bytes) -> Attributes | None:
        """What a span is to be tagged with, as far as remembered."""
        return self._marks.get(span)

    # --- bounds ----------------------------------------------------------------------------------------------

    def _clear(self, trajectory: Trajectory) -> None:
        """Take what a trajectory has folded for good."""
        for item in trajectory.forgotten:
            self._items.pop(item.span, None)
            self._kept_bytes -= item.size
            if isinstance(item, StepItem):
                attributes = self.attributes(item)
                if attributes is not None:
                    self.mark(item.span, attributes)
                item.release()
        trajectory.forgotten.clear()

    def _bound(self) -> None:
        now = self._clock()
        while self._open:
            oldest = next(iter(self._open.values()))
            over = self._kept_bytes > self._limits.max_history_mib * _MIB and len(self._open) > 1
            if not over and now - oldest.last_used <= self._limits.reorder_s:
                break
            self._rest(oldest)
        while self._all:
            oldest = next(iter(self._all.values()))
            full = len(self._all) > self._config.max_trajectories
            if not full and now - oldest.last_used <= self._config.idle_ttl_s:
                break
            self._evict(oldest, "full" if full else "idle")

    def relieve(self) -> bool:
        """Give back half of the memory of single steps and of marks, the longest unused ones; whether there was any."""
        some = bool(self._open)
        for trajectory in list(islice(self._open.values(), (len(self._open) + 1) // 2)):
            self._rest(trajectory)
        for _ in range(len(self._marks) // 2):
            self._marks.popitem(last=False)
        return some

    def _rest(self, trajectory: Trajectory) -> None:
        trajectory.settle()
        self._clear(trajectory)
        self._open.pop(trajectory.key, None)

    def _evict(self, trajectory: Trajectory, reason: str) -> None:
        self._rest(trajectory)
        self.metrics.eviction(reason)
        verdict = trajectory.last
        if verdict is not None and verdict.level is not Level.OBSERVE:
            attributes = verdict_attributes(verdict, str(verdict.first_step))
            self._flagged[trajectory.key] = Flagged(trajectory.floor, attributes)
            if len(self._flagged) > self._limits.max_flagged:
                self._flagged.popitem(last=False)
        self._drop(trajectory.key)

    def _drop(self, key: Key) -> None:
        self._all.pop(key, None)
        self._open.pop(key, None)
        self._dirty.pop(key, None)
        if self._gone is not None:
            self._gone.append(key)

    # --- saving ----------------------------------------------------------------------------------------------

    def take_changes(self) -> tuple[list[Trajectory], list[Key]]:
        """Trajectories that changed and keys of those that are gone since the last call."""
        changed = [trajectory for trajectory in self._all.values() if trajectory.changed]
        for trajectory in changed:
            trajectory.changed = False
        gone = [key for key in self._gone or () if key not in self._all]
        self._gone = []
        return changed, gone

    def restore(self, trajectory: Trajectory, marks: Mapping[bytes, Attributes]) -> None:
        """Take in a trajectory that was saved."""
        trajectory.last_used = self._clock()
        self._all[trajectory.key] = trajectory
        self.name(trajectory.key, (trajectory.key[1],))
        for span, attributes in marks.items():
            self.mark(span, attributes)

    # --- reading ---------------------------------------------------------------------------------------------

    def find(self, name: str) -> Trajectory | None:
        """The trajectory that goes by a name: its id, or a trace, thread or session id it was linked to."""
        key = self._names.get(name, ("", name))
        return self._all.get(key) if key is not None else None

    def newest(self, count: int) -> list[Trajectory]:
        """The trajectories used last, newest first."""
        return list(islice(reversed(self._all.values()), count))


def _spent_more(trajectory: Trajectory, verdict: Verdict) -> Spent:
    """What a loop has consumed since this was asked last; the trajectory remembers."""
    episode, before = trajectory.counted_spent
    before = before if episode == verdict.episode else Spent()
    spent = verdict.spent
    most = Spent(
        max(spent.steps, before.steps), spent.seconds, max(spent.tokens, before.tokens),
        max(spent.cost_usd, before.cost_usd),
    )  # fmt: skip
    trajectory.counted_spent = (verdict.episode, most)
    return Spent(most.steps - before.steps, 0.0, most.tokens - before.tokens, most.cost_usd - before.cost_usd)


def _labels(item: StepItem, verdict: Verdict) -> tuple[str, str, str, str, str]:
    return item.service, item.step.agent_id or "", item.step.tool_name, verdict.types[0], item.view.trace_id


def _to_tell(trajectory: Trajectory, item: StepItem, verdict: Verdict) -> Told | None:
    """What is worth a guard span: the first finding of an episode, its nudge, and its first stop. Late steps may move
    each of them to another step; it is not told again.
    """
    starts = verdict.episode > trajectory.started_episode
    trajectory.started_episode = max(verdict.episode, trajectory.started_episode)
    if verdict.level is Level.STOP:
        if trajectory.stopped_episode >= verdict.episode:
            return None
        trajectory.stopped_episode = verdict.episode
        return Told.STOP
    if verdict.nudge is not None:
        if trajectory.nudged_episode >= verdict.episode:
            return None
        trajectory.nudged_episode = verdict.episode
        return Told.NUDGE
    return Told.START if starts and item.told is None else None
