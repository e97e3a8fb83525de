"""The table of trajectories of a board, bounded by count and idle time."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, Protocol
from weakref import WeakSet

from trajectory_guard.board.entries import Entry
from trajectory_guard.board.resting import RestingState
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.calls import call_key
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.recall import NOT_MADE, KnownCall, recall
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import Delivered
from trajectory_guard.core.tracking.scope import graph_instance
from trajectory_guard.core.tracking.tables import NameTable
from trajectory_guard.process.forking import after_fork
from trajectory_guard.process.locks import OwnedLock, looks_again

_FIND_AMONG: Final = 64
_REST_AFTER_S: Final = 30.0
_MAX_AWAKE: Final = 1_000
"""More states than that are kept packed: a full garbage collection stops all threads for each object it walks through.
To unpack one and to pack it again takes a twentieth of a millisecond each."""


class CallerSite(Protocol):
    """A processor, which sees the live spans around a caller."""

    enabled: bool

    def run_of_caller(self, labels: Sequence[str]) -> tuple[str | None, str]:
        """See ``otel.callers``."""

    def views_above(self, parent: Any) -> Sequence[Any]:
        """A live span with the live spans above it, nearest first, by its context; empty if it is none of this site."""


class EntryTable:
    """Thread-safe table of entries, the one used last at the end.

    Parameters:
        config: bounds by number and idle time; engine: makes the state of a trajectory. Both may be replaced.
        counts: ``evicted_<why>``, ``episodes.<type>``, ``detections.<type>``, ``interventions.<level>``,
            ``loop_steps``, ``loop_tokens``; the board adds others.
        clock: monotonic seconds.

    Attributes:
        trajectories: ids of the entries at any time, the one used last at the end.
    """

    def __init__(
        self, config: GuardConfig, engine: Engine, *, counts: Counter[str], clock: Callable[[], float]
    ) -> None:
        self.config = config
        self.engine = engine
        self.counts = counts
        self.loop_cost_usd: defaultdict[str, float] = defaultdict(float)  # by certainty
        self._clock = clock
        self.lock = OwnedLock()
        after_fork(self._after_fork)
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self.trajectories: Final = self._entries.keys()
        self._aliases: NameTable[str, str] = NameTable(config.max_trajectories)
        self.processors: WeakSet[CallerSite] = WeakSet()  # that report spans to this table
        self._idle_from = 0.0  # no entry was used last before this time
        self._awake: OrderedDict[RestingState, None] = OrderedDict()  # by last use: those whose state is unpacked
        self._woken: deque[RestingState] = deque()  # to be entered there by the next thread that has the lock
        self._waking = OwnedLock()  # of two threads that wake an entry the second one finds the state of the first

    def __len__(self) -> int:
        return len(self._entries)

    def _after_fork(self) -> None:
        """Drop trajectories that were locked at the fork: they may be half changed."""
        self.lock, self._waking = OwnedLock(), OwnedLock()
        for name, entry in list(self._entries.items()):
            if entry.lock.locked():
                del self._entries[name]

    @looks_again
    def note_delivery(self, trajectory_id: str, brings: Delivered | None) -> None:
        """Record what an agent has brought back before it hands over, which no step shows; None if that is unknown."""
        if brings is not None:
            with (entry := self.entry(trajectory_id)).lock:
                entry.state.note_delivery(brings)

    @looks_again
    def note_new_version(self, trajectory_id: str, run: str) -> None:
        """Record that a run goes on behind an answer that is new: repeats of what was before are *likely* at most."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                if (known := entry.state.run_named(run)) is not None:
                    known.boundary = known.index

    def note_talk(self, trajectory_id: str, *, talks: bool) -> None:
        """Record whether a gate has found answers in a row that say the same, at its newest decision."""
        if (entry := self.find(trajectory_id)) is not None:
            entry.talks = talks

    @looks_again
    def put_back(self, trajectory_id: str, verdict: Verdict) -> None:
        """Put back a taken flag that the gate could not act on yet."""
        entry = self.find(trajectory_id)
        if entry is not None:
            with entry.lock:
                entry.flag_to_raise(verdict.run).put_back(verdict)

    @looks_again
    def note_given(self, trajectory_id: str, run: str, newest: str, texts: Iterable[str], calls: Iterable[str]) -> None:
        """Record what an agent was given to read; see ``Given.note``."""
        entry = self.find(trajectory_id)
        if entry is not None:
            with entry.lock:
                entry.given.note(entry.state, run, newest, texts, calls)

    @looks_again
    def note_stop(self, trajectory_id: str, run: str, path: str) -> None:
        """Record where in the graph a gate has stopped the agent of a run; ``path``: as for ``flag_for_gate``."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                entry.given.note_stop(run, path)

    @looks_again
    def note_state(self, trajectory_id: str, run: str, read: Callable[[], str]) -> None:
        """Record the state of a graph around agents, see ``Given.note_state``; it is not read where there are none."""
        entry = self.find(trajectory_id)
        if entry is not None and (visit := entry.state.visit) is not None and entry.state.relay is not None:
            if graph_instance(visit.run) == graph_instance(run):
                return  # the agent's own graph
            digest = read()
            with entry.lock:
                entry.given.note_state(entry.state, run, digest)

    @looks_again
    def forget_stops(self, trajectory_id: str) -> None:
        """Forget at which places agents were stopped: the graph goes on elsewhere, as it was told to."""
        if (entry := self.find(trajectory_id)) is not None:
            with entry.lock:
                entry.given.stops.clear()

    def repeats_model_call(self, trajectory_id: str) -> bool:
        """Whether an agent of the trajectory repeats a model call, without a tool call in between."""
        entry = self.find(trajectory_id)
        calls = entry.state.model_calls if entry is not None else {}
        return any(one.times > 1 for newest in list(calls.values()) for one in newest)

    # --- names -----------------------------------------------------------------------------------------------

    def link(self, trajectory_id: str, aliases: Iterable[str]) -> None:
        """Register other names of a trajectory (thread id, session id, trace id), under which gates look it up."""
        if trajectory_id[MAX_NAME_CHARS:]:
            trajectory_id = bounded_name(trajectory_id)
        for alias in aliases:
            if alias[MAX_NAME_CHARS:]:
                alias = bounded_name(alias)
            if alias != trajectory_id and self._aliases.find(alias) != trajectory_id:  # each span names them again
                with self.lock:
                    self._aliases.learn(alias, trajectory_id)

    def is_shared(self, name: str) -> bool:
        """Whether a name belongs to several trajectories."""
        return self._aliases.is_shared(name)

    def is_taken(self, trace_id: str) -> bool:
        """Whether a trace id belongs to a named trajectory, to several, or to a run that a gate already follows."""
        entry = self._entries.get(trace_id)
        return trace_id in self._aliases or (entry is not None and len(entry.message_steps) > 0)

    def resolve(self, *names: str | None) -> str | None:
        """Trajectory id of the first of ``names`` under which a trajectory is known, None if there is none."""
        for name in names:
            if name:
                known = self.resolve_alias(name)
                if known in self._entries:
                    return known
        return None

    def resolve_alias(self, name: str) -> str:
        """Id of the trajectory that a trace or session was linked to, else the name itself."""
        if name[MAX_NAME_CHARS:]:
            name = bounded_name(name)
        return self._aliases.find(name) or name

    def find_call(self, call_id: str) -> str | None:
        """Id of the recently used trajectory in which spans reported a call that no gate has read yet, or None.

        None also if there are several: some models number the calls of every conversation alike.
        """
        key = call_key(call_id)
        found = self._newest(lambda entry: key in entry.calls)
        return found[0] if len(found) == 1 else None

    def find_read(self, step_id: str, turn: str | None) -> str | None:
        """Id of the recently used trajectory in which a gate has read this step from the messages, None if there is
        none. If there are several, that of the newest in the turn: agents in graphs of their own may have begun one
        each. Without a turn it is None.

        Parameters:
            turn: label of the user turn, None if it is unknown. A cached answer of a model keeps its ids, as does a
                call that the application writes into each conversation: in another turn they are other steps.
        """
        key = call_key(step_id)
        found = self._newest(
            lambda entry: key in entry.message_steps and (turn is None or turn in entry.state.turns.values())
        )
        return found[0] if len(found) == 1 or (found and turn is not None) else None

    def _newest(self, is_meant: Callable[[Entry], bool]) -> list[str]:
        with self.lock:
            newest = list(islice(reversed(self._entries.values()), _FIND_AMONG))
        return [entry.trajectory_id for entry in newest if is_meant(entry)]

    def add_processor(self, processor: CallerSite) -> None:
        """Let a processor that reports spans to this table say who a caller is, for as long as it lives."""
        with self.lock:  # a new set: others may be going through the one before
            self.processors = WeakSet([*self.processors, processor])

    def remove_processor(self, processor: CallerSite) -> None:
        """Ask a processor no longer who a caller is: it will report no spans."""
        with self.lock:
            self.processors = WeakSet([one for one in self.processors if one is not processor])

    # --- reading ---------------------------------------------------------------------------------------------

    def caller_of(self, state: TrajectoryState) -> tuple[str, str]:
        """Label of the run whose flag a caller gets that names no run, and id of the trace in which it asks, if any.

        The run is that of the agent whose span is around the caller, else the one that acted last.
        """
        newest_first, trace_id = list(reversed(state.runs)), ""
        for one in list(self.processors):
            label, trace_id = one.run_of_caller(newest_first)
            if label is not None:
                return label, trace_id
        return state.current, trace_id

    def last_verdict(self, trajectory_id: str, run: str | None = None) -> Verdict | None:
        """The newest verdict of a run with a finding, None if there is none."""
        entry = self.find(trajectory_id)
        if entry is None:
            return None
        flag = entry.flags.get(run if run is not None else entry.state.current)
        return flag.last if flag is not None else None

    def step_id(self, trajectory_id: str, index: int) -> str | None:
        """Span id of a recent step, or digits that stand for the id of one without a span: 16 hex digits.

        None if it is no longer remembered.
        """
        entry = self.find(trajectory_id)
        if entry is None:
            return None
        ids = entry.state.step_ids
        return ids[index].hex() if ids.start <= index < ids.start + len(ids) else None

    def is_gated(self, trajectory_id: str, run: str) -> bool:
        """Whether a gate delivers the nudges of a run."""
        entry = self.find(trajectory_id)
        known = entry.state.runs.get(run) if entry is not None else None
        return known is not None and known.gated

    def has_saved(self, trajectory_id: str, steps: int) -> bool:
        """Whether this process has saved at least so many steps of the trajectory itself (``FlagBoard.adopt``)."""
        entry = self.find(trajectory_id)
        return entry is not None and steps <= entry.saved_index

    def in_nudged_episode(self, trajectory_id: str, run: str) -> bool:
        """Whether a run is in a loop for which a nudge became due."""
        entry = self.find(trajectory_id)
        known = entry.state.runs.get(run) if entry is not None else None
        return known is not None and known.ladder.active and known.ladder.nudged

    @looks_again
    def recall(self, trajectory_id: str, run: str, tool: str, args: Any, *, now: float = 0.0) -> KnownCall:
        """The evidence that a run has on a call, by whichever agent; ``run`` and ``now`` as in ``core.recall``."""
        entry = self.find(trajectory_id)
        if entry is None:
            return NOT_MADE
        with entry.lock:
            return recall(entry.state, run, tool, args, now=now, slow_gap_s=self.config.slow_gap_s)

    def was_read(self, trajectory_id: str, step_id: str) -> bool:
        """Whether a gate has read this step from the messages already."""
        entry = self.find(trajectory_id)
        return entry is not None and call_key(step_id) in entry.message_steps

    # --- counting ---------------------------------------------------------------------------------------------

    def _count(self, last: Verdict | None, verdict: Verdict) -> None:
        """Count findings, interventions and the loop's consumption since ``last``, the verdict of this run before.

        All but the findings are counted by the certainty of the evidence, too: ``certainty.<key>.<certainty>``.
        """
        certainty = str(verdict.certainty or "")

        def add(key: str, n: int = 1) -> None:
            self.counts[key] += n
            self.counts[f"certainty.{key}.{certainty}"] += n

        before = last.spent if last is not None and last.episode == verdict.episode else None
        if before is None:
            add(f"episodes.{verdict.types[0]}")
            before = Spent()
        for kind in verdict.types:
            self.counts[f"detections.{kind}"] += 1
        if verdict.nudge is not None:
            add("interventions.NUDGE")
        elif verdict.stop_due:
            add("interventions.STOP")
        add("loop_steps", max(0, verdict.spent.steps - before.steps))
        add("loop_tokens", max(0, verdict.spent.tokens - before.tokens))
        cost = max(0.0, verdict.spent.cost_usd - before.cost_usd)  # first: other threads could add during a call
        self.loop_cost_usd[certainty] += cost

    # --- entries ---------------------------------------------------------------------------------------------

    def find(self, trajectory_id: str) -> Entry | None:
        """The entry of a trajectory, by its id or by another name of it; None if there is none.

        Raises:
            TypeError: the id is no text; an application may have it as a number or a ``UUID``.
        """
        try:
            if trajectory_id[MAX_NAME_CHARS:]:
                trajectory_id = bounded_name(trajectory_id)
        except TypeError:
            said = f"trajectory_id: expected text, got {trajectory_id!r:.80}; spans have an id as str(id)"
            raise TypeError(said) from None
        return self._entries.get(self._aliases.find(trajectory_id) or trajectory_id)

    def entry(self, trajectory_id: str) -> Entry:
        """The entry of a trajectory by its id, made if it is missing; it is the one used last from now on.

        A trace that was joined to its trajectory, and has no entry of its own any more, has that of the trajectory.
        """
        now = self._clock()
        if trajectory_id[MAX_NAME_CHARS:]:
            trajectory_id = bounded_name(trajectory_id)
        with self.lock:
            entry = self._entries.get(trajectory_id) or self._entries.get(self._aliases.find(trajectory_id) or "")
            if entry is None:
                entry = self._entries[trajectory_id] = Entry(self.engine.new_state(trajectory_id))
            else:
                self._entries.move_to_end(entry.trajectory_id)
            entry.last_used = now
            if self._woken:
                self._enter_woken()
            self._awake[entry] = None
            self._awake.move_to_end(entry)
            self._let_rest(now)
            if now - self._idle_from > self.config.idle_ttl_s or len(self._entries) > self.config.max_trajectories:
                self._evict(now)
            return entry

    def detach(self, trace_id: str, trajectory_id: str) -> Entry | None:
        """Take the entry of a trace out of the table, None if there is none: from now on it names the trajectory.

        In one go: a flag that a person raises under the trace id meanwhile finds the trajectory.
        """
        if trajectory_id[MAX_NAME_CHARS:]:
            trajectory_id = bounded_name(trajectory_id)
        with self.lock:
            part = self._entries.pop(trace_id, None)
            if part is not None and trajectory_id not in self._entries:
                self._entries[trajectory_id] = Entry(self.engine.new_state(trajectory_id))
                self._entries[trajectory_id].last_used = part.last_used
            if trace_id != trajectory_id and self._aliases.find(trace_id) != trajectory_id:
                self._aliases.learn(trace_id, trajectory_id)
        return part

    def replace(self, entry: Entry, other: Entry) -> bool:
        """Let another entry take the place of one whose lock the caller holds; False if that has left the table."""
        other.last_used = entry.last_used
        with self.lock:
            if self._entries.get(entry.trajectory_id) is not entry:
                return False  # another thread was faster
            self._entries[entry.trajectory_id] = other
            entry.lock.retired = True
        return True

    def _let_rest(self, now: float) -> None:
        """Pack the entries that were not used for a while, the one used longest ago first, at most two at a time."""
        for _ in range(2):
            oldest = next(iter(self._awake), None)
            if oldest is None or (now - oldest.last_used <= _REST_AFTER_S and len(self._awake) <= _MAX_AWAKE):
                return
            del self._awake[oldest]
            oldest.pack(self._wake)

    def _enter_woken(self) -> None:
        while self._woken:
            woken = self._woken.popleft()
            woken.drop_packed()
            if not woken.lock.retired:
                self._awake[woken] = None

    def _wake(self, entry: RestingState) -> None:
        """Unpack a state for a thread that may hold any of the locks, or none: ``_awake`` is left to others."""
        with self._waking:
            entry.unpack(self.engine.load_state)
        self._woken.append(entry)

    def _evict(self, now: float) -> None:
        while True:  # ends at the entry just used, at the latest
            oldest = next(iter(self._entries.values()))
            full = len(self._entries) > self.config.max_trajectories
            if not full and now - oldest.last_used <= self.config.idle_ttl_s:
                self._idle_from = oldest.last_used
                return
            self._entries.popitem(last=False)
            oldest.lock.retired = True  # without the lock: whoever holds it changes what is evicted a moment later
            self._awake.pop(oldest, None)
            self.counts["evicted_full" if full else "evicted_idle"] += 1
