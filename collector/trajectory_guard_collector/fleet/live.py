"""Live objects over stored bytes: a cache that is believed only while the stored bytes match.

An object is stored as a head and parts (its spans or steps), so that a change writes the head and the parts that
changed, and no record exceeds what a broker accepts. Writing waits for the commit: until then the head in the store is
a mark of this process. If a commit does not happen (the partition went to another worker, the process died), the mark
is gone with it, and the live object, which is ahead of the store, is not believed any more.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from trajectory_guard_collector.fleet.records import FatalError, StateStoreError
from trajectory_guard_collector.scoring.item_codec import from_bytes, to_bytes
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

HEAD: Final = "h"
FORMAT_VERSION: Final = 1
_MARK: Final = b"mark "
"""How a mark begins. The stream engine puts the expiry, a number of eight bytes, before each value. Reading, it takes
that off, and once more where the rest begins like such a number, with zeros: so no stored value may begin with them."""
_log: Final = logging.getLogger(__name__)
T = TypeVar("T")


class State(Protocol):
    """The stored bytes of one key: what the stream engine hands to a stateful function."""

    def get_bytes(self, key: Any, default: None = None) -> bytes | None:
        """The bytes under a name; None if there are none or they have expired."""

    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Store bytes under a name for some time."""

    def delete(self, key: Any) -> None:
        """Remove a name."""


class StoredPart(NamedTuple):
    """A part of an object.

    Fields:
        version: equal versions have equal bytes.
        plain: makes its JSON-able form.
    """

    version: Any
    plain: Callable[[], Any]


class Content(NamedTuple):
    """The stored form of an object: head, and parts by name."""

    head: Any
    parts: Mapping[str, StoredPart]


class Form(Protocol[T]):
    """How objects of one kind are made, stored and read."""

    def new(self, key: bytes) -> T:
        """An object of which nothing is stored."""

    def load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> T:
        """Read ``content``. Raises ``ValueError`` if it is damaged or of another version."""

    def prepare_commit(self, value: T) -> None:
        """Finish what the object has put off until the commit."""

    def content(self, value: T) -> Content | None:
        """The stored form; None if nothing need be stored."""

    def size(self, value: T) -> int:
        """Approximate bytes in memory."""


class _Written(NamedTuple):
    version: Any
    at_ms: int


class _Entry(Generic[T]):
    __slots__ = ("at_ms", "dirty", "key", "size", "state", "stored", "value", "written")

    def __init__(self, key: bytes, value: T, state: State, stored: bytes | None, written: dict[str, _Written]) -> None:
        self.key = key
        self.value = value
        self.state = state
        self.stored = stored
        self.written = written
        self.dirty = False
        self.at_ms = 0
        self.size = 0


@contextmanager
def _storing() -> Iterator[None]:
    """Every error of the store ends the worker."""
    try:
        yield
    except Exception as error:
        raise StateStoreError(f"the state store failed: {type(error).__name__}: {error}") from error


