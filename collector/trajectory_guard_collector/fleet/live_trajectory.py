"""A trajectory of the second stage in memory, with its changes since the last commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.integrations.langfuse.scores import ScoreBook
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.items import Key, StepItem
from trajectory_guard_collector.scoring.registry import TrajectoryRegistry
from trajectory_guard_collector.scoring.trajectory import Snapshot, Trajectory
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

_REMEMBERED: Final = 64
_OBJECT_BYTES: Final = 24_576
_SNAPSHOT_BYTES: Final = 6_144


class LiveTrajectory(TrajectoryRegistry):
    """A registry of one trajectory, so that nothing of it depends on the other trajectories of this process.

    Attributes:
        now_s: time of the newest record, seconds since the epoch: the clock of everything that takes time.
        revision: offset of the newest record; it grows with each, on whichever worker.
        again: a record since the last commit may have been read before, without a commit.
        written: digests of the verdict records written, by span.
        changed: steps evaluated since the last commit; gone: steps removed since then, and from which trajectory.
        events: loop events since the last commit.
        names: names under which snapshots are stored, by their identity; named: number of names given.
        key: tenant and id, None before the first record.
        aliases: names by which its flag is found, those learned last at the end.
        flagged: digest of the flag record written, empty if none was; flagged_s: when, in seconds since the epoch.
        done: ids of the operations by people that were carried out.
        scores: the scores written for its loops; None without any.
    """

    def __init__(
        self,
        engine: Engine,
        config: GuardConfig,
        limits: Trajectories,
        counts: ScoringCounts,
        max_names: int,
        on_evicted: Callable[[], None],
    ) -> None:
        super().__init__(engine, config, limits, counts, clock=lambda: self.now_s, now=lambda: self.now_s)
        self.key: Key | None = None
        self.aliases: dict[str, None] = {}
        self._max_names, self._on_evicted = max_names, on_evicted
        self.flagged, self.flagged_s = "", 0.0
        self.done: deque[str] = deque(maxlen=_REMEMBERED)
        self.scores: ScoreBook | None = None
        self.now_s = 0.0
        self.revision = -1
        self.again = False
        self.written: dict[bytes, str] = {}
        self.changed: dict[bytes, StepItem] = {}
        self.gone: dict[bytes, Key] = {}
        self.events: list[LoopEvent] = []
        self.names: dict[int, tuple[str, Snapshot]] = {}
        self.named = 0

    def name(self, key: Key, names: Iterable[str]) -> None:
        """Remember further names, and write them with the flag. The trajectory's own id is never evicted."""
        for name in names:
            self.aliases.setdefault(name)
        while len(self.aliases) > self._max_names:
            del self.aliases[next(name for name in self.aliases if name != key[1])]
            self._on_evicted()

    @property
    def only(self) -> Trajectory | None:
        """The trajectory; None if it has no steps."""
        return next(iter(self), None)

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        return _OBJECT_BYTES + self.kept_bytes + _SNAPSHOT_BYTES * len(self.names)

    def evaluate_some(self, trajectory: Trajectory, now: float) -> list[StepItem]:
        """Evaluate steps, and remember them as changed until the commit."""
        evaluated = super().evaluate_some(trajectory, now)
        self.changed.update((item.span, item) for item in evaluated)
        return evaluated
