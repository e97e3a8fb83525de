"""Serialization of trajectories: the writer saves changed ones at intervals, and the journal covers the time since.

The byte form of a trajectory is versioned JSON around the engine's own form: its state, the ids of its evaluated steps,
its flag, and the tags of its flagged steps. It holds no single steps: after a restart, late steps are evaluated in
order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from trajectory_guard.core.calls import CallRecord
from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.history import Ring
from trajectory_guard.core.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.steps import Evidence, ModelTokens, Usage
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard_collector.scoring.published import Published
from trajectory_guard_collector.scoring.registry import Attributes
from trajectory_guard_collector.scoring.trajectory import SEEN, Key, Snapshot, Trajectory

FORMAT_VERSION: Final = 4
_COUNTERS: Final = ("steps", "score", "episode", "nudges", "evicted_runs")
_FLAGS: Final = ("last", "nudge", "stop")


def key_bytes(key: Key) -> bytes:
    """The storage key of a trajectory."""
    return orjson.dumps(key)


def dump(trajectory: Trajectory, tags: Mapping[bytes, Attributes]) -> bytes | None:
    """The byte form of a trajectory and the tags of its spans; None if it has no step yet."""
    snapshot = trajectory.snapshot()
    if snapshot is None:
        return None
    seen = Ring(SEEN, trajectory.seen.data)
    evaluated = trajectory.evaluated
    for item in evaluated:
        seen.append(item.span[-8:])
    plain = {
        "v": FORMAT_VERSION,
        "key": trajectory.key,
        "base": _plain_snapshot(snapshot),
        "floor": evaluated[-1].order if evaluated else trajectory.floor,
        "seen": seen.data.hex(),
        "names": [trajectory.services, trajectory.agents, trajectory.trace_id],
        "last_seen": trajectory.last_seen,
        "level": trajectory.level.value,
        "counters": [getattr(trajectory, name) for name in _COUNTERS],
        "episodes": [[episode, one.to_plain()] for episode, one in trajectory.episodes.items()],
        "marks": {span.hex(): attributes for span, attributes in tags.items()},
        "flags": {name: _plain_verdict(verdict) for name in _FLAGS if (verdict := getattr(trajectory, name))},
    }
    return orjson.dumps(plain)


def load(data: bytes) -> tuple[Trajectory, dict[bytes, Attributes]]:
    """Read what ``dump`` wrote.

    Raises:
        StateFormatError: the bytes are no trajectory, or of another version.
    """
    try:
        plain = orjson.loads(data)
        if plain["v"] != FORMAT_VERSION:
            raise StateFormatError(f"trajectory format version {plain['v']!r} is unknown")
        tags = {bytes.fromhex(span): attributes for span, attributes in plain["marks"].items()}
        return _from_plain(plain), tags
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateFormatError(f"damaged trajectory: {type(error).__name__}: {error}") from None


def _from_plain(plain: dict[str, Any]) -> Trajectory:
    tenant, name = plain["key"]
    trajectory = Trajectory((tenant, name))
    trajectory.base = _snapshot(plain["base"])
    end, span_id = plain["floor"]
    trajectory.floor = (float(end), str(span_id))
    trajectory.seen = Ring(SEEN, bytes.fromhex(plain["seen"]))
    services, agents, trajectory.trace_id = plain["names"]
    trajectory.services, trajectory.agents = tuple(services), tuple(agents)
    trajectory.last_seen, trajectory.level = plain["last_seen"], Level(plain["level"])
    for counter, value in zip(_COUNTERS, plain["counters"], strict=True):
        setattr(trajectory, counter, value)
    trajectory.episodes = {episode: Published.from_plain(one) for episode, one in plain["episodes"]}
    for flag, verdict in plain["flags"].items():
        setattr(trajectory, flag, _verdict(verdict))
    trajectory.changed = False
    return trajectory


def _plain_snapshot(snapshot: Snapshot) -> list[Any]:
    pending = snapshot.usage.pending
    usage = {trace: {scope: list(one) for scope, one in by_scope.items()} for trace, by_scope in pending.items()}
    recent = [list(record) for record in snapshot.recent]
    return [snapshot.state.decode("utf-8"), recent, usage, snapshot.usage.asked]


def _snapshot(plain: list[Any]) -> Snapshot:
    state, recent, usage, asked = plain
    return Snapshot(
        state.encode("utf-8"),
        tuple(CallRecord(*record) for record in recent),
        UsageLedger(
            {trace: {scope: _usage(one) for scope, one in by_scope.items()} for trace, by_scope in usage.items()}, asked
        ),
    )


def _usage(plain: list[Any]) -> Usage:
    inputs, outputs, cost, seconds, unpriced, asked = plain
    return Usage(inputs, outputs, cost, seconds, tuple(ModelTokens(*one) for one in unpriced), asked)


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    found = [[*one[:3], str(one.evidence), one.count, one.first_step] for one in verdict.detections]
    return {**verdict._asdict(), "detections": found, "spent": list(verdict.spent)}


def _verdict(plain: dict[str, Any]) -> Verdict:
    found = tuple(
        DetectionResult(kind, confidence, rule, Certainty(evidence), count, first)
        for kind, confidence, rule, evidence, count, first in plain["detections"]
    )
    return Verdict(**{
        **plain,
        "detections": found,
        "spent": Spent(*plain["spent"]),
        "level": Level(plain["level"]),
        "evidence": Evidence(plain["evidence"]),
    })  # fmt: skip
