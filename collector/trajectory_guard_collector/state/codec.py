"""Serialization of trajectories: the writer saves changed ones at intervals; the write-ahead log covers the time since.

The byte form of a trajectory is versioned JSON around the engine's own form: its state, the ids of its evaluated steps,
its flag, and the tags of its flagged steps. The steps that can still be put in order are saved with it if asked for.
The collector saves none: after a restart it evaluates late steps in order of arrival, and writes a twentieth as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from trajectory_guard.core.calls import CallRecord
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.tracking.tasks import Task
from trajectory_guard.core.tracking.usage import Asked, UsageLedger
from trajectory_guard_collector.scoring.current import CurrentVerdicts, RunVerdicts
from trajectory_guard_collector.scoring.item_codec import (
    Dialects,
    ItemFormatError,
    from_bytes,
    item_of,
    plain_item,
    plain_usage,
    plain_verdict,
    to_bytes,
    usage_of,
    verdict_of,
)
from trajectory_guard_collector.scoring.items import FIRST, Item, Key, Order
from trajectory_guard_collector.scoring.published import Published
from trajectory_guard_collector.scoring.registry import Attributes
from trajectory_guard_collector.scoring.seen import SAVED, WIDTH, SavedExtent, SeenSpans
from trajectory_guard_collector.scoring.trajectory import Snapshot, Trajectory

FORMAT_VERSION: Final = 7
"""Before 6, two tenants could have one key: what was saved of one must not become a flag of the other."""
_NO_DIALECTS: Final[Dialects] = {}
_COUNTERS: Final = ("steps", "score", "episode", "nudges", "evicted_runs")


def key_bytes(key: Key) -> bytes:
    """The storage key of a trajectory."""
    return orjson.dumps(key)


def dump(
    trajectory: Trajectory, tags: Mapping[bytes, Attributes], *, with_steps: bool = False, row: int = 0
) -> bytes | None:
    """The byte form of a trajectory; None if it has no step yet.

    Parameters:
        tags: attributes remembered for its spans.
        with_steps: include the steps that can still be put in order, those that wait for evaluation among them.
        row: id of the newest write-ahead row whose steps the trajectory has had.
    """
    compacted = [] if with_steps else trajectory.evaluated
    snapshot = trajectory.base if with_steps else trajectory.snapshot()
    if snapshot is None and not (with_steps and trajectory.items):
        return None
    plain = plain_head(trajectory, tags, snapshot, compacted)
    plain["row"] = row
    if with_steps:
        plain["items"] = [plain_item(item, results=True) for item in trajectory.items]
        plain["replay"] = [[place, plain_snapshot(one)] for place, one in trajectory.replay_points]
    return to_bytes(plain)


def plain_head(
    trajectory: Trajectory,
    tags: Mapping[bytes, Attributes],
    snapshot: Snapshot | None,
    compacted: Sequence[Item] = (),
) -> dict[str, Any]:
    """A trajectory without its single steps as JSON-able data.

    Parameters:
        tags: attributes remembered for its spans.
        snapshot: its state; compacted: the single steps that this state covers.
    """
    seen = trajectory.seen.newest(SAVED) + b"".join(item.span[-8:] for item in compacted)
    return {
        "v": FORMAT_VERSION,
        "key": trajectory.key,
        "base": plain_snapshot(snapshot) if snapshot is not None else None,
        "floor": compacted[-1].order if compacted else _plain_order(trajectory.floor),
        "seen": seen[-SAVED * WIDTH :].hex(),
        "names": [trajectory.services, trajectory.agents, trajectory.trace_id],
        "ended": trajectory.ended,
        "last_seen": trajectory.last_seen,
        "level": trajectory.level.value,
        "counters": [getattr(trajectory, name) for name in _COUNTERS],
        "episodes": [[episode, one.to_plain()] for episode, one in trajectory.episodes.items()],
        "marks": {span.hex(): attributes for span, attributes in tags.items()},
        "hands": [trajectory.hands, plain_hand(trajectory.by_hand)],
        "flags": plain_current(trajectory.current),
        "compacted": plain_current(trajectory.current if compacted else trajectory.compacted),
    }


def load(data: bytes, dialects: Dialects = _NO_DIALECTS) -> tuple[Trajectory, dict[bytes, Attributes]]:
    """Read what ``dump`` wrote.

    Parameters:
        dialects: the dialects in use by name; needed where steps were saved.

    Raises:
        StateFormatError: the bytes are no trajectory, or of another version.
    """
    try:
        return from_plain(from_bytes(data), dialects)
    except ItemFormatError as error:
        raise StateFormatError(f"damaged trajectory: {error}") from None


def from_plain(plain: Any, dialects: Dialects) -> tuple[Trajectory, dict[bytes, Attributes]]:
    """Read ``plain_head``, where steps were saved with ``items`` and ``replay`` added. Errors: as of ``load``."""
    try:
        if plain["v"] != FORMAT_VERSION:
            raise StateFormatError(f"trajectory format version {plain['v']!r} is unknown")
        tags = {bytes.fromhex(span): attributes for span, attributes in plain["marks"].items()}
        return _from_plain(plain, dialects), tags
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateFormatError(f"damaged trajectory: {type(error).__name__}: {error}") from None


def _from_plain(plain: dict[str, Any], dialects: Dialects) -> Trajectory:
    tenant, name = plain["key"]
    if not (isinstance(tenant, str) and isinstance(name, str)):
        raise TypeError(f"no key: {plain['key']!r}")
    trajectory = Trajectory((tenant, name))
    trajectory.base = _snapshot(plain["base"]) if plain["base"] is not None else None
    if plain["floor"] is not None:
        end, span_id = plain["floor"]
        trajectory.floor = (float(end), str(span_id))
    trajectory.saved = SavedExtent(plain.get("row", 0), trajectory.floor)  # earlier versions do not write the row
    trajectory.seen = SeenSpans(SAVED, bytes.fromhex(plain["seen"]))
    services, agents, trajectory.trace_id = plain["names"]
    trajectory.services, trajectory.agents = tuple(services), tuple(agents)
    trajectory.ended = tuple(plain["ended"])
    trajectory.last_seen, trajectory.level = plain["last_seen"], Level(plain["level"])
    for counter, value in zip(_COUNTERS, plain["counters"], strict=True):
        setattr(trajectory, counter, value)
    with_steps = "items" in plain
    trajectory.episodes = {
        episode: Published.from_plain(one, with_steps=with_steps) for episode, one in plain["episodes"]
    }
    if with_steps:
        items = [item_of(one, dialects) for one in plain["items"]]
        trajectory.restore_items(items, [(place, _snapshot(one)) for place, one in plain["replay"]])
    trajectory.current = current_of(plain["flags"])
    trajectory.compacted = current_of(plain.get("compacted", plain["flags"]))  # earlier versions do not revise
    trajectory.hands, hand = plain.get("hands", (0, None))  # earlier versions know no flags by hand
    trajectory.by_hand = hand_of(hand)
    trajectory.changed = False
    return trajectory


def plain_hand(flag: HandFlag | None) -> list[Any] | None:
    """A flag by hand as JSON-able data."""
    return list(flag) if flag is not None else None


def hand_of(plain: list[Any] | None) -> HandFlag | None:
    """Read ``plain_hand``."""
    if plain is None:
        return None
    level, *others = plain
    return HandFlag(Level(level), *others)


def plain_current(current: CurrentVerdicts) -> dict[str, Any]:
    """The verdicts that stand as JSON-able data."""
    runs = [
        {**one._asdict(), "nudge": _plain_or_none(one.nudge), "stop": _plain_or_none(one.stop)} for one in current.runs
    ]
    return {"last": _plain_or_none(current.last), "runs": runs}


def current_of(plain: dict[str, Any]) -> CurrentVerdicts:
    """Read ``plain_current``."""
    runs = [
        RunVerdicts(**{**one, "nudge": _verdict_or_none(one["nudge"]), "stop": _verdict_or_none(one["stop"])})
        for one in plain["runs"]
    ]
    return CurrentVerdicts(_verdict_or_none(plain["last"]), tuple(runs))


def _plain_or_none(verdict: Verdict | None) -> Any:
    return plain_verdict(verdict) if verdict is not None else None


def _verdict_or_none(plain: Any) -> Verdict | None:
    return verdict_of(plain) if plain is not None else None


def _plain_order(order: Order) -> Order | None:
    """JSON knows no infinity: the floor of a trajectory of which nothing was compacted is null."""
    return None if order == FIRST else order


def plain_snapshot(snapshot: Snapshot) -> list[Any]:
    """A snapshot as JSON-able data."""
    pending = snapshot.usage.pending
    usage = {trace: {scope: plain_usage(one) for scope, one in by_scope.items()} for trace, by_scope in pending.items()}
    recent = [list(record) for record in snapshot.recent]
    return [snapshot.state.decode("utf-8"), recent, usage, snapshot.usage.asked, snapshot.usage.tasks]


def _record(plain: list[Any]) -> CallRecord:
    record = CallRecord(*plain)  # earlier versions know fewer fields
    return record._replace(again=tuple((dialect, trace) for dialect, trace in record.again)) if record.again else record


def _asked(plain: Any) -> Asked:
    if isinstance(plain, str):  # earlier versions know one user message of a trace
        return Asked(plain)
    first, scope, turns, *graph = plain  # earlier versions know no graphs
    return Asked(first, scope, tuple([(label, start) for label, start in turns]), *graph)


def _snapshot(plain: list[Any]) -> Snapshot:
    state, recent, pending, asked, *tasks = plain  # earlier versions know no tasks
    usage = {trace: {scope: usage_of(one) for scope, one in by_scope.items()} for trace, by_scope in pending.items()}
    return Snapshot(
        state.encode("utf-8"),
        tuple(_record(record) for record in recent),
        UsageLedger(
            usage,
            {place: _asked(one) for place, one in asked.items()},
            {label: Task(*one) for found in tasks for label, one in found.items()},
        ),
    )
