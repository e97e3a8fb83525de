"""Writing trajectories to the store while the collector runs, and reading them back when it starts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from trajectory_guard.core.state import StateFormatError
from trajectory_guard_collector.errors import Refusal
from trajectory_guard_collector.scoring.events import News
from trajectory_guard_collector.scoring.registry import Attributes
from trajectory_guard_collector.scoring.scorer import Judge
from trajectory_guard_collector.scoring.trajectory import StepItem, Trajectory
from trajectory_guard_collector.state.codec import dump, key_bytes, load
from trajectory_guard_collector.state.wal import request_of

_log: Final = logging.getLogger(__name__)
_TRAJECTORIES: Final = "trajectories"
_TRACES: Final = "traces"
_SLICE: Final = 64
_MAX_MARKS: Final = 16
_JOURNAL_S: Final = 60.0
"""Journal rows are kept a minute longer than the states need: they also tell of the traces' newest spans."""

Rows = list[tuple[bytes, "bytes | None"]]


class SavedState(Protocol):
    """Where state is kept: ``Store``."""

    last_journal_id: int

    async def journal_rows(self) -> list[tuple[int, bytes]]:
        """All journal rows, oldest first."""

    async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        """All rows of a space."""

    async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], journal_up_to: int = 0) -> None:
        """Write rows and delete the journal up to an id, in one transaction."""


class _Silence:
    """Metrics of what was counted before the restart."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values, **named: None


class Saver:
    """Keeps the state of a judge in a store.

    Parameters:
        judge: whose trajectories and traces to save.
        store: where to.
        interval_s: seconds between writes.
    """

    def __init__(self, judge: Judge, store: SavedState, interval_s: float) -> None:
        self._judge = judge
        self._store = store
        self._interval_s = interval_s
        self._unsaved: dict[str, Rows] = {_TRAJECTORIES: [], _TRACES: []}
        self._journal_ids: deque[tuple[float, int]] = deque()
        self._task: asyncio.Task[None] | None = None

    # --- reading back ----------------------------------------------------------------------------------------

    async def restore(self) -> list[News]:
        """Read what was saved, and judge again what came after it. What cannot be read is named, counted and left.

        Returns:
            What there was to tell of what came after it.
        """
        trajectories = await self._store.load_kv(_TRAJECTORIES)
        traces = await self._store.load_kv(_TRACES)
        journal = await self._store.journal_rows()
        news = self._restore(trajectories, traces, journal)
        if trajectories or journal:
            _log.info("restored %d trajectories, %d journal entries", len(trajectories), len(journal))
        return news

    def _restore(
        self,
        trajectories: list[tuple[bytes, bytes]],
        traces: list[tuple[bytes, bytes]],
        journal: list[tuple[int, bytes]],
    ) -> list[News]:
        judge, metrics = self._judge, self._judge.metrics
        judge.metrics = judge.fleet.metrics = _Silence()  # type: ignore[assignment]
        try:
            unreadable = sum(not self._restore_one(data) for _, data in trajectories)
            for trace_id, conversation in traces:
                judge.traces.learn(judge.traces.get(trace_id), conversation.decode("utf-8", "replace"))
            judge.traces.changed = {}
            again = [*(self._judge_again(entry) for _, entry in journal), judge.finish().news]
        finally:
            judge.metrics = judge.fleet.metrics = metrics
        for _ in range(unreadable + again.count(None)):
            metrics.error("restore")
        return [one for news in again for one in news or ()]

    def _restore_one(self, data: bytes) -> bool:
        try:
            self._judge.fleet.restore(*load(data))
        except StateFormatError as error:
            _log.error("queue.storage: a trajectory starts anew: %s", error)
            return False
        return True

    def _judge_again(self, entry: bytes) -> list[News] | None:
        try:
            return self._judge.judge(request_of(entry)).news
        except (ValueError, DecodeError) as error:
            _log.error("queue.storage: a journal entry is left out: %s", error)
            return None

    # --- writing ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to save at intervals."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="saver")

    async def stop(self) -> None:
        """Save a last time. Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await self.save()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.save()

    async def save(self) -> None:
        """Write what has changed. A full disk is no loss: it is written the next time."""
        journal_id = self._store.last_journal_id
        changed, gone = self._judge.fleet.take_changes()
        for at in range(0, len(changed), _SLICE):  # in slices: requests are judged in between
            self._unsaved[_TRAJECTORIES] += self._rows(changed[at : at + _SLICE])
            await asyncio.sleep(0)
        self._unsaved[_TRAJECTORIES] += [(key_bytes(key), None) for key in gone]
        links, self._judge.traces.changed = self._judge.traces.changed or {}, {}
        self._unsaved[_TRACES] += [
            (trace_id, name.encode("utf-8", "replace") if name is not None else None)
            for trace_id, name in links.items()
        ]
        try:
            await self._write(_TRACES, 0)
            await self._write(_TRAJECTORIES, self._covered(journal_id))
        except Refusal as error:
            _log.warning(
                "trajectories could not be saved, the next try is in %g s: %s", self._interval_s, error.message
            )

    async def _write(self, space: str, journal_up_to: int) -> None:
        rows = self._unsaved[space]
        await self._store.checkpoint(space, list(dict(rows).items()), journal_up_to)
        self._unsaved[space] = []

    def _covered(self, journal_id: int) -> int:
        """The newest journal row that is old enough to go, given that all up to ``journal_id`` are in the states."""
        now = time.monotonic()
        self._journal_ids.append((now, journal_id))
        covered = 0
        while self._journal_ids and now - self._journal_ids[0][0] >= _JOURNAL_S:
            covered = self._journal_ids.popleft()[1]
        return covered

    def _rows(self, trajectories: Sequence[Trajectory]) -> Rows:
        rows: Rows = []
        for trajectory in trajectories:
            data = dump(trajectory, self._marks(trajectory))
            if data is not None:
                rows.append((key_bytes(trajectory.key), data))
        return rows

    def _marks(self, trajectory: Trajectory) -> dict[bytes, Attributes]:
        """Tags of the steps flagged last, for when they are delivered again."""
        marks: dict[bytes, Attributes] = {}
        for item in reversed(trajectory.items):
            attributes = self._judge.fleet.attributes(item) if isinstance(item, StepItem) else None
            if attributes is not None:
                marks[item.span] = attributes
                if len(marks) >= _MAX_MARKS:
                    break
        return marks
