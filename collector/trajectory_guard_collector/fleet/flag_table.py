"""The flags of all trajectories of the group, as far as their records were read. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from trajectory_guard.core.names import bounded_name
from trajectory_guard_collector.api.flag_replies import FlagState
from trajectory_guard_collector.fleet.flag_records import RENEWALS, flag_record_of
from trajectory_guard_collector.scoring.items import Key

IDLE: Final = "idle"
FULL: Final = "full"


class _Entry(NamedTuple):
    """A record: its bytes, since most are never asked for, and the time at which it was written."""

    revision: int
    names: tuple[str, ...]
    gone: bool
    data: bytes
    at_s: float


class FlagTable:
    """The newest record of each trajectory, by all its names.

    Parameters:
        max_trajectories: bound; the ones that were written longest ago are evicted.
        idle_s: seconds after its last step after which a trajectory is evicted.
        evicted: called with the reason for each trajectory that is evicted, ``idle`` or ``full``.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        max_trajectories: int,
        idle_s: float,
        evicted: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max, self._evicted, self._clock = max_trajectories, evicted, clock
        self._kept_s = idle_s + idle_s / RENEWALS  # a record may be older than the last step by the time to renew it
        self._entries: dict[Key, _Entry] = {}  # in the order in which they were read
        self._claims: dict[str, list[Key]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, data: bytes, at_s: float) -> None:
        """Take a record over.

        Parameters:
            at_s: the time at which it was written, in seconds since the epoch.

        Raises:
            PoisonError: the bytes are no such record.
        """
        record = flag_record_of(data)
        with self._lock:
            known = self._entries.get(record.key)
            if known is not None and known.revision > record.revision:
                return  # of a worker that was excluded from the group and did not know
            self._remove(record.key)
            self._entries[record.key] = _Entry(record.revision, record.names, record.gone, data, at_s)
            for name in record.names:
                self._claims.setdefault(name, []).append(record.key)
            if len(self._entries) > self._max:
                self._remove(next(iter(self._entries)))
                self._evicted(FULL)

    def find(self, name: str, tenant: str | None = None) -> FlagState | None:
        """The trajectory with this name: its id, or a trace, thread or session id that it is known by.

        A name of several trajectories finds none of them; one named after its trace loses the name to a conversation.

        Parameters:
            tenant: of the caller, None if it is unknown; among equal ids that of this tenant is found.
        """
        name = bounded_name(name)
        with self._lock:
            owners = self._owners(name) or [("", name)]
            if tenant is not None and self._live((tenant, name)) is not None:
                owners = [(tenant, name)]
            entry = self._live(owners[0]) if len(owners) == 1 else None
            if entry is None:
                return None
        return flag_record_of(entry.data).state()

    def sharing(self, name: str) -> int | None:
        """Number of tenants that have a trajectory with this id, if several trajectories have the name; else None."""
        name = bounded_name(name)
        with self._lock:
            if len(self._owners(name)) < 2:
                return None
            return sum(key[1] == name for key in self._claims[name] if self._live(key) is not None)

    def expire(self) -> None:
        """Forget the trajectories that are idle."""
        with self._lock:
            for key in [key for key, entry in self._entries.items() if self._is_old(entry)]:
                self._remove(key)
                self._evicted(IDLE)

    def _owners(self, name: str) -> list[Key]:
        claims = self._claims.get(name, [])
        return [key for key in claims if key[1] != name] or claims

    def _live(self, key: Key) -> _Entry | None:
        entry = self._entries.get(key)
        return None if entry is None or entry.gone or self._is_old(entry) else entry

    def _is_old(self, entry: _Entry) -> bool:
        return self._clock() - entry.at_s > self._kept_s

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        for name in entry.names if entry is not None else ():
            claims = self._claims[name]
            claims.remove(key)
            if not claims:
                del self._claims[name]
