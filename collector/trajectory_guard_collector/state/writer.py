"""Writing trajectories to the store while the collector runs, and reading them back when it starts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from trajectory_guard.core.state import StateFormatError
from trajectory_guard_collector.cooperative import in_turns
from trajectory_guard_collector.errors import RefusedError
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.registry import Attributes
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.state.codec import dump, key_bytes, load
from trajectory_guard_collector.state.wal import request_of
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_log: Final = logging.getLogger(__name__)
_TRAJECTORIES: Final = "trajectories"
_TRACES: Final = "traces"
_SLICE: Final = 64
_RESTORING: Final = "restoring the saved state"
_MAX_TAGS: Final = 16
_WAL_S: Final = 60.0
"""Write-ahead rows are kept a minute longer than the states need: they also restore the newest spans of the traces."""

Rows = list[tuple[bytes, "bytes | None"]]


class SavedState(Protocol):
    """Storage of the state: ``Store``."""

    last_wal_id: int

    async def wal_rows(self) -> list[tuple[int, bytes]]:
        """All write-ahead rows, oldest first."""

    async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        """All rows of a space."""

    async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int = 0) -> None:
        """Write rows and delete the write-ahead log up to an id, in one transaction."""


class StateWriter:
    """Writes the state of the scorer to a store at intervals, and reads it back at the start.

    Parameters:
        scorer: owner of the trajectories and traces to save.
        store: keeps the state.
        interval_s: seconds between writes.

    Attributes:
        restoring: how far the saved state is read back, as a reason not to take data yet; None once it is there.
    """

    def __init__(self, scorer: RequestScorer, store: SavedState, interval_s: float) -> None:
        self._scorer = scorer
        self._store = store
        self._interval_s = interval_s
        # by key: while the disk is full, a newer state takes the place of an older one
        self._unsaved: dict[str, dict[bytes, bytes | None]] = {_TRAJECTORIES: {}, _TRACES: {}}
        self._wal_ids: deque[tuple[float, int]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()
        self._throttled = ThrottledLog(_log)
        self.restoring: str | None = _RESTORING

    # --- reading back ----------------------------------------------------------------------------------------

    async def restore(self) -> list[LoopEvent]:
        """Read the saved state and evaluate the write-ahead entries after it, in turns with the other work of the loop.

        Unreadable rows are logged and counted. Nobody else may use the scorer meanwhile.

        Returns:
            The loop events of those write-ahead entries.
        """
        started = time.monotonic()
        trajectories = await self._store.load_kv(_TRAJECTORIES)
        traces = await self._store.load_kv(_TRACES)
        wal_rows = await self._store.wal_rows()
        if wal_rows:
            _log.info(
                "restoring %d trajectories and %d write-ahead entries; data is refused until then, retryable",
                len(trajectories), len(wal_rows),
            )  # fmt: skip
        events = await in_turns(self._restore(trajectories, traces, wal_rows))
        self.restoring = None
        if trajectories or wal_rows:
            _log.info(
                "restored %d trajectories, %d write-ahead entries in %.1f s",
                len(trajectories), len(wal_rows), time.monotonic() - started,
            )  # fmt: skip
        return events

    def _restore(
        self,
        trajectories: list[tuple[bytes, bytes]],
        saved_traces: list[tuple[bytes, bytes]],
        wal_rows: list[tuple[int, bytes]],
    ) -> Generator[None, None, list[LoopEvent]]:
        scorer, traces = self._scorer, self._scorer.identifier.traces
        unreadable, again = 0, []
        scorer.registry.take_changes()  # what is evicted from now on, before the first save, leaves the disk as well
        with scorer.counts.paused():
            for key, data in trajectories:
                if not self._restore_one(data):
                    unreadable += 1
                    self._unsaved[_TRAJECTORIES][key] = None  # else each start would report it again
                yield
            if unreadable:
                _log.error("queue.storage: %d of %d trajectories start empty", unreadable, len(trajectories))
            for trace_id, conversation in saved_traces:
                traces.learn(traces.get(trace_id), conversation.decode("utf-8", "replace"))
                yield
            traces.changed = {}
            for done, (row, entry) in enumerate(wal_rows):
                self.restoring = f"{_RESTORING}: {done} of {len(wal_rows)} write-ahead entries are evaluated again"
                again.append((yield from self._score_again(row, entry)))
            scorer.registry.replayed_row = 0
            again.append((yield from scorer.finishing()).events)
        for _ in range(unreadable + again.count(None)):
            scorer.counts.error("restore")
        return [one for events in again for one in events or ()]

    def _restore_one(self, data: bytes) -> bool:
        try:
            self._scorer.registry.restore(*load(data))
        except StateFormatError as error:
            self._throttled.log(
                logging.ERROR, "state", f"queue.storage: discarding unreadable trajectory state: {error}"
            )
            return False
        return True

    def _score_again(self, row: int, entry: bytes) -> Generator[None, None, list[LoopEvent] | None]:
        self._scorer.registry.replayed_row = row
        try:
            return (yield from self._scorer.scoring(request_of(entry))).events
        except (ValueError, DecodeError) as error:
            self._throttled.log(
                logging.ERROR, "wal", f"queue.storage: discarding an unreadable write-ahead entry: {error}"
            )
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
            try:
                await self.save()
            except Exception:  # noqa: BLE001  without a saver the write-ahead log would grow until the queue is full
                self._scorer.counts.error("save")
                _log.exception("trajectories could not be saved, the next try is in %g s", self._interval_s)

    async def save(self) -> None:
        """Write all changes since the last save. If the disk is full, they are written the next time."""
        async with self._saving:
            await self._save()

    async def _save(self) -> None:
        wal_id = self._store.last_wal_id
        changed, gone = self._scorer.registry.take_changes()
        for at in range(0, len(changed), _SLICE):  # in slices: requests are scored in between
            self._unsaved[_TRAJECTORIES].update(self._rows(changed[at : at + _SLICE], wal_id))
            await asyncio.sleep(0)
        self._unsaved[_TRAJECTORIES].update((key_bytes(key), None) for key in gone)
        traces = self._scorer.identifier.traces
        links, traces.changed = traces.changed or {}, {}
        self._unsaved[_TRACES].update(
            (trace_id, name.encode("utf-8", "replace") if name is not None else None)
            for trace_id, name in links.items()
        )
        try:
            await self._write(_TRACES, 0)
            await self._write(_TRAJECTORIES, self._covered(wal_id))
        except RefusedError as error:
            _log.warning(
                "trajectories could not be saved, the next try is in %g s: %s", self._interval_s, error.message
            )

    async def _write(self, space: str, wal_up_to: int) -> None:
        await self._store.checkpoint(space, list(self._unsaved[space].items()), wal_up_to)
        self._unsaved[space] = {}

    def _covered(self, wal_id: int) -> int:
        """The newest write-ahead row that is old enough to delete, given that the states cover all up to ``wal_id``."""
        now = time.monotonic()
        self._wal_ids.append((now, wal_id))
        covered = 0
        while self._wal_ids and now - self._wal_ids[0][0] >= _WAL_S:
            covered = self._wal_ids.popleft()[1]
        return covered

    def _rows(self, trajectories: Sequence[Trajectory], wal_id: int) -> Rows:
        rows: Rows = []
        for trajectory in trajectories:
            try:
                data = dump(trajectory, self._pending_tags(trajectory), row=wal_id)
                if data is not None:
                    rows.append((key_bytes(trajectory.key), data))
            except Exception:  # noqa: BLE001, PERF203  one trajectory must not cost the others
                self._scorer.counts.error("save")
                _log.exception("trajectory %r cannot be saved", trajectory.key[1])
        return rows

    def _pending_tags(self, trajectory: Trajectory) -> dict[bytes, Attributes]:
        """Tags of the steps flagged last, for a repeated delivery of their spans."""
        tags: dict[bytes, Attributes] = {}
        for item in reversed(trajectory.items):
            attributes = self._scorer.registry.attributes(item) if isinstance(item, StepItem) else None
            if attributes is not None:
                tags[item.span] = attributes
                if len(tags) >= _MAX_TAGS:
                    break
        return tags
