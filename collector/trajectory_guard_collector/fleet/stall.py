"""Notices partitions that a worker holds and no longer reads, although records wait in them.

librdkafka can stop fetching a partition after a broker was restarted, without an error and for ever; only a new
consumer helps. Its own statistics do not show it: they know of the end of a partition what the last fetch has brought.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from trajectory_guard_collector.fleet.config import Kafka
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.statistics import assigned

_log: Final = logging.getLogger(__name__)
_REQUEST_S: Final = 5.0
_LOOKS: Final = 6
"""Looks in the time after which a partition counts as stalled."""
_BUSY_BYTES: Final = 8 << 20
"""librdkafka fetches nothing while its queue, of 64 MiB, is full. With less than this in it, it has no such reason."""

Partition = tuple[str, int]


class StalledError(Exception):
    """Records wait in a partition that the worker holds and does not read."""


class Positions(NamedTuple):
    """How far a consumer has fetched by a time: next offsets of partitions whose records were all handed over."""

    at_s: float
    next_offsets: Mapping[Partition, int]


def positions(statistics: Mapping[str, Any], topics: Container[str], at_s: float) -> Positions:
    """From librdkafka's statistics; none while much of what was fetched waits to be processed."""
    held = {(name, one["partition"]): one for name, one in assigned(statistics, topics)}
    if sum(one["fetchq_size"] for one in held.values()) > _BUSY_BYTES:
        return Positions(at_s, {})
    return Positions(at_s, {key: one["next_offset"] for key, one in held.items() if one["fetchq_cnt"] == 0})


class Stalls:
    """For how long each partition has stood still while records wait in it.

    Parameters:
        after_s: seconds after which a partition counts as stalled.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: dict[Partition, tuple[int, float]] = {}

    def look(self, seen: Positions, ends: Mapping[Partition, int]) -> Partition | None:
        """A stalled partition, if there is one.

        Parameters:
            ends: the offset behind the last record of each partition. Empty if nobody knows: then time starts again.
        """
        standing = {
            key: (at, self._since[key][1] if self._since.get(key, (-1, 0.0))[0] == at else seen.at_s)
            for key, at in seen.next_offsets.items()
            if max(0, at) < ends.get(key, 0)
        }
        self._since = standing
        return next((key for key, (_, since) in standing.items() if seen.at_s - since >= self._after_s), None)


class StallWatch:
    """A thread that compares the positions of a consumer with the ends of its partitions, as long as it is entered.

    Parameters:
        kafka: the connection, and ``stalled_s``.
        positions: positions of the consumer by now; None while it does not poll, joins the group, or restores state.
        on_stalled: called once, from the thread, with what stands still.
    """

    def __init__(
        self, kafka: Kafka, positions: Callable[[], Positions | None], on_stalled: Callable[[str], None]
    ) -> None:
        self._positions, self._on_stalled = positions, on_stalled
        self._stalls = Stalls(kafka.stalled_s)
        self._pause_s = kafka.stalled_s / _LOOKS
        self._stopping = threading.Event()
        self._client = AdminClient({**connection(kafka), "reconnect.backoff.max.ms": 1_000, "log_level": 0})
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()  # a look may be under way: nobody waits for it

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            self._client.poll(0)  # errors of the connection: the consumer reports its own
            seen = self._positions() or Positions(time.monotonic(), {})
            if (stalled := self._stalls.look(seen, self._ends(seen))) is not None:
                at = seen.next_offsets[stalled]
                self._on_stalled(f"partition {stalled[1]} of topic {stalled[0]} at offset {at}")
                return

    def _ends(self, seen: Positions) -> dict[Partition, int]:
        if not seen.next_offsets:
            return {}
        wanted = {TopicPartition(*key): OffsetSpec.latest() for key in seen.next_offsets}
        try:
            asked = self._client.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_S
            )
            return {(one.topic, one.partition): future.result(2 * _REQUEST_S).offset for one, future in asked.items()}
        except (KafkaException, TimeoutError) as error:  # an outage is no stall
            _log.debug("the ends of partitions are not known: %s", error)
            return {}