class LiveObjects(Generic[T]):
    """Objects of one kind by key. Single-threaded.

    Parameters:
        form: how they are made, stored and read.
        ttl_s: seconds of record time for which an object is kept after its last record.
        max_bytes: approximate bytes that live objects may take in memory; the least recently used are dropped first.
        on_damaged: called when an object cannot be read or written, and is discarded.
    """

    def __init__(self, form: Form[T], ttl_s: float, max_bytes: float, on_damaged: Callable[[], None]) -> None:
        self._form = form
        self._ttl_ms = round(ttl_s * 1_000)
        self._head_ttl = timedelta(milliseconds=self._ttl_ms)
        self._part_ttl = 2 * self._head_ttl
        self._max_bytes = max_bytes
        self._on_damaged = on_damaged
        self._entries: OrderedDict[bytes, _Entry[T]] = OrderedDict()
        self._dirty: dict[bytes, _Entry[T]] = {}
        self._bytes = 0
        self._throttled = ThrottledLog(_log)  # an upgrade may leave nothing that can be read
        self._process = _MARK + secrets.token_hex(12).encode()
        self._marks = count()

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, key: bytes, state: State, at_ms: int) -> T:
        """The object of a key, to be changed; it is written with the next commit.

        Raises:
            FatalError: the state store failed, or the output of another object that has to make room.
        """
        with _storing():
            stored = state.get_bytes(HEAD)
        entry = self._entries.get(key)
        if entry is None or entry.stored != stored:
            entry = self._load(key, stored, state)
        entry.state, entry.at_ms = state, max(entry.at_ms, at_ms)
        if not entry.dirty:
            entry.dirty, entry.stored = True, self._new_mark()
            with _storing():
                state.set_bytes(HEAD, entry.stored, ttl=self._head_ttl)
        self._dirty[key] = entry
        self._entries.move_to_end(key)
        self._resize(entry)
        self._shrink()
        return entry.value

    def is_stored(self, state: State) -> bool:
        """Whether anything is stored under a key. Errors: as of ``open``."""
        with _storing():
            return state.get_bytes(HEAD) is not None

    def flush(self) -> None:
        """Write all changed objects: the commit follows."""
        dirty, self._dirty = self._dirty, {}
        for entry in dirty.values():
            self._write(entry)
            self._resize(entry)
        self._shrink()

    # --- reading ---------------------------------------------------------------------------------------------

    def _load(self, key: bytes, stored: bytes | None, state: State) -> _Entry[T]:
        self._forget(key)
        if stored is not None:
            try:
                entry = self._read(key, stored, state)
            except FatalError:
                raise
            except Exception as error:  # noqa: BLE001  one object must not cost the others
                self._damaged(key, "cannot be read", error)
            else:
                self._entries[key] = entry
                return entry
        entry = self._entries[key] = _Entry(key, self._form.new(key), state, stored, {})
        return entry

    def _read(self, key: bytes, stored: bytes, state: State) -> _Entry[T]:
        if stored.startswith(_MARK):
            raise ValueError("it was committed without its content")
        plain = from_bytes(stored)
        if plain["v"] != FORMAT_VERSION:
            raise ValueError(f"format version {plain['v']!r} is unknown")
        with _storing():
            found = {name: state.get_bytes(name) for name in plain["parts"]}
        known = {name: data for name, data in found.items() if data is not None}
        if len(known) < len(found):
            raise ValueError(f"{len(found) - len(known)} of {len(found)} parts are missing")
        value = self._form.load(key, plain["head"], {name: from_bytes(data) for name, data in known.items()})
        content = self._form.content(value)
        parts: Mapping[str, StoredPart] = content.parts if content is not None else {}
        written = {
            name: _Written(parts[name].version if name in parts else None, at_ms)
            for name, at_ms in plain["parts"].items()
        }
        return _Entry(key, value, state, stored, written)

    # --- writing ---------------------------------------------------------------------------------------------

    def _new_mark(self) -> bytes:
        return self._process + next(self._marks).to_bytes(8, "big")

    def _write(self, entry: _Entry[T]) -> None:
        entry.dirty = False
        try:
            content, changed, head = self._serialized(entry)
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001  one object must not stop the commits of all others
            self._damaged(entry.key, "cannot be written", error)
            self._forget(entry.key)
            content, changed, head = None, {}, b""
        parts: Mapping[str, StoredPart] = content.parts if content is not None else {}
        with _storing():
            for name in [name for name in entry.written if name not in parts]:
                entry.state.delete(name)
                del entry.written[name]
            for name, data in changed.items():
                entry.state.set_bytes(name, data, ttl=self._part_ttl)
                entry.written[name] = _Written(parts[name].version, entry.at_ms)
            if content is None:
                entry.stored = None
                entry.state.delete(HEAD)
            else:
                entry.stored = head
                entry.state.set_bytes(HEAD, head, ttl=self._head_ttl)

    def _serialized(self, entry: _Entry[T]) -> tuple[Content | None, dict[str, bytes], bytes]:
        """The stored form of an object: with the parts to write, and the head, as bytes."""
        self._form.prepare_commit(entry.value)
        content = self._form.content(entry.value)
        if content is None:
            return None, {}, b""
        # A head lives for one period after its last change, so a part that is older than a period is renewed.
        old_ms = entry.at_ms - self._ttl_ms
        written = entry.written
        changed = {
            name: to_bytes(part.plain())
            for name, part in content.parts.items()
            if name not in written or written[name].at_ms < old_ms or written[name].version != part.version
        }
        times = {name: entry.at_ms if name in changed else written[name].at_ms for name in content.parts}
        # The mark makes each head unlike any other, also where parts alone have changed.
        head = {"v": FORMAT_VERSION, "mark": self._new_mark().hex(), "parts": times, "head": content.head}
        return content, changed, to_bytes(head)

    def _damaged(self, key: bytes, what: str, error: Exception) -> None:
        self._on_damaged()
        name = key.decode("ascii", "replace")
        message = f"the state of {name} {what}, and is discarded: {type(error).__name__}: {error}"
        self._throttled.log(logging.ERROR, what, message)

    # --- bounds ----------------------------------------------------------------------------------------------

    def _resize(self, entry: _Entry[T]) -> None:
        if self._entries.get(entry.key) is entry:
            size = self._form.size(entry.value)
            self._bytes += size - entry.size
            entry.size = size

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            key, entry = next(iter(self._entries.items()))
            if self._dirty.pop(key, None) is not None:
                self._write(entry)
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
