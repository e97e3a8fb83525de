"""The second stage: operations on one trajectory in; verdicts, flags, scores and guard spans out. Its state is the
trajectory.

Steps are evaluated at the commit, not record by record: those that arrive out of order between two commits, as all do
while a backlog is read partition by partition, are put in order before any is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.spending.prices import PriceTable
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.fleet.config import Flags
from trajectory_guard_collector.fleet.flag_records import FlagWriter
from trajectory_guard_collector.fleet.live import Content, LiveObjects, State, StoredPart
from trajectory_guard_collector.fleet.live_trajectory import LiveTrajectory
from trajectory_guard_collector.fleet.records import (
    Output,
    PoisonError,
    digest,
    operations_of,
    retraction,
    verdict_content,
)
from trajectory_guard_collector.fleet.score_records import ScoreRecords, plain_book
from trajectory_guard_collector.scoring.item_codec import ItemFormatError, dialects_by_name, plain_item, to_bytes
from trajectory_guard_collector.scoring.items import Item, StepItem
from trajectory_guard_collector.scoring.operations import BY_HAND, Operation, OperationKind, apply
from trajectory_guard_collector.scoring.scorer import Tagger
from trajectory_guard_collector.scoring.trajectory import Snapshot
from trajectory_guard_collector.state.codec import from_plain, plain_head, plain_snapshot
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

FORMAT_VERSION: Final = 1
_ITEM, _SNAPSHOT = "i", "r"
_BASE, _NEWEST = "b", "rh"
_CLOCK_SKEW_S: Final = 30.0


class EvaluatingStage:
    """Evaluates the steps of trajectories.

    Parameters:
        config: detection, as in process.
        limits: the steps of a trajectory that can still be put in order.
        counts: counts steps and findings.
        output: takes verdicts, flags, scores and guard spans.
        ttl_s, max_bytes: as of ``LiveObjects``.
        max_names: names of a trajectory that are remembered; on_evicted: called for each further one.
        scores: writes scores; None: does not.
        clock: seconds since the epoch; for tests.
    """

    def __init__(
        self,
        config: GuardConfig,
        limits: Trajectories,
        counts: ScoringCounts,
        output: Output,
        ttl_s: float,
        max_bytes: float,
        *,
        max_names: int = Flags().max_names,
        on_evicted: Callable[[], None] = lambda: None,
        scores: ScoreRecords | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prices = PriceTable()
        self._engine = Engine(config.engine_settings(), price=self._prices.cost)
        self._config, self._counts, self._output = config, counts, output
        # A commit puts the steps in order that arrive together; a step that waited longer would need a clock.
        self._limits = limits.model_copy(update={"reorder_wait_s": 0.0, "max_flagged": 0})
        self._dialects = dialects_by_name(table_with(config.dialects))
        self._max_names, self._on_evicted = max_names, on_evicted
        self._clock = clock
        self._flags, self._scores = FlagWriter(output, config.idle_ttl_s, clock), scores
        self._read_before_s = 0.0
        self.live: LiveObjects[LiveTrajectory] = LiveObjects(
            self, ttl_s, max_bytes, lambda: counts.error("state.trajectory")
        )
        self.assigned()

    def assigned(self) -> None:
        """Partitions were assigned: another worker, or this one before, may have read records without a commit.

        Until these are read again, every verdict is written, also one that is as it was at the last commit: the other
        worker may have written a different one in between.
        """
        self._read_before_s = self._clock() + _CLOCK_SKEW_S

    def take(self, key: bytes, data: bytes, state: State, at_ms: int, offset: int) -> None:
        """Carry out the operations of a record. They are evaluated with the next commit.

        Parameters:
            key: see ``trajectory_key``.
            at_ms: time of the record in milliseconds since the epoch; offset: its offset.

        Raises:
            PoisonError: the record, or an operation of it, can never be processed; the others are carried out.
            FatalError: the state store or the output failed.
        """
        operations = operations_of(data)
        live = self.live.open(key, state, at_ms)
        live.revision = max(live.revision, offset)
        live.again = live.again or at_ms / 1_000 <= self._read_before_s
        if any(operation.kind not in BY_HAND for operation in operations):  # a person's clock is not that of spans
            live.now_s = max(live.now_s, at_ms / 1_000)
            live.events += live.maintain()
        unreadable: list[str] = []
        for operation in operations:
            try:
                self._apply(live, operation)
            except ItemFormatError as error:  # noqa: PERF203  the other operations count
                unreadable.append(str(error))
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                unreadable.append(f"damaged operation {operation.kind.value!r}: {type(error).__name__}: {error}")
        if unreadable:
            raise PoisonError(f"{len(unreadable)} of {len(operations)} operations: {unreadable[0]}")

    def _apply(self, live: LiveTrajectory, operation: Operation) -> None:
        live.key = operation.key
        if operation.kind in BY_HAND:
            self._by_hand(live, operation)
            return
        if operation.kind is OperationKind.REMOVE:
            item = live.known(bytes.fromhex(operation.content))
            if isinstance(item, StepItem):
                live.gone[item.span] = operation.key
        apply(operation, live, self._dialects)

    def _by_hand(self, live: LiveTrajectory, operation: Operation) -> None:
        """Raise or clear a flag, once: a record may be written twice, with one id."""
        try:
            content, by_id = operation.content, str(operation.content["id"])
            flag = HandFlag.of(
                content.get("level", Level.NUDGE), content.get("reason") or "-", content.get("actor", "")
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ItemFormatError(f"no flag by hand: {type(error).__name__}: {error}") from None
        trajectory = live.only
        if trajectory is None or by_id in live.done:
            return  # its steps have moved to another trajectory meanwhile, or it was carried out before
        live.done.append(by_id)
        if operation.kind is OperationKind.RAISE:
            live.raise_flag(trajectory, flag)
        else:
            live.events += at_once(live.scoring())  # the steps that arrived before it are cleared as well
            live.clear_flag(trajectory)

    # --- verdicts --------------------------------------------------------------------------------------------

    def prepare_commit(self, value: LiveTrajectory) -> None:
        """See ``Form``: evaluate the steps, and write the verdicts that changed."""
        value.events += at_once(value.scoring())
        at_ms = round(value.now_s * 1_000)
        for span, key in value.gone.items():
            if value.known(span) is None and (value.written.pop(span, None) is not None or value.again):
                self._send({**retraction(key, span), "revision": value.revision}, span, at_ms)
        for item in value.changed.values():
            if item.key is None:
                continue
            # without a verdict, a second record of a call is no step
            content = verdict_content(item, item.key, self._config.max_score) or retraction(item.key, item.span)
            known = digest(content) if not content["retracted"] else None
            if value.again or value.written.get(item.span) != known:
                self._send({**content, "revision": value.revision}, item.span, at_ms)
            if known is not None:
                value.written[item.span] = known
            else:
                value.written.pop(item.span, None)
        self._flags.write(value)
        if self._scores is not None:
            self._scores.write(value)
        tagger = Tagger(value)
        for event in value.events:
            data, spans = tagger.guard_spans([event])
            if spans:
                self._output.send("guard_spans", event.item.span[:16].hex().encode(), data, at_ms)
        value.written = {span: known for span, known in value.written.items() if value.known(span) is not None}
        value.again = False
        value.gone.clear()
        value.changed.clear()
        value.events.clear()

    def _send(self, record: dict[str, Any], span: bytes, at_ms: int) -> None:
        self._output.send("verdicts", span[:16].hex().encode(), to_bytes(record), at_ms)

    # --- form of a trajectory --------------------------------------------------------------------------------

    def new(self, key: bytes) -> LiveTrajectory:
        """See ``Form``."""
        return LiveTrajectory(self._engine, self._config, self._limits, self._counts, self._max_names, self._on_evicted)

    def size(self, value: LiveTrajectory) -> int:
        """See ``Form``."""
        return value.size

    def content(self, value: LiveTrajectory) -> Content | None:
        """See ``Form``."""
        trajectory = value.only
        if trajectory is None:
            return None
        parts = {
            f"{_ITEM}{item.span.hex()}": _item_part(item, value.written.get(item.span)) for item in trajectory.items
        }
        replay = _named(value, trajectory.replay_points)
        parts.update((name, _snapshot_part(one)) for name, _, one in replay)
        if trajectory.base is not None:
            parts[_BASE] = _snapshot_part(trajectory.base)
        head = {
            "v": FORMAT_VERSION,
            "trajectory": plain_head(trajectory, {}, None),
            "items": [item.span.hex() for item in trajectory.items],
            "replay": [[name, place] for name, place, _ in replay],
            "named": value.named,
            "now_s": value.now_s,
            "revision": value.revision,
            "last_used": trajectory.last_used,
            "flag": [value.flagged, value.flagged_s, list(value.aliases), list(value.done)],
            "scores": plain_book(value.scores),
        }
        return Content(head, parts)

    def load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> LiveTrajectory:
        """See ``Form``."""
        try:
            if head["v"] != FORMAT_VERSION:
                raise ValueError(f"trajectory format version {head['v']!r} is unknown")
            return self._load(key, head, parts)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"damaged trajectory: {type(error).__name__}: {error}") from None

    def _load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> LiveTrajectory:
        live, plain = self.new(key), head["trajectory"]
        plain["base"] = parts.get(_BASE)
        plain["items"] = [parts[f"{_ITEM}{span}"]["item"] for span in head["items"]]
        plain["replay"] = [[place, parts[name]] for name, place in head["replay"]]
        trajectory, _ = from_plain(plain, self._dialects)
        live.now_s, live.revision, live.named = head["now_s"], head["revision"], head["named"]
        live.key = trajectory.key
        # Earlier versions wrote no flags and no scores: the first commit with a change does.
        live.flagged, live.flagged_s, names, done = head.get("flag", ("", 0.0, (), ()))
        live.aliases = dict.fromkeys(names)
        live.scores = self._scores.book(head.get("scores")) if self._scores else None
        live.done.extend(done)
        live.restore(trajectory, {})
        trajectory.last_used = head["last_used"]
        for span in head["items"]:
            known = parts[f"{_ITEM}{span}"]["written"]
            if known is not None:
                live.written[bytes.fromhex(span)] = known
        for (name, _), (_, snapshot) in zip(head["replay"], trajectory.replay_points, strict=True):
            if name != _NEWEST:
                live.names[id(snapshot)] = (name, snapshot)
        return live


def _named(live: LiveTrajectory, points: list[tuple[int, Snapshot]]) -> list[tuple[str, int, Snapshot]]:
    """Replay points with the names under which they are stored. The newest is written each time, under one name."""
    found = []
    names: dict[int, tuple[str, Snapshot]] = {}
    for nth, (place, snapshot) in enumerate(points, 1):
        known = live.names.get(id(snapshot))
        if known is not None:
            name = known[0]
        elif nth == len(points):
            name = _NEWEST
        else:
            name = f"{_SNAPSHOT}{live.named}"
            live.named += 1
        if name != _NEWEST:
            names[id(snapshot)] = (name, snapshot)
        found.append((name, place, snapshot))
    live.names = names
    return found


def _item_part(item: Item, written: str | None) -> StoredPart:
    version: tuple[Any, ...] = (item.order, written)
    if isinstance(item, StepItem):
        version += (
            item.step, item.verdict, item.first_step, item.evaluated, item.moved, item.recovered, item.repeats,
            item.announced, item.announced_as, item.late,
        )  # fmt: skip
    return StoredPart(version, lambda: {"item": plain_item(item, results=True), "written": written})


def _snapshot_part(snapshot: Snapshot) -> StoredPart:
    return StoredPart(snapshot, lambda: plain_snapshot(snapshot))
