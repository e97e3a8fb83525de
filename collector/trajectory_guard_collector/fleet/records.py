"""Records that pass between the stages, and those that leave the worker: operations, verdicts, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from trajectory_guard_collector.scoring.item_codec import ItemFormatError, from_bytes, to_bytes
from trajectory_guard_collector.scoring.items import Key, StepItem
from trajectory_guard_collector.scoring.operations import Operation, OperationKind

OPERATIONS_VERSION: Final = 1
VERDICT_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 900_000
"""Largest record of operations, below the megabyte that brokers accept by default."""
_KEY_BYTES: Final = 16
_ENVELOPE_BYTES: Final = 8_192
"""Most bytes of a dead letter without its key and value: its headers, and the frame of the batch around it."""


class PoisonError(ValueError):
    """A record that cannot be processed, now or later. The message says why."""


class FatalError(RuntimeError):
    """The worker must stop without a commit: going on would lose a record, or build on an incomplete state."""


class StateStoreError(FatalError):
    """The state store failed."""


class SendError(FatalError):
    """A record could not be handed to the producer."""


class Output(Protocol):
    """Writes records to topics."""

    def send(
        self, topic: str, key: bytes, value: bytes, at_ms: int, headers: Mapping[str, str | bytes] | None = None
    ) -> None:
        """Hand over a record.

        Parameters:
            topic: its role: ``operations``, ``verdicts``, ``guard_spans``, ``flags``, ``scores`` or ``dead_letters``.
            at_ms: its timestamp in milliseconds since the epoch.

        Raises:
            SendError: the record would be lost.
        """


class RecordPlace(NamedTuple):
    """Position of a record that was read."""

    topic: str
    partition: int
    offset: int


def trajectory_key(key: Key) -> bytes:
    """The Kafka key of a trajectory. A digest: conversation ids may be long, and may be personal data."""
    return blake2b(to_bytes(key), digest_size=_KEY_BYTES, person=b"trajectory").hexdigest().encode()


def operation_records(operations: Iterable[Operation]) -> Iterator[tuple[bytes, bytes]]:
    """Operations as records, key and value: one record a trajectory, or several where it would be too large.

    Raises:
        PoisonError: at the end, if single operations were too large for a record and were left out.
    """
    by_key: dict[Key, list[bytes]] = {}
    too_large = []
    for kind, key, content in operations:
        data = to_bytes([kind.value, content])
        if len(data) > MAX_RECORD_BYTES:
            too_large.append(len(data))
        else:
            by_key.setdefault(key, []).append(data)
    for key, some in by_key.items():
        first, size = 0, 0
        for place, data in enumerate(some):
            if size and size + len(data) > MAX_RECORD_BYTES:
                yield trajectory_key(key), _record(key, some[first:place])
                first, size = place, 0
            size += len(data)
        yield trajectory_key(key), _record(key, some[first:])
    if too_large:
        raise PoisonError(f"an operation of {max(too_large)} bytes is too large for a record")


def _record(key: Key, operations: list[bytes]) -> bytes:
    return b"[%d,%b,[%b]]" % (OPERATIONS_VERSION, to_bytes(key), b",".join(operations))


def operations_of(data: bytes) -> list[Operation]:
    """Read a record of ``operation_records``.

    Raises:
        PoisonError: the bytes are no such record, or of another version.
    """
    try:
        version, (tenant, name), operations = from_bytes(data)
        if version != OPERATIONS_VERSION:
            raise PoisonError(f"version {version!r} of a record of operations is unknown")
        key = (str(tenant), str(name))
        return [Operation(OperationKind(kind), key, content) for kind, content in operations]
    except (TypeError, ValueError, ItemFormatError) as error:
        if isinstance(error, PoisonError):
            raise
        raise PoisonError(f"no record of operations: {error}") from None


# --- verdicts ------------------------------------------------------------------------------------------------


def verdict_content(item: StepItem, key: Key, max_score: float) -> dict[str, Any] | None:
    """A verdict record without its revision; None if the step has no verdict."""
    verdict = item.verdict
    if verdict is None:
        return None
    tenant, name = key
    return {
        "v": VERDICT_VERSION,
        "span_id": item.view.span_id,
        "trace_id": item.view.trace_id,
        "trajectory_id": name,
        "tenant": tenant,
        "service": item.service,
        "agent": item.step.agent_id,
        "tool": item.step.tool_name,
        "ended": item.order[0],
        "run": verdict.run,
        "step_index": verdict.step_index,
        "level": verdict.level.value,
        "types": list(verdict.types),
        "rule": verdict.rule,
        "certainty": str(verdict.certainty or ""),
        "reason": verdict.reason,
        "nudge": verdict.nudge,
        "score": round(verdict.score, 6),
        "health": round(1.0 - verdict.score / max_score, 6),
        "episode": verdict.episode,
        "first_step": item.first_step if verdict.detections else "",  # of an earlier evaluation otherwise
        "evidence": verdict.evidence.value,
        "retracted": False,
    }


def retraction(key: Key, span: bytes) -> dict[str, Any]:
    """A verdict record without its revision, for a step that is no step of this trajectory any more."""
    tenant, name = key
    return {
        "v": VERDICT_VERSION,
        "span_id": span[16:].hex(),
        "trace_id": span[:16].hex(),
        "trajectory_id": name,
        "tenant": tenant,
        "retracted": True,
    }


def digest(content: Mapping[str, Any]) -> str:
    """Short digest of a verdict record: an equal one is not written again."""
    return blake2b(to_bytes(content), digest_size=8).hexdigest()


def current_verdicts(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The verdicts that hold, by span id, after any number of records in any order, repeated ones included.

    A step belongs to one trajectory at a time: of each trajectory the highest revision holds, and a retracted one
    holds nothing.
    """
    newest: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    for one in records:
        place = (one["trace_id"], one["span_id"], one["tenant"], one["trajectory_id"])
        if place not in newest or newest[place]["revision"] <= one["revision"]:
            newest[place] = one
    return {one["span_id"]: one for one in newest.values() if not one["retracted"]}


# --- dead letters --------------------------------------------------------------------------------------------


class DeadLetter(NamedTuple):
    """A record that could not be processed, as it is put aside.

    Fields:
        key, value: as they were read; the end is missing where they do not fit into a record of the topic.
        headers: where the record was read, and why it could not be processed; of one that was cut, its sizes as well.
    """

    key: bytes
    value: bytes
    headers: dict[str, str | bytes]


def dead_letter(
    source: RecordPlace, reason: str, key: bytes | None, value: bytes | None, most_bytes: int
) -> DeadLetter:
    """The dead letter of a record.

    A record that the topic refuses would end the worker at each start: what does not fit is cut, since the place says
    where the whole record is.

    Parameters:
        key, value: of the record.
        most_bytes: largest record that the topic takes.
    """
    headers: dict[str, str | bytes] = {
        "trajectory_guard.topic": source.topic,
        "trajectory_guard.partition": str(source.partition),
        "trajectory_guard.offset": str(source.offset),
        "trajectory_guard.reason": reason[:1_000].encode("utf-8", "replace"),
    }
    key, value = key or b"", value or b""
    room = max(0, most_bytes - _ENVELOPE_BYTES)
    if len(key) + len(value) > room:
        headers["trajectory_guard.key_bytes"] = str(len(key))
        headers["trajectory_guard.value_bytes"] = str(len(value))
        key = key[: room // 2]
        value = value[: room - len(key)]
    return DeadLetter(key, value, headers)
